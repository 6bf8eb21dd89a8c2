"""NMMO by name: presets, refusals in one line, and the held-out maps."""

import collections
import dataclasses
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.config import parse
from minimax_lib.envs.multi_agent import batch_of
from minimax_lib.envs.nmmo.family import FAMILY
from minimax_lib.envs.nmmo.goods import empty_packs
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.presets import PRESETS
from minimax_lib.envs.nmmo.shaping import SHAPINGS, best_entry, shaped, starter_kit
from minimax_lib.envs.nmmo.square import spawn_places
from minimax_lib.envs.nmmo.state import Level, newborn
from minimax_lib.envs.nmmo.suite import GROUPS, HELD_OUT, N_MAPS, VALIDATION, NMMOSuite
from minimax_lib.envs.nmmo.things import gear_of
from minimax_lib.envs.registry import make_env, make_held_out
from minimax_lib.testing.envs import check_held_out

KEY = jax.random.key(2)


@dataclasses.dataclass(frozen=True)
class Bare(NMMO):
    """Maps without ground, which take no time to draw."""

    def sample_level(self, key):
        return Level(
            terrain=jnp.zeros((self.square.side, self.square.side), jnp.uint8),
            spawn=spawn_places(key, self.square, self.n_players),
            tasks=jnp.zeros(self.n_players, jnp.int32),
            sharpness=jnp.ones((), jnp.float32),
        )


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_settings_by_name(preset):
    env = make_env("NMMO", preset=preset)
    assert {name: getattr(env, name) for name in PRESETS[preset]} == PRESETS[preset]
    config = parse(["--env", "NMMO", "--env.preset", preset, "--env.n-players", "7", "--model", "ff"])
    assert config.env == NMMO(preset=preset, n_players=7)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            "--env.preset midi",
            "unknown env.preset 'midi': choose from medium, small, mini, mini_npc, competition (did you",
        ),
        ("--env.shaping best", "unknown env.shaping 'best': choose from none, starter_kit, best_entry"),
        ("--env.n-players 0", "env.n_players=0: it must be a whole number of at least 1"),
        ("--env.n-players 600", "env.n_players=600: there are 512 places to spawn on the edge"),
        ("--env.centre 33", "env.centre=33: it must be a multiple of 16"),
        ("--env.preset mini --env.clusters 129", "env.clusters=129: it must be at most 128"),
        ("--env.preset mini --env.single-resources 999", "env.single_resources=999: it must be at most 256"),
        ("--env.n-neighbours 100000", "env.n_neighbours=100000: it must be at most 1024"),
        ("--env.preset mini --env.n-npcs 4", "env.n_npcs=4: NPCs need combat=True"),
        ("--env.preset mini --env.market", "env.market=True: a market needs items=True"),
        ("--env.stop-below 128", "env.stop_below=128: it must be below n_players=128"),
        ("--env.max-steps 40000", "env.max_steps=40000: it must be at most 32767"),
        ("--env.horizon-jitter 2", "env.horizon_jitter=2.0: it must be between 0 and 1"),
        ("--env.task-set stage", "unknown env.task_set 'stage': choose from survive, stages, train, sample_eval, comp"),
        ("--env.sharpness-low 1", "env.sharpness_low=1.0: it must be at most 0"),
        ("--env.sharpness-low=-inf", "env.sharpness_low=-inf: it must be at most 0, and finite"),
        ("--env.health-reward inf", "env.health_reward=inf: it must be a finite number"),
        ("--env.players 3", "unknown setting 'env.players': choose from env.preset, "),
    ],
)
def test_bad_settings_are_refused_in_one_line(flags, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011, the text is compared below
        parse(["--env", "NMMO", *flags.split()])
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_episode_e_is_on_map_e_whatever_the_key():
    suite = NMMOSuite(Bare(preset="mini"))
    assert suite.names == (HELD_OUT, VALIDATION)
    n_maps = {name: N_MAPS[name] for name in suite.names}
    n = N_MAPS[HELD_OUT] + 2
    spawns = [np.asarray(suite.sample(jax.random.key(seed), n).spawn) for seed in (0, 1)]
    np.testing.assert_array_equal(*spawns)
    of_maps = spawns[0].reshape(2, n, -1)
    np.testing.assert_array_equal(of_maps[0, :2], of_maps[0, -2:])
    np.testing.assert_array_equal(of_maps[1, :8], of_maps[1, N_MAPS[VALIDATION] :][:8])
    distinct = np.concatenate([of_maps[0, : N_MAPS[HELD_OUT]], of_maps[1, : N_MAPS[VALIDATION]]])
    assert len(np.unique(distinct, axis=0)) == sum(n_maps.values())


def test_held_out_worlds_go_on_to_the_end():
    helps = {"resilient": 0.2, "health_reward": 1.0, "shaping": "starter_kit", "death_reward": 0.0}
    training = NMMO(preset="mini", stop_below=6, horizon_jitter=0.5, **helps)
    env = make_held_out(training, ["benchmark"]).env
    assert env == NMMO(preset="mini")
    assert make_held_out(training, ["TrainingDistribution"]).env == env  # alone, as beside the maps
    assert batch_of(training, 1).played_out(2).env == env  # what a curriculum measures its tasks in
    assert FAMILY.groups["all"] == (HELD_OUT, VALIDATION, "TrainingDistribution")
    assert [make_held_out(training, [group]).names for group in list(GROUPS)[:2]] == [(VALIDATION,), (HELD_OUT,)]


def test_held_out_tasks_are_dealt_out_in_turn():
    suite = NMMOSuite(Bare(preset="mini_npc", n_neighbours=5), ("test_part",))
    n_tasks, n_players, n = suite.env.n_tasks, suite.env.n_players, 20
    assert (n_tasks, n_players) == (235, 24)
    levels = jax.device_get(suite.sample(KEY, n))
    counts = np.bincount(levels.tasks.reshape(-1), minlength=n_tasks)
    assert counts.min() >= n * n_players // n_tasks
    assert counts.max() <= counts.min() + 1
    # Nobody begins where the agent of the same number began in another episode, and so no task has a place.
    assert len(np.unique(levels.spawn[0].reshape(n, -1), axis=0)) == n


def test_the_competition_is_played_in_its_own_world():
    training = NMMO(preset="mini_npc", stop_below=4, may_hold_fire=True, task_set="stages")
    env = NMMOSuite(training, ("competition",)).env
    assert env == NMMO(preset="competition", n_neighbours=16, task_set="competition")
    assert (env.n_players, env.n_npcs, env.max_steps, env.n_tasks) == (128, 256, 1024, 63)
    kinds = [env.task_kind(number) for number in range(63)]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "survival": 1, "combat": 3, "exploration": 2, "skill": 8, "item": 44, "market": 5,
    }  # fmt: skip
    assert NMMOSuite(training, ("test_part",)).env == NMMO(preset="mini_npc", may_hold_fire=True, task_set="test_part")


def test_no_task_that_is_held_out_is_drawn_in_training():
    drawn, held = (NMMO(preset="mini_npc", task_set=name).tasks.specs for name in ("train_part", "test_part"))
    names = {spec.called for spec in held}
    assert not names & {spec.called for spec in drawn}
    whole = [spec.called for spec in NMMO(preset="mini_npc", task_set="train").tasks.specs]
    assert sorted([*names, *(spec.called for spec in drawn)]) == sorted(whole)


@pytest.mark.parametrize(
    ("preset", "tasks", "message"),
    [
        ("mini", ["competition"], "competition needs --env.combat: agents of an environment without it do not have"),
        ("mini_npc", ["competition", "HeldOutMaps"], "competition and HeldOutMaps are played in different worlds"),
        ("mini_npc", ["test_part", "sample_eval"], "test_part and sample_eval are played in different worlds"),
        ("mini_npc", ["competiton"], "unknown held-out task 'competiton': choose from"),
    ],
)
def test_held_out_tasks_that_cannot_be_played_are_refused(preset, tasks, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011, the text is compared below
        make_held_out(NMMO(preset=preset), tasks)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.deep
def test_the_held_out_maps_conform():
    check_held_out(NMMO(preset="mini_npc", n_players=3), KEY, n_episodes=2)


def test_what_competitors_paid_themselves():
    """By hand, for six players: what each of them did in a tick, and what it is paid for it."""
    n = 6
    # The last eight moves: always the same, two by turns, six of which five are north, all five, too few, none.
    moves = [[1] * 8, [0, 1] * 4, [-1] * 2 + [0] * 5 + [2], [0, 0, 1, 1, 2, 2, 3, 4], [-1] * 3 + [0] * 5, [-1] * 8]

    @jax.jit
    def paid():
        before = newborn(jnp.zeros((n, 2), jnp.int16), jnp.zeros(n, bool))
        # Player 3 is hungry, player 4 is in full health: food and water give them nothing.
        before = before.replace(
            health=jnp.array([50, 50, 50, 50, 100, 50]),
            food=jnp.array([60, 60, 60, 50, 60, 60]),
            events=before.events.at[:, 0].set(1),
        )
        after = before.replace(
            health=jnp.array([50, 60, 40, 50, 100, 50]),
            events=before.events.at[0, 0].add(1).at[1, 3].add(2).at[2, 1:6].add(1),
            experience=before.experience.at[2, 3].add(200).at[3, :2].add(jnp.array([5, 8])),
            gold=before.gold + jnp.array([0, 0, 0, 7, -3, 0]),
        )
        goods = empty_packs(n)
        hat = goods.replace(thing=goods.thing.at[4, 0].set(2), worn=goods.worn.at[4, 0].set(True))
        state = types.SimpleNamespace(players=after, goods=hat, moves=jnp.array(moves, jnp.int8))
        # Skills begin at different experience or not: only the growth of the highest counts.
        still = best_entry(before, types.SimpleNamespace(players=before, goods=None))
        return starter_kit(before, state), best_entry(before, state), still, gear_of(hat.thing, hat.worn).defence[4]

    kit, best, still, defence = jax.device_get(paid())
    bits = np.array([0, 1, -(5 * math.log2(5 / 6) + math.log2(1 / 6)) / 6, 3 * 0.5 + 2 * 3 / 8, 1, 1])
    np.testing.assert_allclose(kit, np.array([0.03, 0.04, 0.06, 0, 0, 0.03]) + 0.02 * (bits - 1), atol=1e-7)
    assert defence > 0
    wanted = [0, 0.03 * 10, 0.03 * -10 + 0.002 * 200, 0.002 * 8 + 0.001 * 7, 0.001 * -3 + 0.04 * defence / 15, 0]
    np.testing.assert_allclose(best, 0.1 * np.array(wanted), atol=1e-6)
    np.testing.assert_allclose(still, 0, atol=0)


def test_the_dead_are_paid_for_nothing(monkeypatch):
    monkeypatch.setitem(SHAPINGS, "best_entry", lambda before, state: jnp.array([1.0, 2.0, 3.0]))
    state, playing = types.SimpleNamespace(moves=None), np.array([True, False, True])
    assert shaped("best_entry", None, state, np.zeros(3, np.int32), playing)[1].tolist() == [1, 0, 3]


def test_the_starter_kit_looks_back_at_the_last_eight_moves():
    """On maps without ground nobody eats, so all that it pays is for the moves. Beside a plain model of them."""
    plain, paid = (Bare(preset="mini", n_players=3, shaping=shaping) for shaping in ("none", "starter_kit"))
    chosen = np.random.default_rng(0).integers(0, 5, (12, 3))
    rewards = []
    for env in (plain, paid):
        state, _ = jax.jit(lambda key, env=env: env.reset(key, env.sample_level(key)))(KEY)
        step, found = jax.jit(env.step), []
        for move in chosen:
            state, ts = step(KEY, state, {"move": jnp.asarray(move, jnp.int32)})
            found.append(ts.reward)
        rewards.append(np.array(found))

    def entropy(moves):
        return -sum(n / len(moves) * math.log2(n / len(moves)) for n in collections.Counter(moves).values())

    for t, player in np.ndindex(chosen.shape):
        made = chosen[: t + 1, player].tolist()
        wanted = 0.02 * (entropy(made[-8:]) - 1) if len(made) > 5 else 0
        np.testing.assert_allclose(rewards[1][t, player] - rewards[0][t, player], wanted, atol=1e-6)

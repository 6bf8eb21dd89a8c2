"""The environment NMMO: it conforms with 128 agents, shows what is there, ends as told, and breaks no law of play."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.base import sample_levels
from minimax_lib.envs.multi_agent import BatchMultiEnv
from minimax_lib.envs.nmmo.looking import view_of
from minimax_lib.envs.nmmo.masks import target_mask
from minimax_lib.envs.nmmo.neighbours import neighbours
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.observation import COLUMNS
from minimax_lib.envs.nmmo.square import spawn_places
from minimax_lib.envs.nmmo.state import Level, unscored
from minimax_lib.envs.nmmo.tables import DIRECTIONS, EVENTS, PASSABLE, STAY
from minimax_lib.envs.nmmo.tasks import members_of, scored, task_list, values
from minimax_lib.envs.spaces import sample_allowed
from minimax_lib.testing.envs import check_multi_agent
from tests.nmmo_recordings import recorded

KEY = jax.random.key(5)
N_TICKS = 120
# Hunger kills slowly here, so that there is time to fight.
NPCS = NMMO(
    preset="mini_npc",
    spawn_immunity=5,
    starvation=5,
    dehydration=5,
    max_steps=N_TICKS,
    horizon_jitter=0.5,
    stop_below=8,
    resilient=0.3,
    health_reward=0.5,
)


@dataclasses.dataclass(frozen=True)
class Compiled(NMMO):
    """The check also resets outside of jit, where each operation would be compiled alone."""

    @functools.partial(jax.jit, static_argnums=0)
    def sample_level(self, key):
        return NMMO.sample_level(self, key)

    @functools.partial(jax.jit, static_argnums=0)
    def reset(self, key, level):
        return NMMO.reset(self, key, level)


@dataclasses.dataclass(frozen=True)
class OnARecordedMap(Compiled):
    """The map is always the same, one of the reference: to draw one takes as long to compile as all the rest."""

    @functools.partial(jax.jit, static_argnums=0)
    def sample_level(self, key):
        k_spawn, k_tasks = jax.random.split(key)
        return Level(
            terrain=jnp.asarray(recorded("reference_maps.npz")["small"][0], jnp.uint8),
            spawn=spawn_places(k_spawn, self.square, self.n_players),
            tasks=jax.random.randint(k_tasks, (self.n_players,), 0, self.n_tasks, jnp.int32),
            sharpness=jnp.ones((), jnp.float32),
        )


HEADS = ["move", "target", "style", "use", "destroy", "give", "give_to", "gold", "gold_to", "sell", "price", "buy"]
CROWD = {"preset": "small", "n_players": 128, "n_npcs": 8, "n_neighbours": 16, "max_steps": 6, "task_set": "stages"}


@pytest.mark.deep  # its program takes half a minute to compile; what follows plays it too
def test_a_world_of_128_agents_conforms():
    check_multi_agent(OnARecordedMap(**CROWD), KEY, n_rows=2)


@pytest.mark.deep
def test_a_world_of_128_agents_conforms_on_random_maps():
    check_multi_agent(Compiled(**CROWD), KEY, n_rows=2)


@jax.jit
def play(key):
    """A world with random valid actions: (first state, last one, what is seen in it, states and time steps [T, ...]).

    It goes on after it is over.
    """

    def one_tick(loop, key):
        state, obs = loop
        k_action, k_step = jax.random.split(key)
        keys = jax.random.split(k_action, NPCS.n_agents)
        action = jax.vmap(lambda key, obs: sample_allowed(NPCS.action_space, key, obs))(keys, obs)
        state, ts = NPCS.step(k_step, state, action)
        # The map stays as it is.
        return (state, ts.obs), (state.replace(level=None, ground=None), ts.replace(obs=None))

    k_level, k_reset, k_ticks = jax.random.split(key, 3)
    state, ts = NPCS.reset(k_reset, NPCS.sample_level(k_level))
    (last, obs), steps = jax.lax.scan(one_tick, (state, ts.obs), jax.random.split(k_ticks, N_TICKS))
    return state, last, obs, steps


@functools.cache
def game(seed: int):
    return jax.device_get(play(jax.random.key(seed)))


def check_laws(first, states, steps):
    """What no rule may break, over all ticks of a world."""
    terrain, alive = np.asarray(first.level.terrain), np.asarray(states.players.alive)
    for entities in (states.players, states.npcs):
        place, there = np.asarray(entities.position), np.asarray(entities.alive)
        assert PASSABLE[terrain[place[..., 0], place[..., 1]]][there].all()
        assert (np.asarray(entities.health) > 0)[there].all()
    stride = np.abs(np.diff(np.asarray(states.players.position), axis=0)).sum(axis=-1)
    assert (stride <= 1).all()
    for stock in (states.players.health, states.players.food, states.players.water):
        assert ((np.asarray(stock) >= 0) & (np.asarray(stock) <= 100)).all()
    assert (alive[1:] <= alive[:-1]).all()
    dead = ~alive
    assert (np.asarray(states.players.cause) > 0)[dead].all()
    assert not np.asarray(states.players.cause)[alive].any()
    # Gold comes into the world with NPCs only: a new one brings at most its level.
    gold = np.asarray(states.players.gold).sum(axis=1) + np.asarray(states.npcs.gold * states.npcs.alive).sum(axis=1)
    npcs = jax.tree.map(np.asarray, states.npcs)
    was_hit = npcs.last_combat[:-1] > 0
    filled = npcs.alive[1:] & (npcs.last_combat[1:] == 0) & (~npcs.alive[:-1] | was_hit)
    assert (np.diff(gold) <= (filled * npcs.level[1:]).sum(axis=1)).all()
    culled = np.asarray(states.players.events)[..., EVENTS.index("AGENT_CULLED")]
    np.testing.assert_array_equal(culled, dead)
    assert (np.asarray(steps.terminated).sum(axis=0) <= 1).all()
    experience = np.diff(np.asarray(states.players.experience), axis=0)
    assert ((experience >= 0) & (experience <= 36)).all()


def test_no_law_is_broken_in_random_play():
    for seed in range(2):
        first, _, _, (states, steps) = game(seed)
        check_laws(first, states, steps)
        facts = {name: x[-1].sum() for name, x in steps.facts.items()}
        for name in ("meals", "drinks", "hits", "explored"):
            assert facts[name] > 0, facts
        deaths = sum(facts[name] for name in facts if name.startswith(("died", "killed")))
        assert deaths == (~states.players.alive[-1]).sum() > 0
        assert states.npcs.alive[11].all()
        assert 0 < first.players.resilient.sum() < NPCS.n_agents


def test_what_is_paid_beside_the_task_is_the_change_of_health():
    _, _, _, (states, steps) = game(0)
    players, ts = jax.tree.map(np.asarray, (states.players, steps))
    task = 1 / N_TICKS  # until the horizon, in every tick
    wanted = task + 0.5 * np.diff(players.health, axis=0) / 100
    lives = ts.playing[1:] & ~ts.terminated[1:]
    np.testing.assert_allclose(ts.reward[1:][lives], wanted[lives], atol=1e-6)
    assert (ts.reward[ts.terminated] == NPCS.death_reward).all()
    assert (ts.reward[~ts.playing] == 0).all()
    assert (wanted[lives] > 0.04).any()  # somebody has recovered


@pytest.mark.deep
def test_no_law_is_broken_in_ten_thousand_ticks():
    for seed in range(100, 184):
        first, _, _, (states, steps) = jax.device_get(play(jax.random.key(seed)))
        check_laws(first, states, steps)


def test_neighbours_are_those_in_reach_then_those_in_view():
    random = np.random.default_rng(0)
    of = jax.jit(neighbours, static_argnums=(2, 3))
    for _ in range(20):
        position, alive = random.integers(0, 24, (70, 2)).astype(np.int32), random.random(70) < 0.8
        near = np.asarray(of(position, alive, 40, 12))
        for k in range(40):
            distance = np.abs(position - position[k]).max(axis=1)
            order = [e for e in range(70) if alive[e] and distance[e] <= 3]
            order += [e for e in range(70) if alive[e] and 3 < distance[e] <= 7]
            wanted = (order + [-1] * 12)[:12] if alive[k] else [-1] * 12
            assert near[k].tolist() == wanted


def observed():
    """A world after 120 ticks of random play, and what its agents see."""
    return game(0)[1:3]


def test_an_agent_sees_the_map_and_its_neighbours():
    state, obs = observed()
    tiles = state.level.terrain - (state.tick < state.ground.ready_at)
    players, near = state.players, state.near
    position = np.concatenate([players.position, state.npcs.position])
    living = np.nonzero(players.alive)[0]
    assert len(living)
    for k in living:
        row, column = players.position[k]
        np.testing.assert_array_equal(obs["tiles"][k, ..., 0], tiles[row - 7 : row + 8, column - 7 : column + 8])
        for slot, entity in enumerate(near[k].tolist()):
            seen = dict(zip(COLUMNS, obs["entities"][k, slot].tolist(), strict=True))
            if entity < 0:
                assert not any(seen.values())
                continue
            assert [seen["row"], seen["column"]] == (position[entity] - players.position[k] + 8).tolist()
            assert seen["attacks_me"] == (entity == players.attacker[k])
            if entity < 24:
                assert (seen["kind"], seen["health"], seen["food"]) == (1, players.health[entity], players.food[entity])
            else:
                npc = entity - 24
                assert (seen["kind"], seen["health"]) == (state.npcs.kind[npc] + 1, state.npcs.health[npc])
                assert seen[("melee", "range", "mage")[state.npcs.style[npc]]] == state.npcs.level[npc]


def test_masks_are_those_of_the_rules():
    state, obs = observed()
    players = state.players
    held = np.asarray(jax.jit(lambda seen, near: target_mask(seen, near, 5, True))(obs["entities"], state.near))
    position = np.concatenate([players.position, state.npcs.position])
    for k in np.nonzero(players.alive)[0]:
        to = players.position[k] + DIRECTIONS
        assert obs["action_mask"]["move"][k].tolist() == PASSABLE[state.level.terrain[to[:, 0], to[:, 1]]].tolist()
        allowed = [
            e >= 0
            and e != k
            and np.abs(position[e] - players.position[k]).max() <= 3
            and (e >= 24 or players.age[e] >= 5)
            for e in state.near[k].tolist()
        ]
        assert obs["action_mask"]["target"][k].tolist() == [*allowed, not any(allowed)]
        assert held[k].tolist() == [*allowed, True]


def test_the_dead_see_nothing():
    state, obs = observed()
    dead = ~state.players.alive
    assert dead.any()
    for path, leaf in jax.tree.leaves_with_path(obs):
        assert not leaf[dead].any()
        assert leaf[~dead].any() or path[0].key in ("pack", "market")  # both may be empty


def test_the_fifty_tasks_and_their_values():
    tasks = task_list("stages", 1024, 80)
    assert len(tasks) == 50
    assert [tasks.name(k) for k in (0, 1, 14, 23, 49)] == [
        "TickGE_50",
        "EAT_FOOD_5",
        "GO_FARTHEST_9",
        "HARVEST_ITEM_15",
        "PLAYER_KILL_10",
    ]
    assert len({tasks.name(k) for k in range(50)}) == 50
    state, _ = observed()
    numbers = np.array([0, 11, 22, *[k % 50 for k in range(21)]], np.int32)

    @jax.jit
    def of(state, numbers):
        view = view_of(state.replace(tick=jnp.int32(20)), NPCS.square, tasks.seizes)
        return values(tasks, numbers, view, members_of(tasks, numbers))

    value = np.asarray(of(state, numbers))
    events = state.players.events
    assert value[0] == np.float32(20 / 50)
    np.testing.assert_allclose(value[1], min(events[1, EVENTS.index("EAT_FOOD")] / 15, 1), rtol=1e-6)
    np.testing.assert_allclose(value[2], min(events[2, EVENTS.index("DRINK_WATER")] / 25, 1), rtol=1e-6)


def test_a_task_pays_its_progress_until_it_is_completed():
    step = jax.jit(scored)
    score, playing = unscored(2), np.array([True, False])
    paid = []
    for value in (0.25, 0.125, 1.0, 0.5, 1.0):
        score, reward = step(score, np.full(2, value, np.float32), playing)
        paid.append(reward.tolist())
    assert paid == [[0.25, 0], [-0.125, 0], [0.875, 0], [0, 0], [0, 0]]
    assert score.best.tolist() == [1, 0]
    assert score.completed.tolist() == [True, False]


def test_settings_that_make_no_world_are_refused():
    cases = [
        ({"preset": "larger"}, "preset"),
        ({"centre": 40}, "centre=40: it must be a multiple of 16"),
        ({"preset": "mini", "n_players": 129}, "places to spawn"),
        ({"preset": "mini", "n_npcs": 4}, "NPCs need combat=True"),
        ({"stop_below": 128}, "stop_below"),
        ({"task_set": "all"}, "task_set"),
        ({"resilient": 1.5}, "between 0 and 1"),
        ({"n_neighbours": 0}, "n_neighbours"),
        ({"fog_speed": 0.5}, "^fog_speed=0.5: there is no fog: set fog_onset, such as 64$"),
        ({"fog_final": 4}, "^fog_final=4: there is no fog: set fog_onset, such as 64$"),
    ]
    for settings, message in cases:
        with pytest.raises(ValueError, match=message):
            NMMO(**settings)


def test_presets_and_what_is_off():
    mini, medium = NMMO(preset="mini"), NMMO()
    assert (medium.n_agents, medium.n_npcs, medium.square.side, medium.max_steps) == (128, 128, 160, 1024)
    assert dict(mini.action_space.items).keys() == {"move"}
    assert list(dict(medium.action_space.items)) == HEADS
    assert list(dict(NMMO(market=False).action_space.items)) == HEADS[:7]
    assert list(dict(NMMO(market=False, items=False).action_space.items)) == HEADS[:3]
    assert (NMMO(preset="competition").n_npcs, NMMO(preset="competition").max_steps) == (256, 1024)
    assert dataclasses.replace(mini, task_set="stages").task_name(11) == "EAT_FOOD_15"
    state = jax.eval_shape(lambda key: mini.reset(key, mini.sample_level(key))[0], KEY)
    assert all(x.size == 0 for x in jax.tree.leaves(state.npcs))
    world = jax.eval_shape(lambda key: medium.reset(key, medium.sample_level(key))[0], KEY)
    assert sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(world)) < 0.3 * 2**20


def test_a_world_ends_by_its_horizon_or_when_few_live():
    for seed in range(2):
        first, _, _, (states, steps) = game(seed)
        assert N_TICKS / 2 <= first.horizon <= N_TICKS
        alive, end = states.players.alive, int(np.argmax(steps.over))
        few = alive.sum(axis=1) <= NPCS.stop_below
        np.testing.assert_array_equal(steps.over, few | (states.tick >= first.horizon))
        np.testing.assert_array_equal(
            steps.terminated, np.concatenate([first.players.alive[None], alive[:-1]]) & ~alive
        )
        np.testing.assert_array_equal(steps.truncated, alive & steps.over[:, None])
        assert steps.over[end]
        assert (steps.reward[steps.terminated] == -1).all()
        assert not steps.reward[~steps.playing].any()


@pytest.mark.deep
def test_a_batch_begins_its_worlds_again():
    env = NMMO(preset="mini", max_steps=3)
    batch = BatchMultiEnv(env)

    @jax.jit
    def run(key):
        def one_step(state, key):
            state, ts = batch.step(key, state, {"move": jnp.full((1, 2 * env.n_agents), STAY, jnp.int32)})
            return state, (state.env.tick, state.env.players.age, ts.obs["tiles"])

        first, _ = batch.reset(key, sample_levels(env, key, 2))
        return first, jax.lax.scan(one_step, first, jax.random.split(key, 5))[1]

    first, (tick, age, tiles) = jax.device_get(run(KEY))
    assert tick.tolist() == [[1, 1], [2, 2], [0, 0], [1, 1], [2, 2]]
    assert (age == tick[:, :, None]).all()
    assert tiles.shape == (5, 1, 2 * 24, 15, 15, 1)
    row, column = first.env.level.spawn[1, 0]
    shown = first.env.level.terrain[1, row - 7 : row + 8, column - 7 : column + 8]
    np.testing.assert_array_equal(tiles[2, 0, 24, ..., 0], shown)

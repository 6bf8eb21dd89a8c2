"""Every method in a world that is hard to learn from: long episodes, odd rewards, and nobody ever succeeds.

A rollout has 10 steps and an episode 40. The level decides what is paid, so that one program of a method sees it all:

    COSTLY    every step costs 0.1
    DEADLY    every step pays 1, and the agent dies after 25 of them, which is not a success
    LARGE     every move pays 100
    BARREN    nothing is ever paid
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula.base import SOURCE_NAMES
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.wrappers import Wrapper
from minimax_lib.runners.build import make_program
from minimax_lib.runners.seeds import SeedRunner, learnt_parameters
from tests.test_methods import numbers, series, trained
from tests.zoo import GAME, MAZE, METHODS, N_SEEDS, PENDULUM, VARIANTS, WORLDS, Step, config_of, stepped

pytestmark = pytest.mark.deep

N_STEPS, LIMIT, DEATH = 10, 40, 25
COSTLY, DEADLY, LARGE, BARREN = range(4)
LENGTHS = np.array([LIMIT, DEATH, LIMIT, LIMIT])  # of an episode, by the kind of its level
LOWEST = np.array([-0.1 * LIMIT, DEATH, 0.0, 0.0])  # return of an episode, by the kind of its level
HIGHEST = np.array([-0.1 * LIMIT, DEATH, 100.0 * LIMIT, 0.0])
FACTS = ("costly", "deadly", "large")


def facts_of(kind: jax.Array) -> dict[str, jax.Array]:
    """Which kind a level is of, as facts of its episodes."""
    return {name: (kind == i).astype(jnp.float32) for i, name in enumerate(FACTS)}


def paid(kind: jax.Array, moved: jax.Array) -> jax.Array:
    """The reward of a step."""
    return jnp.where(kind == LARGE, 100.0 * moved, jnp.array([-0.1, 1.0, 0.0, 0.0], jnp.float32)[kind])


@dataclasses.dataclass(frozen=True)
class Hard(Wrapper):
    """A world in which only these rewards count. The fact `moves` is the number of moves that were paid."""

    kind: Callable[[Any], Any] = lambda level: level.agent_dir
    moved: Callable[[Any, Any], Any] = lambda before, after: (before.agent_pos != after.agent_pos).any()

    def opened(self, state, ts):
        return jnp.zeros((), jnp.float32), self._told(jnp.zeros((), jnp.float32), state, ts)

    def stepped(self, own, before, state, ts):
        kind = self.kind(state.level)
        moved = self.moved(before, state).astype(jnp.float32)
        moves = own + moved * (kind == LARGE)
        died = (kind == DEADLY) & (state.time >= DEATH)
        return moves, self._told(moves, state, ts).replace(reward=paid(kind, moved), terminated=died)

    def _told(self, moves, state, ts):
        facts = facts_of(self.kind(state.level)) | {"moves": moves}
        return ts.replace(progress=jnp.zeros((), jnp.float32), facts=facts)


def kind_of_mass(level: Any) -> Any:
    """The kind of a pendulum: masses are from 0.5 to 1.5."""
    return (4 * (level.mass - 0.5)).astype("int32").clip(0, 3)


def sped_up(before: Any, after: Any) -> Any:
    """A pendulum's speed has grown. Half of the time it does."""
    return after.speed > before.speed


class HardTag(LaserTag):
    """A game with these rewards, for both agents. Nobody wins but by more moves."""

    def step(self, key, state, action):
        before, (state, ts) = state.position, super().step(key, state, action)
        kind = state.level.facings[0]
        moved = (before != state.position).any(axis=1).astype(jnp.float32)
        over = (state.time >= LIMIT) | ((kind == DEADLY) & (state.time >= DEATH))
        everybody = jnp.ones(2, bool)
        return state, ts.replace(
            reward=jnp.broadcast_to(paid(kind, moved), (2,)),
            terminated=everybody & over & (state.time < LIMIT),
            truncated=everybody & (state.time >= LIMIT),
            over=over,
            progress=jnp.zeros(2, jnp.float32),
            facts=self._facts(kind),
        )

    def reset(self, key, level):
        state, ts = super().reset(key, level)
        return state, ts.replace(facts=self._facts(level.facings[0]))

    def _facts(self, kind):
        return {name: jnp.broadcast_to(fact, (2,)) for name, fact in facts_of(kind).items()}


LONG = {"max_steps": LIMIT}
# In turn, a row has 80 steps for its three levels: enough for two of 40 steps, or two and a part of the third.
IN_TURN = {"levels_per_row": 3, "rollouts_per_batch": 8, "robust": False}
CASES = [*METHODS, *VARIANTS, "in turn"]
GAMES = ("selfplay", "maestro")
GOES_ON = ("dr", "tasks", "episode_plr", "box")
RESTARTS = [method for method in CASES if method not in GOES_ON]
# Where the buffer of a state is.
BUFFERS: dict[str, Callable[[Any], Any]] = dict.fromkeys(
    ["plr", "plain plr", "parallel plr", "parallel accel", "repaired", "episode_plr", "in turn"], lambda s: s.buffer
) | {"accel": lambda s: s.inner.buffer, "selfplay": lambda s: s.levels.buffer, "maestro": lambda s: s.buffers}


@functools.cache
def program_of(method: str) -> SeedRunner:
    """The method's small runner in its hard world."""
    name, runner = ("plr", METHODS["plr"] | IN_TURN) if method == "in turn" else (method, {})
    if name == "ncc":
        runner = {"score": "learnability"}  # the hard world does not know its highest return
    world = {"box": PENDULUM | LONG, "selfplay": GAME | LONG, "maestro": GAME | LONG}.get(name, MAZE | LONG)
    config = config_of(name, runner | {"n_steps": N_STEPS}, env=world, n_updates=320)
    env = config.env
    if name in GAMES:
        hard: Any = HardTag(**{field.name: getattr(env, field.name) for field in dataclasses.fields(env)})
    else:
        hard = Hard(env, kind_of_mass, sped_up) if name == "box" else Hard(env)
    return make_program(dataclasses.replace(config, env=hard))


@functools.cache
def steps_of(method: str) -> tuple[Step, ...]:
    """The first 16 steps of the runner: four episodes where they go on, else 16 batches."""
    steps = stepped(program_of(method), 16)
    assert program_of(method)._run._cache_size() == 1
    return steps


def kinds_of(method: str, levels: Any) -> np.ndarray:
    """The kinds of levels on the host."""
    if method in GAMES:
        return np.asarray(levels.facings)[..., 0]
    return np.asarray(kind_of_mass(levels) if WORLDS.get(method) is PENDULUM else levels.agent_dir)


@pytest.mark.parametrize("method", CASES)
def test_students_learn_and_every_number_stays_finite(method):
    """Losses, students and teachers are finite, although returns reach 4000. A batch teaches all students or none."""
    steps, runner = steps_of(method), program_of(method).runner
    assert runner.continues == (method in GOES_ON)
    assert runner.n_rollouts == (1 if runner.continues else 8 if method == "in turn" else LIMIT // N_STEPS)
    learns = trained(steps)
    assert learns.sum() >= 3
    for step, learnt in zip(steps, learns, strict=True):
        assert not step.report.nonfinite.any()
        assert not step.report.broken_curriculum.any()
        more = step.after.students.n_updates - step.before.students.n_updates
        assert (more == learnt * runner.n_rollouts).all()
        pairs = zip(numbers(step.before.students.params), numbers(step.after.students.params), strict=True)
        moved = np.any([(a != b).reshape(N_SEEDS, -1).any(axis=1) for a, b in pairs], axis=0)
        assert (moved == learnt).all()
        assert all(
            np.isfinite(x).all() for x in numbers((step.after.students, learnt_parameters(step.after.curriculum)))
        )
    assert (steps[-1].after.clock == len(steps)).all()


@pytest.mark.parametrize("method", CASES)
def test_a_metric_is_missing_only_where_there_is_nothing_to_measure(method):
    """Each NaN has its reason: nothing learnt, no such levels, no episode that ended. Elsewhere there is none."""
    steps = steps_of(method)
    for step, learns in zip(steps, trained(steps), strict=True):
        metrics = step.report.metrics
        ended = metrics["episodes"] > 0
        for name, values in metrics.items():
            known, (first, *rest) = np.isfinite(values), name.split("/")
            if name in LOSSES:
                assert (known == learns).all(), name
            elif rest and first == "level" and method in GOES_ON:
                assert not np.isinf(values).any(), name  # levels that have begun: none may have
            elif rest and first == "level":
                assert (known == np.isfinite(metrics[f"level/{rest[0]}/return"])).all(), name
            elif method in GOES_ON and (name in ("return", "solved_rate", *RESULTS) or name.startswith(OF_EPISODES)):
                assert (known == ended).all(), name
            elif method == "repaired" and first == "teacher":
                assert (known == np.isfinite(metrics["level/new/return"])).all(), name
            elif first == "opponents" and name != "opponents/copies":
                assert not np.isinf(values).any(), name
            elif first == "traced":
                assert not np.isinf(values).any(), name  # levels that were played twice: there may be none yet
            elif first == "buffer" and rest[0].startswith("score_"):
                assert (known == (metrics["buffer/fill"] > 0)).all(), name
            else:
                assert known.all(), name
        if method in RESTARTS:
            assert any(np.isfinite(metrics.get(f"level/{name}/return", np.nan)).all() for name in SOURCE_NAMES)


LOSSES = (
    "loss",
    "grad_norm",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
)
RESULTS = ("tasks/score", "tasks/length")
OF_EPISODES = ("facts/", "tasks/point/")


def under_way(method: str, state: Any) -> tuple[np.ndarray, np.ndarray]:
    """(the kind of the level that each row is on, the steps that it has taken there), both [S, R]."""
    env = state.start.state.env.env
    return kinds_of(method, env.level), np.asarray(env.time)


@pytest.mark.parametrize("method", GOES_ON)
def test_episodes_that_go_on_end_when_their_time_is_up(method):
    """Which rows end in a rollout follows from their levels and clocks before it, and so does how often."""
    steps, total = steps_of(method), 0
    for before, step in zip((None, *steps), steps, strict=False):
        metrics = step.report.metrics
        if before is None:
            assert (metrics["episodes"] == 0).all()
            continue
        kinds, times = under_way(method, step.before)
        left = LENGTHS[kinds] - times
        assert ((left > 0) & (times % 5 == 0)).all()
        ends = left <= N_STEPS
        np.testing.assert_array_equal(metrics["episodes"], ends.sum(axis=1))
        kinds_after, times_after = under_way(method, step.after)
        np.testing.assert_array_equal(times_after, np.where(ends, N_STEPS - left, times + N_STEPS))
        np.testing.assert_array_equal(kinds_after[~ends], kinds[~ends])
        total += ends.sum()
        for seed in np.flatnonzero(ends.any(axis=1)):
            ended = kinds[seed][ends[seed]]
            for i, name in enumerate(FACTS):
                assert metrics[f"facts/{name}"][seed] == pytest.approx((ended == i).mean(), abs=1e-6)
            if "tasks/length" in metrics:
                assert metrics["tasks/length"][seed] == pytest.approx(LENGTHS[ended].mean(), rel=1e-6)
    assert total >= 4 * N_SEEDS * 3  # three or more in each row


@pytest.mark.parametrize("method", RESTARTS)
def test_a_batch_holds_the_first_episode_of_each_row(method):
    """A batch has 40 steps: every row ends one episode, of 25 or 40 steps, and none ends a second one."""
    runner = program_of(method).runner
    for step in steps_of(method):
        metrics = step.report.metrics
        assert (metrics["unfinished"] == 0).all()
        if method == "in turn":  # 80 steps: two of 40, or three of 25, or what lies between
            assert (2 * runner.n_rows <= metrics["episodes"]).all()
            assert (metrics["episodes"] <= 3 * runner.n_rows).all()
        else:
            np.testing.assert_array_equal(metrics["episodes"], runner.n_rows)
        for name in SOURCE_NAMES:
            assert np.nan_to_num(metrics.get(f"level/{name}/unfinished", 0.0)).max() == 0
    assert program_of(method).env_steps(steps_of(method)[-1].after)[0] >= 16 * runner.env_steps_per_step


@pytest.mark.parametrize("method", CASES)
def test_returns_are_what_the_rewards_add_up_to_and_nobody_succeeds(method):
    """A mean return is that of the kinds and moves which the same episodes report; a positive one is not a success."""
    n_known = 0
    for step in steps_of(method):
        metrics = step.report.metrics
        for name, values in metrics.items():
            if name.endswith("solved_rate"):
                assert (np.isnan(values) | (values == 0)).all(), name
        costly, deadly, large = (metrics[f"facts/{name}"] for name in FACTS)
        known = np.isfinite(metrics["return"])
        n_known += known.sum()
        certain = (-0.1 * LIMIT * costly + DEATH * deadly)[known]
        if method in GAMES:
            most = certain + 100 * LIMIT * large[known]
            assert ((metrics["return"][known] >= certain - 1e-3) & (metrics["return"][known] <= most + 1e-3)).all()
        else:
            moves = metrics["facts/moves"][known]
            assert ((moves >= 0) & (moves <= LIMIT * large[known] + 1e-4)).all()
            np.testing.assert_allclose(metrics["return"][known], certain + 100 * moves, rtol=1e-4, atol=1e-3)
        if "regret" in metrics:
            assert ((metrics["regret"] >= 0) & (metrics["regret"] <= 100 * LIMIT * large)).all()
    assert n_known >= 8
    assert any((step.report.metrics["facts/large"] > 0).any() for step in steps_of(method))


@pytest.mark.parametrize("method", BUFFERS)
def test_a_buffer_knows_the_best_return_of_each_level(method):
    """It is the one return that the kind allows; of large rewards, a number of moves. All scores are finite."""
    seen = set()
    for step in steps_of(method):
        buffer = BUFFERS[method](step.after.curriculum)
        filled = np.asarray(buffer.filled)
        kinds, best = kinds_of(method, buffer.levels)[filled], np.asarray(buffer.best_returns)[filled]
        scores = np.asarray(buffer.scores)
        seen |= set(kinds.tolist())
        assert np.isfinite(scores[filled]).all()
        assert (scores[~filled] == -np.inf).all()
        assert (best >= LOWEST[kinds] - 1e-4).all()
        assert (best <= HIGHEST[kinds] + 1e-4).all()
        assert (best[kinds == LARGE] % 100 == 0).all()
        if method == "repaired":  # the regret of two students who are paid the same
            assert (scores[filled][kinds != LARGE] == 0).all()
            assert (scores[filled] <= 100 * LIMIT).all()
    assert seen == {COSTLY, DEADLY, LARGE, BARREN}


BATCHES = ["plr", "accel", "plain plr", "parallel plr", "parallel accel", "repaired", "selfplay", "in turn"]


@pytest.mark.parametrize("method", BATCHES)
def test_levels_age_by_the_levels_that_were_begun(method):
    """A level that was not played is older by the batch, and its score is the old one. The played ones are young."""
    n, compared = program_of(method).runner.curriculum.plan.n_rows, 0
    for step in steps_of(method):
        old, new = (BUFFERS[method](state.curriculum) for state in (step.before, step.after))
        stays = old.filled & (old.fingerprints == new.fingerprints).all(axis=-1)
        for seed in range(N_SEEDS):
            ages, before = new.ages[seed], old.ages[seed]
            older = ages[stays[seed]] - before[stays[seed]]
            if method == "in turn":  # of three levels of a row, two are begun, or all
                if not (older > 0).any():
                    continue
                n = older.max()
                assert 2 * 4 <= n <= 3 * 4
            unplayed = stays[seed] & (ages == before + n)
            young = new.filled[seed] & ~unplayed
            assert (ages[young] < n).all()
            assert young.sum() <= n
            assert young.any() or step.report.metrics["replay_share"][seed] == 0  # new ones may score too low to stay
            np.testing.assert_array_equal(new.scores[seed][unplayed], old.scores[seed][unplayed])
            compared += unplayed.sum()
    assert compared > 10


def test_levels_in_turn_are_scored_where_their_first_episode_is_sure_to_end():
    """Of 80 steps, those that begin in the first 40 count: two in each row, whatever the levels are."""
    step = steps_of("in turn")[0]
    assert (step.after.curriculum.buffer.filled.sum(axis=1) == 2 * 4).all()


def test_levels_of_episodes_that_go_on_age_by_the_episodes_that_begin():
    """episode_plr: a level is as old as the number of episodes that have begun since its own last one did."""
    compared = n_replayed = 0
    for step in steps_of("episode_plr")[1:]:
        old, new = (state.curriculum.buffer for state in (step.before, step.after))
        stays = old.filled & (old.fingerprints == new.fingerprints).all(axis=-1)
        kinds, times = under_way("episode_plr", step.before)
        left = LENGTHS[kinds] - times
        for seed in range(N_SEEDS):
            ended = sorted((left[seed, row], row) for row in range(4) if left[seed, row] <= N_STEPS)
            ages = old.ages[seed] + len(ended)
            for i, (_, row) in enumerate(ended):  # each is followed by the level that the row is on now
                slot = step.after.curriculum.slots[seed, row]
                if slot >= 0:
                    ages[slot] = len(ended) - 1 - i
                    n_replayed += 1
            np.testing.assert_array_equal(new.ages[seed][stays[seed]], ages[stays[seed]])
            compared += stays[seed].sum()
            assert (new.ages[seed][~stays[seed]] == 0).all()
    assert compared > 10
    assert n_replayed > 2


def test_nothing_is_learnable_where_nobody_succeeds():
    """sfl: p (1 - p) is 0 on every level. A scoring takes 8 episodes of 25 or 40 steps on each of 16 levels."""
    program, steps = program_of("sfl"), steps_of("sfl")
    for i, step in enumerate(steps):
        assert (step.after.curriculum.learnability == 0).all()
        took = step.report.metrics["sfl/scoring_steps"]
        assert ((took > 0) == (i % 4 == 0)).all()
        shorter = 16 * 8 * LIMIT - took[took > 0]
        assert (shorter % (8 * (LIMIT - DEATH)) == 0).all()  # whole levels on which the agent dies
        assert (shorter <= 16 * 8 * (LIMIT - DEATH)).all()
    extra = sum(step.report.metrics["sfl/scoring_steps"].astype(int) for step in steps)
    np.testing.assert_array_equal(program.env_steps(steps[-1].after), 16 * 4 * LIMIT + extra)


def test_a_teacher_is_paid_for_every_design():
    """paired: all of them have been played to an end, and the payment is the regret, 0 where nobody could earn more."""
    for step in steps_of("paired"):
        metrics = step.report.metrics
        assert (metrics["teacher/unpaid"] == 0).all()
        np.testing.assert_allclose(metrics["teacher/reward"], metrics["regret"], rtol=1e-5, atol=1e-6)
        assert (metrics["regret"][metrics["facts/large"] == 0] == 0).all()
    assert (series(steps_of("paired"), "regret") > 0).any()


def test_a_task_has_a_score_once_an_attempt_at_it_has_ended():
    """tasks: which were attempted follows from the clocks of the rows. All others have none."""
    steps = steps_of("tasks")
    seen = np.zeros((N_SEEDS, 16), bool)
    for before, step in zip((None, *steps), steps, strict=False):
        if before is not None:
            kinds, times = under_way("tasks", step.before)
            for seed, row in np.argwhere(LENGTHS[kinds] - times <= N_STEPS):
                seen[seed, step.before.curriculum.current[seed, row]] = True
        core = step.after.curriculum.core
        np.testing.assert_array_equal(core.seen, seen)
        assert np.isfinite(core.scores).all()
        assert ((core.scores != 0) == seen).all()
    assert 4 < seen.sum() / N_SEEDS <= 16


@pytest.mark.parametrize("method", GAMES)
def test_every_row_ends_one_game_and_only_moves_win_it(method):
    """Both agents are paid the same but for moves: a game is a draw unless these are paid."""
    for step in steps_of(method):
        metrics = step.report.metrics
        assert (metrics["games/ended"] == 4).all()
        assert (metrics["games/drawn"] >= 1 - metrics["facts/large"] - 1e-6).all()
        assert (metrics["games/won"] <= metrics["facts/large"] + 1e-6).all()
        assert (metrics["games/won"] + metrics["games/drawn"] <= 1).all()
        held = step.after.curriculum.bank.record
        assert ((held.n_games.sum(axis=1) > 0) & (held.n_games.sum(axis=1) % 4 == 0)).all()


def test_a_box_goes_on_with_normalised_rewards():
    """box: the moments of returns that reach 4000 are finite, and have counted every step of every row."""
    steps = steps_of("box")
    for i, step in enumerate(steps):
        moments = step.after.rewards.moments
        assert np.isfinite(moments.mean).all()
        assert (moments.variance > 0).all()
        np.testing.assert_allclose(moments.count[:, 0], (i + 1) * 4 * N_STEPS, rtol=1e-5)

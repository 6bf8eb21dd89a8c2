"""Training on a list of tasks, against a plain Python model of what is drawn, scored and remembered."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.levels.episode_replay import EpisodePLR, EpisodeReplay, rescored
from minimax_lib.curricula.scores import SCORES
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.restarts import LevelQueue, QueuedLevels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.envs.wrappers import TimeLimit
from minimax_lib.playing.schedule import Flowing
from minimax_lib.runners.build import runner_of, trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.tasks import Results
from minimax_lib.tasks.registry import (
    ListedPLRSettings,
    OmniLearnabilitySettings,
    TSCLSettings,
    UniformSettings,
)
from minimax_lib.testing.curricula import small_agent
from tests.still_agent import still_agent

N_LEVELS, N_ROWS, N_STEPS, N_UPDATES = 12, 4, 5, 9
PLR = ListedPLRSettings(temperature=0.5, staleness=0.4)


@struct.dataclass
class Numbered:
    number: jax.Array


@struct.dataclass
class Countdown:
    level: Numbered
    clock: jax.Array


def length_of(number):
    """1 to 11 steps: some episodes outlast a rollout or two."""
    return 1 + number * 7 % 11


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """Level i lasts as long as `length_of` says. Each step of it pays i / 10."""

    max_steps: int = 11
    resets_in_groups: bool = False
    observation_space = Box(0, 200, (2,))
    action_space = Discrete(2)

    def sample_level(self, key):
        return Numbered(number=jnp.zeros((), jnp.int32))

    def sample_listed(self, key, number):
        return Numbered(number=number)

    def reset(self, key, level):
        state = Countdown(level=level, clock=jnp.zeros((), jnp.int32))
        return state, opening(self.look(state))

    def step(self, key, state, action):
        state = state.replace(clock=state.clock + 1)
        over = state.clock >= length_of(state.level.number)
        return state, transition(self.look(state), state.level.number / 10.0, over, jnp.zeros((), bool))

    def look(self, state):
        return jnp.stack([state.level.number, state.clock]).astype(jnp.float32)

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {"parity": (level.number % 2).astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class GroupedLine(Line):
    resets_at_once: int = 2


@dataclasses.dataclass(frozen=True)
class EndlessLine(Line):
    """Its random levels are all different."""

    def sample_level(self, key):
        return Numbered(number=jax.random.randint(key, (), 1, 2**20, jnp.int32))


@dataclasses.dataclass(frozen=True)
class MeasuredLine(EndlessLine):
    """It tells how long its levels take."""

    def level_metrics(self, level):
        return {"length": length_of(level.number).astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class UnsteadyLine(EndlessLine):
    """The second action costs something. So a level's return is not always the same."""

    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, ts.replace(reward=ts.reward - 20.0 * action)


@dataclasses.dataclass(frozen=True)
class Spy(Curriculum):
    """Remembers what it handed out last, and what came back."""

    inner: Any

    @property
    def plan(self):
        return self.inner.plan

    def init(self, key):
        n, t = self.inner.n_rows, self.inner.n_steps
        number, real = jnp.zeros((t, n), jnp.int32), jnp.zeros((t, n), jnp.float32)
        steps = {"task": number, "done": jnp.zeros((t, n), bool), "episode_return": real, "quantity": real}
        return self.inner.init(key), jnp.zeros((n, t + 1), jnp.int32), steps

    def propose(self, shared_key, key, clock, state, students):
        inner, batch = self.inner.propose(shared_key, key, clock, state[0], students)
        return (inner, batch.queue.numbers, state[2]), batch

    def observe(self, key, clock, state, batch, outcome):
        inner, metrics = self.inner.observe(key, clock, state[0], batch, outcome)
        seen = outcome.steps(self.inner.score)
        seen = seen.replace(task=batch.queue.table.number[seen.task])
        return (inner, state[1], {name: getattr(seen, name) for name in state[2]}), metrics


def spied(core, n_devices=1, tail="stitch"):
    """A program of one seed whose curriculum is spied on; `n_devices` share its rows and its list."""
    env = Line()
    settings = TasksMethod(n_parallel=N_ROWS, n_steps=N_STEPS, n_levels=N_LEVELS, core=core, tail=tail, share="parity")
    settings = settings.per_device(n_devices)
    agent = still_agent(env)
    curriculum = Spy(settings.build(env, agent, settings.n_parallel))
    runner = runner_of(env, agent, curriculum, N_STEPS, Flowing())
    return SeedRunner(runner, 1) if n_devices == 1 else DeviceRunner(runner, 1, DeviceMesh(n_rows=n_devices))


def device_states(state, n_devices):
    """The curriculum's state on each device, of the first seed."""
    take = (lambda i: lambda x: np.asarray(x)[0, i]) if n_devices > 1 else (lambda i: lambda x: np.asarray(x)[0])
    keys_left = jax.tree.map(lambda x: x, state.curriculum)
    return [jax.tree.map(take(i), keys_left) for i in range(n_devices)]


class PlainTasks:
    """One device's list, one step after another."""

    def __init__(self, first, n_tasks, current, tail, score):
        n = len(current)
        self.first, self.n_tasks, self.tail, self.score, self.best = first, n_tasks, tail, score, {}
        self.current, self.parts, self.returns = list(current), [[] for _ in range(n)], np.zeros(n)
        self.scores, self.last, self.n_begun = {}, {}, 0
        for task in current:
            self.begin(task)

    def begin(self, task):
        self.n_begun += 1
        self.last[task] = self.n_begun

    def rollout(self, queues, steps):
        """Checks what was played, and remembers its scores."""
        places = [0] * len(self.current)
        assert [queue[0] for queue in queues] == self.current
        written = []
        for t in range(N_STEPS):
            for row, task in enumerate(self.current):
                assert steps["task"][t, row] == task
                self.returns[row] += task / 10
                self.parts[row].append(steps["quantity"][t, row])
                np.testing.assert_allclose(steps["episode_return"][t, row], self.returns[row], rtol=1e-5)
                length = round(self.returns[row] * 10 / task) if task else None
                assert steps["done"][t, row] == (length_of(task) == length if task else True)
                if steps["done"][t, row]:
                    self.best[task] = self.returns[row]  # it is always the same
                if steps["done"][t, row] or (self.tail == "write" and t == N_STEPS - 1):
                    if self.score != "max_mc":
                        written.append((task, np.mean(self.parts[row])))
                    elif task in self.best:
                        written.append((task, self.best[task] + np.mean(self.parts[row])))
                if steps["done"][t, row]:
                    places[row] += 1
                    self.current[row], self.parts[row], self.returns[row] = queues[row][places[row]], [], 0
                    self.begin(self.current[row])
        if self.tail == "write":
            self.parts = [[] for _ in self.parts]
        self.scores |= dict(written)  # of several scores of one task, the last counts

    def weights(self):
        """Rank prioritisation with temperature .5 and staleness .4, in float64 (Jiang et al. 2021a, eq. 1 to 3)."""
        seen = sorted(self.scores)
        if not seen:
            return [1 / self.n_tasks] * self.n_tasks
        by_score = {task: 1 / (1 + rank) ** 2 for rank, task in enumerate(sorted(seen, key=lambda i: -self.scores[i]))}
        ages = {task: self.n_begun - self.last[task] for task in seen}
        total_age = sum(ages.values())
        share = 0.4 if total_age else 0.0
        mixed = {
            task: (1 - share) * by_score[task] / sum(by_score.values()) + share * ages[task] / max(total_age, 1)
            for task in seen
        }
        return [mixed.get(self.first + i, 0.0) for i in range(self.n_tasks)]


@pytest.mark.parametrize(
    ("n_devices", "tail", "score"),
    [
        (1, "stitch", "l1_value_loss"),
        pytest.param(1, "write", "max_mc", marks=pytest.mark.deep),
        pytest.param(4, "stitch", "l1_value_loss", marks=pytest.mark.deep),
    ],
)
def test_a_run_is_that_of_the_plain_model(n_devices, tail, score):
    program = spied(dataclasses.replace(PLR, score=score), n_devices, tail)
    state, n_local = program.init(0), N_LEVELS // n_devices
    before = device_states(state, n_devices)
    weights_of = jax.jit(program.runner.curriculum.inner.core.weights)
    models = [PlainTasks(i * n_local, n_local, s[0].current + i * n_local, tail, score) for i, s in enumerate(before)]
    for n in range(N_UPDATES):
        state, report = program.run(state, n + 1)
        for i, (model, (tasks, queues, steps)) in enumerate(zip(models, device_states(state, n_devices), strict=True)):
            assert queues.min() >= i * n_local
            assert queues.max() < (i + 1) * n_local
            model.rollout(queues, steps)
            known = tasks.core
            assert set(np.flatnonzero(known.seen) + i * n_local) == set(model.scores)
            for task, score in model.scores.items():
                np.testing.assert_allclose(known.scores[task - i * n_local], score, rtol=2e-5, atol=1e-6)
            np.testing.assert_array_equal(tasks.current + i * n_local, model.current)
            np.testing.assert_allclose(weights_of(known), model.weights(), rtol=1e-4, atol=1e-6)
    assert len(models[0].scores) > 1
    shares = [float(report.metrics[f"tasks/share/parity_{i}"][0]) for i in (0, 1)]
    assert sum(shares) == pytest.approx(1, abs=1e-5)
    if n_devices == 1:  # on a mesh, JAX counts a program twice once its input is its own output
        assert program._run._cache_size() == 1


@pytest.mark.deep
@pytest.mark.parametrize("core", [UniformSettings(), TSCLSettings()], ids=["uniform", "tscl"])
def test_the_baselines_go_through_the_whole_list(core):
    program = spied(core)
    state, seen = program.init(0), set()
    for n in range(40):
        state, _ = program.run(state, n + 1)
        seen |= set(np.asarray(state.curriculum[2]["task"]).ravel().tolist())
    assert seen == set(range(N_LEVELS))


@pytest.mark.deep
def test_a_seed_trains_as_if_it_were_alone():
    env = Line()
    runner = trained_with(env, small_agent(env), TasksMethod(n_parallel=2, n_steps=N_STEPS, n_levels=6))
    both, alone = SeedRunner(runner, 2), SeedRunner(runner, 1)
    two, _ = both.run(both.init(3), 6)
    one, _ = alone.run(alone.init(4), 6)
    np.testing.assert_array_equal(two.curriculum.core.seen[1], one.curriculum.core.seen[0])
    np.testing.assert_array_equal(two.curriculum.current[1], one.curriculum.current[0])
    np.testing.assert_allclose(two.curriculum.core.scores[1], one.curriculum.core.scores[0], rtol=1e-3, atol=1e-5)


@pytest.mark.deep
def test_a_resumed_run_is_the_same_run():
    env = Line()
    program = SeedRunner(trained_with(env, small_agent(env), TasksMethod(n_parallel=2, n_steps=3, n_levels=6)), 1)
    whole, _ = program.run(program.init(0), 6)
    half, _ = program.run(program.init(0), 3)
    rest, _ = program.run(half, 6)
    for a, b in zip(jax.tree.leaves(whole.curriculum), jax.tree.leaves(rest.curriculum), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("env", [Line(), GroupedLine()], ids=["all rows", "groups"])
def test_rows_go_through_their_queues(env):
    queues = np.random.default_rng(0).integers(1, 7, size=(3, 4))
    batch = BatchEnv(env, n_students=2, restart=QueuedLevels())
    table = Numbered(number=np.arange(7, dtype=np.int32))
    queues = queues.astype(np.int32)

    @jax.jit
    def begun(key, queues):
        state, _ = batch.reset(key, Numbered(number=queues[:, 0]))
        return batch.with_queue(state, LevelQueue(table=table, numbers=queues))

    @jax.jit
    def step(key, state):
        after, ts = batch.step(key, state, jnp.zeros((2, 3), jnp.int32))
        return batch.numbers(state), batch.levels(state).number, after, ts.done

    state = begun(jax.random.key(0), queues)
    place, clock = np.zeros(3, int), np.zeros(3, int)
    for _ in range(40):
        on = queues[np.arange(3), place % 4]
        numbers, levels, state, ended = step(jax.random.key(1), state)
        np.testing.assert_array_equal(numbers, np.stack([on, on]))
        np.testing.assert_array_equal(levels, np.stack([on, on]))
        clock += 1
        done = clock >= length_of(on)
        np.testing.assert_array_equal(ended, np.stack([done, done]))
        place, clock = place + done, np.where(done, 0, clock)
    assert place.max() > 4  # some row has come round to the beginning of its queue


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"core": ListedPLRSettings(score="neg_return")},
            r"runner.core.score is 'neg_return': it must be a mean .*gae",
        ),
        (
            {"core": ListedPLRSettings(score="max_mc"), "normalize_rewards": True},
            "runner.normalize_rewards is True: the score 'max_mc' compares returns with values",
        ),
        ({"share": "walls"}, "unknown runner.share 'walls': choose from .*n_walls"),
        ({"n_levels": 2**30}, r"runner.n_levels is 1073741824: it must be at most \d+"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message):
    env = AMaze(height=3, width=3, n_walls=2, max_steps=6)
    with pytest.raises(ValueError, match=message):
        trained_with(env, small_agent(env), TasksMethod(n_parallel=2, n_steps=4, **changes))


def test_other_settings_are_refused_where_they_are_made():
    with pytest.raises(ValueError, match=r"unknown runner.tail 'stich': .*did you mean 'stitch'"):
        TasksMethod(tail="stich")
    with pytest.raises(ValueError, match=r"runner.n_levels is 0"):
        TasksMethod(n_levels=0)
    with pytest.raises(ValueError, match=r"runner.n_levels is 10, which 4 devices cannot share equally \(try 8\)"):
        TasksMethod(n_levels=10).per_device(4)
    with pytest.raises(ValueError, match=r"runner.max_score_coef is 2: it must be between 0 and 1"):
        TasksMethod(max_score_coef=2)


def test_attempts_are_scored_as_the_settings_say():
    settings = TasksMethod(n_levels=3, tail="write", max_score_coef=0.25)
    scoring = settings.build(Line(), small_agent(Line()), N_ROWS).scoring
    assert (scoring.tail, scoring.max_score_coef) == ("write", 0.25)


@dataclasses.dataclass(frozen=True)
class NamedLine(Line):
    def task_name(self, number):
        return f"line_{number}"


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TimeLimit(env, 9)], ids=["plain", "wrapped"])
def test_files_call_tasks_as_the_environment_does(wrap, tmp_path):
    matrix = tmp_path / "matrix.json"
    matrix.write_text('{"line_2": {"line_0": true, "1": false}}')
    runner = TasksMethod(n_levels=3, core=OmniLearnabilitySettings(interesting=str(matrix)))
    env = wrap(NamedLine())
    core = runner.build(env, small_agent(env), N_ROWS).core
    np.testing.assert_array_equal(core.interesting.interesting[2], [True, False, True])
    with pytest.raises(ValueError, match="unknown task 'line_2': choose from 0, 1, 2"):
        runner.build(wrap(Line()), small_agent(env), N_ROWS)


# ------------------------------------------------------------------------------------- an unlimited number of levels


def test_the_levels_that_are_described_are_those_that_begin_and_not_mostly_the_long_ones():
    """New levels take 6 steps on average. Those that rows are on at some moment take 506 / 66 = 7.7."""
    env = MeasuredLine()
    settings = EpisodePLR(n_parallel=64, n_steps=N_STEPS, capacity=64, replay_prob=0.0)
    program = SeedRunner(trained_with(env, still_agent(env), settings), 1)
    _, report = program.run(program.init(0), 40)
    assert report.metrics["level/new/length"][0] == pytest.approx(6, abs=0.4)
    assert np.isnan(report.metrics["level/replay/length"][0])
    settings = dataclasses.replace(settings, replay_prob=1.0, min_fill=0.1)
    program = SeedRunner(trained_with(env, still_agent(env), settings), 1)
    state, _ = program.run(program.init(0), 40)
    _, report = program.run(state, 60)
    assert np.isfinite(report.metrics["level/replay/length"][0])
    assert np.isnan(report.metrics["level/new/length"][0])


@pytest.mark.parametrize(
    ("capacity", "score", "n_steps", "n_fresh"),
    [
        (4, "l1_value_loss", 5, 5),
        (256, "max_mc", 15, 1),  # a row has one new level in a rollout, which comes again and again
        pytest.param(256, "max_mc", 5, 5, marks=pytest.mark.deep),
    ],
)
def test_a_buffer_holds_the_latest_score_of_every_level_that_it_keeps(capacity, score, n_steps, n_fresh):
    env = UnsteadyLine()
    size = {"n_parallel": N_ROWS, "n_steps": n_steps, "capacity": capacity, "n_fresh": n_fresh}
    settings = EpisodePLR(**size, score=score, min_fill=0.0)
    agent = still_agent(env)
    runner = runner_of(env, agent, Spy(settings.build(env, agent, N_ROWS)), n_steps, Flowing())
    program = SeedRunner(runner, 1)
    state, parts, scores, n_replayed = program.init(0), [[] for _ in range(N_ROWS)], {}, 0
    best, n_below, ages = {}, 0, {}
    for n in range(14):
        state, _ = program.run(state, n + 1)
        inner, _, steps = jax.tree.map(lambda x: np.asarray(x)[0], state.curriculum)
        for t in range(n_steps):
            for row in range(N_ROWS):
                parts[row].append(steps["quantity"][t, row])
                if steps["done"][t, row]:
                    level = int(steps["task"][t, row])
                    assert len(parts[row]) == length_of(level)  # the row has stayed on its level
                    n_replayed += level in scores
                    follows = int(inner.current.number[row] if t + 1 == n_steps else steps["task"][t + 1, row])
                    ages = {other: 0 if other == follows else age + 1 for other, age in ages.items()}
                    scores[level], parts[row] = np.mean(parts[row]), []
                    if score == "max_mc":
                        own = steps["episode_return"][t, row]
                        best[level] = max(best.get(level, own), own)
                        n_below += own < best[level]
                        scores[level] += best[level]
        buffer = inner.buffer
        kept = buffer.levels.number[buffer.filled]
        assert len(set(kept)) == len(kept) == min(capacity, len(scores))
        np.testing.assert_allclose(
            buffer.scores[buffer.filled], [scores[level] for level in kept], rtol=2e-5, atol=1e-6
        )
        ages = {level: ages.get(level, 0) for level in kept.tolist()}  # by episodes that have begun; 0 when it comes
        assert buffer.ages[buffer.filled].tolist() == list(ages.values())
        held = inner.slots >= 0
        np.testing.assert_array_equal(buffer.levels.number[inner.slots[held]], inner.current.number[held])
        np.testing.assert_array_equal(held, np.isin(inner.current.number, kept))
        if score == "max_mc":
            np.testing.assert_allclose(buffer.best_returns[buffer.filled], [best[level] for level in kept], rtol=1e-6)
    assert n_replayed > 10
    assert n_below > 3 or score != "max_mc"  # the best return was not always the last one
    assert program._run._cache_size() == 1


def test_a_level_whose_first_part_was_scored_is_in_the_buffer_once():
    env, agent = EndlessLine(), still_agent(EndlessLine())
    settings = EpisodePLR(n_parallel=N_ROWS, n_steps=4, capacity=256, tail="write", unique=False, min_fill=0.0)
    program = SeedRunner(trained_with(env, agent, settings), 1)
    state, n_held = program.init(0), 0
    for n in range(8):
        state, _ = program.run(state, n + 1)
        after = jax.tree.map(lambda x: np.asarray(x)[0], state.curriculum)
        kept = after.buffer.levels.number[after.buffer.filled]
        assert len(set(kept)) == len(kept)
        np.testing.assert_array_equal(after.slots >= 0, np.isin(after.current.number, kept))
        n_held += (after.slots >= 0).sum()
    assert n_held > 8


def test_ages_and_scores_of_slots_are_those_of_a_plain_loop():
    rng = np.random.default_rng(5)
    filled = np.arange(5) < 4
    buffer = jax.device_get(level_buffer.init(Numbered(number=np.int32(0)), 5)).replace(filled=filled)

    @jax.jit
    def after(buffer, slots, valid, ended):
        aged = level_buffer.aged(buffer.ages, buffer.filled, slots, valid)
        return rescored(buffer.replace(ages=aged), slots, ended)

    ages, scores, best = np.zeros(5, int), np.full(5, -np.inf), np.full(5, -np.inf)
    for _ in range(3):
        slots, valid, found = rng.integers(-1, 4, 12), rng.random(12) < 0.7, rng.random(12).astype(np.float32)
        told = (slots, valid, found, 2 * found, slots, valid, 2 * found, np.where(valid, found, np.nan))
        buffer = after(buffer, slots, valid, Results(*told))
        for slot, counts, score in zip(slots, valid, found, strict=True):
            if counts:
                ages = np.where(filled, ages + 1, 0)
                if slot >= 0:
                    ages[slot], scores[slot], best[slot] = 0, score, max(best[slot], 2 * score)
        np.testing.assert_array_equal(buffer.ages, ages)
        np.testing.assert_array_equal(buffer.scores, scores.astype(np.float32))
        np.testing.assert_array_equal(buffer.best_returns, best.astype(np.float32))


@pytest.mark.parametrize(("unique", "best"), [(True, [6, 3, 3, 1, 9]), (False, [1, 2, 3, 1, 9])])
def test_new_levels_that_are_equal_share_their_best_return(unique, best):
    """A new level that was equal to one of the buffer counted as another: its score was written over the old one's."""
    settings = EpisodePLR(n_parallel=1, n_steps=5, capacity=3, n_fresh=3, score="max_mc", unique=unique)
    curriculum = EpisodeReplay(None, settings, SCORES["max_mc"], 1, 5, 3)
    table = Numbered(number=np.array([10, 11, 12, 13, 11, 14, 14], np.int32))  # three slots, the row's own, three new

    @jax.jit
    def scores(table, task, returns):
        buffer = level_buffer.init(Numbered(number=jnp.int32(0)), 3)
        rows = level_buffer.locate(settings, buffer, Numbered(number=table.number[:3]), jnp.full(3, -1))
        first = jnp.array([5.0, 6.0, 7.0])
        buffer = level_buffer.insert(settings, buffer, rows, first, first, jnp.zeros(3, jnp.int32))
        done = jnp.ones(5, bool)
        told = Results(task, done, returns, returns, task, done, returns, jnp.full(5, -0.5))
        return curriculum._with_best(told, buffer, table, curriculum._homes(jnp.array([-1])))

    found = scores(table, np.array([4, 5, 6, 3, 0], np.int32), np.float32([1, 2, 3, 1, 9]))
    np.testing.assert_array_equal(found.score, np.array(best) - 0.5)
    np.testing.assert_array_equal(found.task, [4, 5, 6, 3, 0])


def test_an_unlimited_number_of_levels_needs_new_ones_and_a_score_of_steps():
    with pytest.raises(ValueError, match=r"runner.n_fresh is 0: it must be at least 1"):
        EpisodePLR(n_fresh=0)
    env = EndlessLine()
    with pytest.raises(ValueError, match=r"runner.score is 'learnability': it must be a mean"):
        trained_with(env, small_agent(env), EpisodePLR(n_parallel=2, n_steps=4, score="learnability"))


@pytest.mark.deep
def test_the_largest_value_of_an_attempt_may_count():
    env, scores = Line(), []
    for coef in (0.0, 0.25, 1.0):
        settings = TasksMethod(n_parallel=2, n_steps=24, n_levels=6, max_score_coef=coef)
        program = SeedRunner(trained_with(env, small_agent(env), settings), 1)
        state, _ = program.run(program.init(0), 1)
        scores.append(np.asarray(state.curriculum.core.scores)[0])
    mean, mixed, largest = scores
    np.testing.assert_allclose(mixed, 0.75 * mean + 0.25 * largest, rtol=1e-5)
    assert (largest > mean).any()

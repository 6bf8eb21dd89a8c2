"""Evaluations of all tasks inside the compiled program, cores that all devices share, and several tasks an episode."""

import dataclasses
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.curricula.base import Curriculum, level_batch
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.base import Attempt, Environment, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.restarts import LevelQueue, QueuedLevels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.envs.task_levels import WithTask
from minimax_lib.envs.wrappers import TimeLimit
from minimax_lib.playing.schedule import Flowing
from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.row_tasks import RowTasks
from minimax_lib.runners.build import runner_of, trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.tasks import Frontier, LearningProgress, LongList, Online, Results, Steps
from minimax_lib.tasks.registry import task_settings
from minimax_lib.testing.curricula import small_agent
from minimax_lib.testing.envs import check_environment
from tests.still_agent import still_agent

N_TASKS, N_ROWS, N_STEPS = 6, 4, 5


@struct.dataclass
class Running:
    number: jax.Array
    clock: jax.Array


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """Task i lasts i + 1 steps. It is solved if i is even."""

    max_steps: int = N_TASKS
    observation_space = Box(0, 10, (1,))
    action_space = Discrete(2)

    def sample_level(self, key):
        return jnp.zeros((), jnp.int32)

    def sample_listed(self, key, number):
        return number

    def reset(self, key, level):
        return Running(level, jnp.zeros((), jnp.int32)), opening(jnp.ones(1), jnp.zeros((), jnp.float32))

    def step(self, key, state, action):
        state = state.replace(clock=state.clock + 1)
        over = state.clock > state.number
        solved = over & (state.number % 2 == 0)
        return state, transition(jnp.ones(1), 1.0, over, jnp.zeros((), bool), solved)

    def get_level(self, state):
        return state.number

    def level_metrics(self, level):
        return {"is_late": (level >= 3).astype(jnp.float32), "nothing": jnp.zeros((), jnp.float32)}


class Told(struct.PyTreeNode):
    rates: jax.Array
    known: jax.Array
    n_evaluations: jax.Array
    n_begun: jax.Array  # i32[N]
    n_ended: jax.Array  # i32[N]
    last: jax.Array  # i32[], the task of the last result


@dataclasses.dataclass(frozen=True)
class Asking:
    """Draws uniformly, and remembers what it is told."""

    n_tasks: int
    reads_scores = False
    min_episodes: int = 2

    def init(self, key):
        counts = jnp.zeros(self.n_tasks, jnp.int32)
        nothing = jnp.zeros((), jnp.int32)
        return Told(jnp.zeros(self.n_tasks), jnp.zeros(self.n_tasks, bool), nothing, counts, counts, nothing)

    def sample(self, key, state, n):
        return jax.random.randint(key, (n,), 0, self.n_tasks, jnp.int32)

    def started(self, state, tasks, valid):
        return state.replace(n_begun=state.n_begun.at[tasks].add(valid.astype(jnp.int32)))

    def update(self, state, results):
        last = jnp.max(jnp.where(results.valid, jnp.arange(len(results.task)), -1))
        last = jnp.where(last < 0, state.last, results.task[last])
        return state.replace(n_ended=state.n_ended.at[results.task].add(results.valid.astype(jnp.int32)), last=last)

    def evaluated(self, state, rates, known):
        return state.replace(rates=rates, known=known, n_evaluations=state.n_evaluations + 1)

    def weights(self, state):
        return jnp.full(self.n_tasks, 1 / self.n_tasks, jnp.float32)

    def report(self, state):
        return {}


@dataclasses.dataclass(frozen=True)
class AskingSettings:
    divides: ClassVar[bool] = False

    def build(self, n_tasks):
        return Asking(n_tasks)


def program_of(n_devices: int = 1, n_seeds: int = 1, **changes: Any) -> Any:
    env = Line()
    settings = TasksMethod(n_parallel=N_ROWS, n_steps=N_STEPS, n_levels=N_TASKS, core=AskingSettings(), **changes)
    settings = settings.per_device(n_devices)
    agent = still_agent(env)
    runner = runner_of(env, agent, settings.build(env, agent, settings.n_parallel), N_STEPS, Flowing())
    mesh = DeviceMesh(n_rows=n_devices)
    return SeedRunner(runner, n_seeds) if n_devices == 1 else DeviceRunner(runner, n_seeds, mesh)


@pytest.mark.deep
@pytest.mark.parametrize("n_devices", [1, 4])
def test_all_tasks_are_evaluated_and_their_steps_are_counted(n_devices):
    program = program_of(n_devices, evaluate_every=3, evaluate_episodes=2)
    state = program.init(0)
    for n in range(4):
        state, report = program.run(state, n + 1)
        told = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[1 + (n_devices > 1) :]), state.curriculum.core)
        assert (told.n_evaluations == 1 + n // 3).all()
        assert told.known.all()
        np.testing.assert_array_equal(told.rates, [[1, 0, 1, 0, 1, 0]] * n_devices)
        # Each of the devices plays chunks of as many tasks as it has rows; the last ones are filled up with the first.
        chunk = N_ROWS // n_devices
        n_played = -(-N_TASKS // N_ROWS) * N_ROWS if n_devices == 1 else -(-N_TASKS // (chunk * 4)) * chunk * 4
        steps = 2 * sum(1 + i % N_TASKS for i in range(n_played))
        assert float(report.metrics["evaluation/steps"][0]) == (steps if n % 3 == 0 else 0)
        assert float(report.metrics["evaluation/rate"][0]) == 0.5
    assert int(np.sum(state.curriculum.evaluated.env_steps.low)) == 2 * steps


@pytest.mark.deep
def test_devices_that_share_a_core_are_told_the_same():
    program = program_of(4)
    state, _ = program.run(program.init(0), 5)
    told, current = state.curriculum.core, np.asarray(state.curriculum.current)[0]
    for leaf in jax.tree.leaves(told):
        np.testing.assert_array_equal(np.asarray(leaf)[0], np.asarray(leaf)[0, :1].repeat(4, 0))
    begun, ended = np.asarray(told.n_begun)[0, 0], np.asarray(told.n_ended)[0, 0]
    # What has begun has ended, but for the task that each row is on.
    np.testing.assert_array_equal(begun - ended, np.bincount(current.ravel(), minlength=N_TASKS))
    assert len(set(current.ravel().tolist())) > 1  # devices draw for themselves


def test_the_tasks_that_a_metric_names_are_played_in_whole_episodes():
    settings = {"n_parallel": 2, "evaluate_every": 3, "evaluate_episodes": 2, "evaluate_where": "is_late"}
    env, settings = Line(), TasksMethod(n_levels=N_TASKS, core=AskingSettings(), **settings)
    agent = still_agent(env)
    runner = trained_with(env, agent, settings)
    tasks, evaluation = runner.curriculum, runner.curriculum.evaluation
    assert evaluation.measured == (3, 4, 5)

    @jax.jit
    def evaluated(key):
        rates, steps = evaluation.rates(key, tasks._measured(), runner.students(runner.init(key)))
        return *evaluation.everywhere(rates, N_TASKS), steps

    rates, known, steps = evaluated(jax.random.key(0))
    np.testing.assert_array_equal(rates, [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(known, np.arange(N_TASKS) >= 3)
    assert steps == 2 * (4 + 5 + 6 + 4)  # two rows play side by side: the last place is filled up with the first task
    assert [bool(evaluation.is_due(clock)) for clock in range(4)] == [True, False, False, True]


@pytest.mark.deep
def test_only_some_tasks_are_measured():
    program = program_of(evaluate_where="is_late")
    state, report = program.run(program.init(0), 1)
    told = jax.tree.map(lambda x: np.asarray(x)[0], state.curriculum.core)
    np.testing.assert_array_equal(told.known, np.arange(N_TASKS) >= 3)
    np.testing.assert_array_equal(told.rates, [0, 0, 0, 0, 1, 0])
    assert float(report.metrics["evaluation/rate"][0]) == pytest.approx(1 / 3)
    assert float(report.metrics["evaluation/steps"][0]) == 4 * (4 + 5 + 6)


@pytest.mark.deep
def test_a_resumed_run_and_a_seed_of_several_are_the_same():
    program = program_of(n_seeds=2, evaluate_every=2)
    whole, _ = program.run(program.init(3), 4)
    half, _ = program.run(program.init(3), 3)
    rest, _ = program.run(half, 4)
    alone = program_of(evaluate_every=2)
    one, _ = alone.run(alone.init(4), 4)
    for a, b, c in zip(*(jax.tree.leaves(s.curriculum) for s in (whole, rest, one)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[1], c[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"evaluate_episodes": 1}, "runner.evaluate_episodes is 1: with fewer than 2, this core cannot tell"),
        ({"evaluate_where": "is_lat"}, "unknown runner.evaluate_where 'is_lat': .*did you mean 'is_late'"),
        ({"evaluate_where": "nothing"}, "runner.evaluate_where is nothing: it is above 0 on none of the 6 levels"),
        ({"evaluate_every": 0}, "runner.evaluate_every is 0: it must be at least 1"),
    ],
)
def test_evaluations_that_tell_nothing_are_refused(changes, message):
    env = Line()
    with pytest.raises(ValueError, match=message):
        trained_with(env, small_agent(env), TasksMethod(n_levels=N_TASKS, core=AskingSettings(), **changes))


# ------------------------------------------------------------------------------------------- several tasks an episode


class Errand(struct.PyTreeNode):
    first: jax.Array
    task: jax.Array
    begun: jax.Array  # the time when the attempt began
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Errands(Environment):
    """Task i takes i + 1 steps, each pays 1. Its attempt is solved at the end if i is even. An episode has 7 steps."""

    max_steps: int = 7
    one_attempt: bool = False
    observation_space = Box(0, 10, (1,))
    action_space = Discrete(2)

    def single(self):
        return dataclasses.replace(self, one_attempt=True)

    def sample_level(self, key):
        return jnp.zeros((), jnp.int32)

    def sample_listed(self, key, number):
        return number

    def look(self, state):
        return jnp.stack([state.task]).astype(jnp.float32)

    def reset(self, key, level):
        nothing = jnp.zeros((), jnp.int32)
        state = Errand(level, level, nothing, nothing)
        attempt = Attempt(progress=jnp.zeros((), jnp.float32), ended=jnp.zeros((), bool))
        return state, opening(self.look(state), jnp.zeros((), jnp.float32), attempt=attempt)

    def step(self, key, state, action):
        return self.step_then(key, state, action, state.task)

    def step_then(self, key, state, action, following):
        time = state.time + 1
        finished = time - state.begun > state.task
        solved = (finished & (state.task % 2 == 0)).astype(jnp.float32)
        truncated = time >= self.max_steps
        ended = finished | truncated
        state = Errand(state.first, jnp.where(ended, following, state.task), jnp.where(ended, time, state.begun), time)
        attempt = Attempt(progress=solved, ended=ended)
        over = finished & self.one_attempt
        return state, transition(self.look(state), 1.0, over, truncated & ~over, solved, attempt=attempt)

    def get_level(self, state):
        return state.first

    def level_metrics(self, level):
        return {}


@dataclasses.dataclass(frozen=True)
class Keeping(Asking):
    """Keeps the results and the rewards of the last rollout beside the counts."""

    n_results: int = N_ROWS * N_STEPS

    def init(self, key):
        whole, real, flag = (
            jnp.zeros(self.n_results, jnp.int32),
            jnp.zeros(self.n_results),
            jnp.zeros(self.n_results, bool),
        )
        return super().init(key), Results(whole, flag, real, real, whole, flag, real, real)

    def started(self, state, tasks, valid):
        return super().started(state[0], tasks, valid), state[1]

    def update(self, state, results):
        return super().update(state[0], results), results

    def evaluated(self, state, rates, known):
        return super().evaluated(state[0], rates, known), state[1]


@dataclasses.dataclass(frozen=True)
class KeepingSettings(AskingSettings):
    def build(self, n_tasks):
        return Keeping(n_tasks)


def test_an_environment_of_attempts_keeps_its_promises():
    check_environment(Errands(), jax.random.key(0))

    class Forgetful(Errands):
        def single(self):
            return self

    with pytest.raises(AssertionError, match=r"Forgetful.single\(\): an attempt ends, and the episode does not"):
        check_environment(Forgetful(), jax.random.key(0))


def test_a_time_limit_ends_the_attempt_that_it_cuts():
    env = TimeLimit(Errands(), 4)
    check_environment(env, jax.random.key(0), n_rows=2)
    place, ended, _ = flow(env, [6, 1, 1, 0])
    assert np.flatnonzero(ended).tolist() == [3, 5, 7]  # task 6 is cut after 4 of its 7 steps
    np.testing.assert_array_equal(np.cumsum(ended), place)  # so results belong to the tasks of the queue


def test_the_task_of_every_attempt_is_shown():
    env = WithTask(Errands(), 8)
    check_environment(env, jax.random.key(0), n_rows=2)
    _, ended, obs = flow(env, [2, 0, 1, 3])
    now = obs["observation"][:, 0]
    np.testing.assert_array_equal(now, [2, 2, 0, 1, 1, 3, 0, 0])  # task 3 is cut in step 7
    np.testing.assert_array_equal(obs["task"].argmax(axis=1), now)
    # Round it, a wrapper hands on the numbered level.
    assert flow(TimeLimit(env, 7), [2, 0, 1, 3])[1].tolist() == ended.tolist()


def flow(env, tasks, n_steps=8):
    """(place in the queue, attempt ended, observation) after each step of one row, whose queue is `tasks`."""
    batch = BatchEnv(env, restart=QueuedLevels())
    table = jax.vmap(lambda number: level_of_list(env, number))(jnp.arange(8, dtype=jnp.int32))
    numbers = jnp.array([tasks + [0] * n_steps], jnp.int32)
    queue = LevelQueue(table=table, numbers=numbers)

    def one_step(state, key):
        state, ts = batch.step(key, state, jnp.zeros((1, 1), jnp.int32))
        return state, (state.stock.place[0], *jax.tree.map(lambda x: x[0, 0], (ts.attempt.ended, ts.obs)))

    @jax.jit
    def played(key):
        state, _ = batch.reset(key, jax.tree.map(lambda x: x[numbers[:, 0]], table))
        return jax.lax.scan(one_step, batch.with_queue(state, queue), jax.random.split(key, n_steps))[1]

    return jax.device_get(played(jax.random.key(0)))


def plain_errands(rows, queues):
    """[(task, progress, return, length, episode's end, its return)] of each step and row, None where none ended."""
    found = []
    for _ in range(N_STEPS):
        for row, queue in zip(rows, queues, strict=True):
            row["time"], row["length"] = row["time"] + 1, row["length"] + 1
            task, over = row["task"], row["time"] == 7
            finished = row["length"] > task
            if not finished and not over:
                found.append(None)
                continue
            found.append((task, float(finished and task % 2 == 0), row["length"], row["length"], over, row["time"]))
            row |= {"place": row["place"] + 1, "length": 0, "time": 0 if over else row["time"]}
            row["task"] = queue[row["place"]]
    return found


def test_an_episode_holds_several_attempts():
    env = Errands()
    settings = TasksMethod(n_parallel=N_ROWS, n_steps=N_STEPS, n_levels=N_TASKS, core=KeepingSettings())
    agent = still_agent(env)
    curriculum = settings.build(env, agent, N_ROWS)
    runner = runner_of(env, agent, Handing(curriculum), N_STEPS, Flowing())
    program = SeedRunner(runner, 1)
    state = program.init(0)
    begun = np.asarray(state.curriculum[0].current)[0]
    rows = [{"task": int(task), "time": 0, "length": 0, "place": 0} for task in begun]
    n_begun = np.bincount(begun, minlength=N_TASKS)
    for n in range(6):
        state, _ = program.run(state, n + 1)
        tasks, queues = jax.tree.map(lambda x: np.asarray(x)[0], state.curriculum)
        found = plain_errands(rows, queues)
        counts, results = tasks.core
        np.testing.assert_array_equal(results.valid, [x is not None for x in found])
        ended = np.flatnonzero(results.valid)
        names = ("task", "progress", "returns", "length", "episode")
        for k, name in enumerate(names):
            np.testing.assert_array_equal(getattr(results, name)[ended], [found[i][k] for i in ended], err_msg=name)
        np.testing.assert_array_equal(
            results.episode_return[results.episode], [x[5] for x in found if x is not None and x[4]]
        )
        n_begun += np.bincount(
            [queues[i][j] for i, row in enumerate(rows) for j in range(1, row["place"] + 1)], minlength=N_TASKS
        )
        np.testing.assert_array_equal(counts.n_begun, n_begun)
        np.testing.assert_array_equal(tasks.current, [row["task"] for row in rows])
        for row in rows:
            row["place"] = 0
    np.testing.assert_array_equal(counts.rates, [1, 0, 1, 0, 1, 0])  # of single attempts
    assert any(row["time"] != row["length"] for row in rows)  # some attempt goes on into the next rollout


def test_each_attempt_of_an_episode_is_a_group_of_answers_to_its_own_task():
    """Two tasks in turn, always solved. The first one is never the last of its episode."""
    env = Errands()
    settings = TasksMethod(n_parallel=1, n_steps=8, n_levels=2, core=task_settings(Frontier)())
    curriculum: Any = settings.build(env, still_agent(env), 1)
    state = curriculum.init(jax.random.key(0))
    numbers = jnp.arange(9, dtype=jnp.int32)[None] % 2
    batch = level_batch(jnp.zeros(1, jnp.int32)).replace(queue=LevelQueue(jnp.arange(2), numbers))
    ends, rest = jnp.ones((8, 1), bool), jnp.ones((8, 1), jnp.float32)
    steps = Steps(numbers[:, :8].T, ends, rest, numbers[:, :8].T == 1, rest, rest)
    outcome: Any = SimpleNamespace(steps=lambda score: steps)
    told = jax.jit(lambda state: curriculum.observe(jax.random.key(0), 0, state, batch, outcome))
    core = told(state)[0].core
    np.testing.assert_array_equal(core.right, [4, 4])
    np.testing.assert_allclose(core.answers, (1 - 0.8**4) / 0.2, rtol=1e-6)
    np.testing.assert_allclose(curriculum.core.weights(core), 0.5)


def test_a_host_is_told_of_each_attempt_as_a_group_too():
    for core in (Frontier(2), LongList(Frontier(2)), Online(LearningProgress(2), count="episodes", every=100)):
        host = Host(core)
        rows = RowTasks(host, 1, "ahead")
        rows.reset(np.ones(1, bool))
        tasks, yes = [], np.ones(1, bool)
        for i in range(6):
            rows.sent()
            rows.step(np.ones(1), yes, yes)
            tasks.append(int(rows.task[0]))
            rows.report(yes, yes & (i % 3 == 2), yes, Solved(), {})
        state = host.state_dict()
        if isinstance(core, Online):  # it counts episodes as they are
            assert state["waiting['episode']"].sum() == 2
        else:
            host.draw(1)
            (right,) = (x for name, x in host.state_dict().items() if "right" in name)
            np.testing.assert_array_equal(right, np.bincount(tasks, minlength=2))


@dataclasses.dataclass(frozen=True)
class Handing(Curriculum):
    """Remembers the queues that it handed out last."""

    inner: Any

    @property
    def plan(self):
        return self.inner.plan

    def init(self, key):
        return self.inner.init(key), jnp.zeros((N_ROWS, N_ROWS * N_STEPS // N_ROWS + 1), jnp.int32)

    def propose(self, shared_key, key, clock, state, students):
        inner, batch = self.inner.propose(shared_key, key, clock, state[0], students)
        return (inner, batch.queue.numbers), batch

    def observe(self, key, clock, state, batch, outcome):
        inner, metrics = self.inner.observe(key, clock, state[0], batch, outcome)
        return (inner, state[1]), metrics

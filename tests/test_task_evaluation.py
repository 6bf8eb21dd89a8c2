"""Evaluations of all tasks inside the compiled program, and cores that all devices share."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.curricula.conformance import small_agent
from minimax_lib.curricula.tasks import TaskRunner
from minimax_lib.envs.base import opening, transition
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.runners.build import runner_of, trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner

N_TASKS, N_ROWS, N_STEPS = 6, 4, 5


@struct.dataclass
class Running:
    number: jax.Array
    clock: jax.Array


@dataclasses.dataclass(frozen=True)
class Line:
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
    settings = TaskRunner(n_parallel=N_ROWS, n_steps=N_STEPS, n_levels=N_TASKS, core=AskingSettings(), **changes)
    settings = settings.per_device(n_devices)
    agent = small_agent(env)
    runner = runner_of(env, agent, settings.build(env, agent, settings.n_parallel), N_STEPS, continues=True)
    mesh = DeviceMesh(n_rows=n_devices)
    return SeedRunner(runner, n_seeds) if n_devices == 1 else DeviceRunner(runner, n_seeds, mesh)


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


def test_only_some_tasks_are_measured():
    program = program_of(evaluate_where="is_late")
    state, report = program.run(program.init(0), 1)
    told = jax.tree.map(lambda x: np.asarray(x)[0], state.curriculum.core)
    np.testing.assert_array_equal(told.known, np.arange(N_TASKS) >= 3)
    np.testing.assert_array_equal(told.rates, [0, 0, 0, 0, 1, 0])
    assert float(report.metrics["evaluation/rate"][0]) == pytest.approx(1 / 3)
    assert float(report.metrics["evaluation/steps"][0]) == 4 * (4 + 5 + 6)


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
        trained_with(env, small_agent(env), TaskRunner(n_levels=N_TASKS, core=AskingSettings(), **changes))

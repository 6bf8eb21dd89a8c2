"""Task curricula over a box of levels inside training, against the pure curricula driven by hand."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.tasks.boxes import BoxMethod
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.pendulum import Pendulum
from minimax_lib.envs.pendulum.physics import PARAMETERS
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.envs.task_levels import WithTask
from minimax_lib.envs.wrappers import TimeLimit
from minimax_lib.playing.schedule import Flowing
from minimax_lib.runners.build import runner_of, trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.tasks import ExpandingBox, Results, SimulatedAnnealing
from minimax_lib.tasks.box_registry import (
    AnnealingSettings,
    ExpandingBoxSettings,
    Interval,
    UniformBoxSettings,
    Values,
)
from minimax_lib.testing.curricula import check_curriculum, small_agent
from minimax_lib.testing.envs import check_environment
from tests.still_agent import still_agent

KEY = jax.random.key(0)
N_ROWS, N_STEPS, N_UPDATES = 4, 5, 12
BOUNDS = {"length": (0.0, 7.0), "width": (-1.0, 1.0)}


@struct.dataclass
class Rectangle:
    length: jax.Array
    width: jax.Array
    mark: jax.Array  # from the key


@struct.dataclass
class Countdown:
    level: Rectangle
    clock: jax.Array


def steps_of(length):
    return 1 + int(np.floor(np.float32(length)))


def progress_at(width):
    """0.5 to 1: the wider, the better."""
    return np.float32(1.0) - np.abs(np.float32(width)) / np.float32(2.0)


@dataclasses.dataclass(frozen=True)
class Rectangles(Environment):
    """An episode has 1 to 8 steps, by its length, and ends with a progress that is higher, the smaller its width."""

    max_steps: int = 8
    observation_space = Box(-1, 8, (3,))
    action_space = Discrete(2)
    level_box = BOUNDS

    def sample_level(self, key):
        return Rectangles.level_at(self, key, jnp.array([1.0, 0.0]))

    def level_at(self, key, point):
        return Rectangle(point[0], point[1], jax.random.uniform(key))

    def reset(self, key, level):
        state = Countdown(level, jnp.zeros((), jnp.int32))
        return state, opening(self.look(state), jnp.zeros(()))

    def step(self, key, state, action):
        state = state.replace(clock=state.clock + 1)
        over = state.clock >= 1 + jnp.floor(state.level.length).astype(jnp.int32)
        progress = jnp.where(over, 1.0 - jnp.abs(state.level.width) / 2.0, 0.0)
        return state, transition(self.look(state), 1.0, over, jnp.zeros((), bool), progress)

    def look(self, state):
        return jnp.stack([state.level.length, state.level.width, state.clock.astype(jnp.float32)])

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {"length": level.length}


CORES = {
    "annealing": AnnealingSettings(("width=1",), ("width=-1",), total_steps=150),
    "expanding box": ExpandingBoxSettings("width", steps=4, threshold=0.7, required=9),
    "uniform": UniformBoxSettings(),
}
BY_HAND = {  # the pure core
    "annealing": SimulatedAnnealing((1.0,), (-1.0,), (150,)),
    "expanding box": ExpandingBox(-1.0, 1.0, 4, 0.7, 9),
}


@dataclasses.dataclass(frozen=True)
class Spy(Curriculum):
    """Remembers the tasks and levels that it handed out last."""

    inner: Any

    @property
    def plan(self):
        return self.inner.plan

    def init(self, key):
        state = self.inner.init(key)
        k = self.inner.n_rows * (1 + self.inner.n_steps)
        many = jax.tree.map(lambda x: jnp.zeros((k, *x.shape[1:]), x.dtype), state.current)
        return state, many

    def propose(self, shared_key, key, clock, state, students):
        inner, batch = self.inner.propose(shared_key, key, clock, state[0], students)
        return (inner, batch.context), batch

    def observe(self, key, clock, state, batch, outcome):
        inner, metrics = self.inner.observe(key, clock, state[0], batch, outcome)
        return (inner, state[1]), metrics


@functools.cache
def program_of(core, n_devices=1, n_seeds=1):
    env = Rectangles()
    settings = BoxMethod(n_parallel=N_ROWS, n_steps=N_STEPS, core=core).per_device(n_devices)
    agent = still_agent(env)
    curriculum = Spy(settings.build(env, agent, settings.n_parallel))
    runner = runner_of(env, agent, curriculum, N_STEPS, Flowing())
    return (
        SeedRunner(runner, n_seeds) if n_devices == 1 else DeviceRunner(runner, n_seeds, DeviceMesh(n_rows=n_devices))
    )


def on_host(state, n_devices):
    """(state, drawn) of the curriculum on each device, of the first seed."""
    places = [(0, i) for i in range(n_devices)] if n_devices > 1 else [(0,)]
    return [jax.tree.map(lambda x, at=at: np.asarray(x)[at], state.curriculum) for at in places]


class Row:
    """One row, played by hand."""

    def __init__(self):
        self.clock, self.place = 0, 0

    def step(self, level):
        """(steps, progress) of the attempt that ends here; None if it goes on."""
        self.clock += 1
        if self.clock < steps_of(level.length):
            return None
        length, self.clock, self.place = self.clock, 0, self.place + 1
        return length, progress_at(level.width)


@pytest.mark.parametrize(
    ("name", "n_devices"), [("annealing", 1), pytest.param("expanding box", 2, marks=pytest.mark.deep)]
)
def test_a_run_is_that_of_the_pure_core_driven_by_hand(name, n_devices):
    program, core, update = program_of(CORES[name], n_devices), BY_HAND[name], jax.jit(BY_HAND[name].update)
    state, known = program.init(0), jax.device_get(jax.jit(core.init)(KEY))
    sample = jax.jit(functools.partial(core.sample, n=1))
    rows = [[Row() for _ in range(N_ROWS // n_devices)] for _ in range(n_devices)]
    seen = {tuple(np.asarray(sample(KEY, known))[0].tolist())}
    for n in range(N_UPDATES):
        before = on_host(state, n_devices)
        state, report = program.run(state, n + 1)
        after = on_host(state, n_devices)
        task = np.asarray(sample(KEY, known))[0]
        results, begun, points = [], [], []
        for (was, _), (_, drawn) in zip(before, after, strict=True):
            own = N_ROWS // n_devices
            for x, y in zip(jax.tree.leaves(was.current), jax.tree.leaves(drawn), strict=True):
                np.testing.assert_array_equal(x, y[:own])  # each row begins where it was
            np.testing.assert_allclose(drawn.task[own:], np.tile(task, (own * N_STEPS, 1)), atol=1e-6)
        for _ in range(N_STEPS):
            for device, (_, drawn) in enumerate(after):
                own = N_ROWS // n_devices
                for i, row in enumerate(rows[device]):
                    at = i if row.place == 0 else own + i * N_STEPS + row.place - 1
                    level = jax.tree.map(lambda x, at=at: x[at], drawn.level)
                    ended = row.step(level)
                    if ended:
                        results.append((drawn.task[at], *ended))
                        follows = own + i * N_STEPS + row.place - 1
                        begun.append(float(drawn.level.length[follows]))
                        points.append(drawn.point[follows])
        for device, (now, drawn) in enumerate(after):
            own = N_ROWS // n_devices
            last = [i if row.place == 0 else own + i * N_STEPS + row.place - 1 for i, row in enumerate(rows[device])]
            np.testing.assert_array_equal(now.current.level.mark, drawn.level.mark[last])
            for row in rows[device]:
                row.place = 0
        for task, length, progress in results:
            known = update(known, result(task, length, progress))
        for now, _ in after:
            for x, y in zip(jax.tree.leaves(now.core), jax.tree.leaves(known), strict=True):
                np.testing.assert_array_equal(x, y)
        if begun:
            assert float(report.metrics["level/new/length"][0]) == pytest.approx(np.mean(begun), rel=1e-5)
        for i, dimension in enumerate(BOUNDS):
            expected = np.mean(points, axis=0)[i] if points else np.nan
            found = float(report.metrics[f"tasks/point/{dimension}"][0])
            assert found == pytest.approx(expected, abs=1e-5, nan_ok=True)
        seen.add(tuple(np.asarray(sample(KEY, known))[0].tolist()))
    assert len(seen) >= 3  # the tasks did change
    if n_devices == 1:
        assert program._run._cache_size() == 1


def result(task, length, progress):
    """One attempt that has ended."""
    real, yes = np.zeros(1, np.float32), np.ones(1, bool)
    ended, steps = np.float32([progress]), np.int32([length])
    return Results(np.asarray(task)[None], yes, ended, real, steps, yes, real, real)


def test_a_task_leaves_the_other_dimensions_open():

    @functools.partial(jax.jit, static_argnums=0)
    def points_of(kind, key, task):
        return jax.vmap(kind.point, (0, None))(jax.random.split(key, 400), task)

    points = np.asarray(points_of(Values.of(BOUNDS, (1,)), KEY, np.float32([0.25])))
    np.testing.assert_array_equal(points[:, 1], 0.25)
    lengths = points[:, 0]
    assert 0 <= lengths.min() < 0.2
    assert 6.8 < lengths.max() <= 7
    assert abs(lengths.mean() - 3.5) < 0.3
    points = np.asarray(points_of(Interval.of(BOUNDS, 0), KEY, np.float32([2.0, 3.0])))
    assert 2 <= points[:, 0].min() < 2.05
    assert 2.95 < points[:, 0].max() <= 3
    assert points[:, 1].min() < -0.9
    whole = np.asarray(points_of(Values.of(BOUNDS, (1, 0)), KEY, np.float32([-1.0, 7.0])))
    np.testing.assert_array_equal(whole, np.tile([7.0, -1.0], (400, 1)))


PENDULUM = Pendulum(mass=(0.5, 1.5), length=(1.0, 1.0), max_steps=4, hold_steps=2)


def test_a_point_of_the_box_is_a_pendulum():
    env = PENDULUM
    assert list(env.level_box) == ["mass", "gravity", "damping", "torque"]
    level = jax.jit(env.level_at)(KEY, np.float32([0.7, 9.0, 0.1, 3.0]))
    assert [float(x) for x in jax.tree.leaves(level)] == pytest.approx([0.7, 1.0, 9.0, 0.1, 3.0])


@pytest.mark.deep
def test_a_pendulum_grows_heavier():
    env = PENDULUM
    core = AnnealingSettings(("mass=0.5", "torque=6"), ("mass=1.5", "torque=2"), total_steps=100)
    settings = BoxMethod(n_parallel=2, n_steps=4, core=core)
    program = SeedRunner(trained_with(TimeLimit(env, 4), small_agent(env), settings), 2)
    state, found = program.init(0), []
    for n in range(16):
        state, report = program.run(state, n + 1)
        found.append([np.asarray(report.metrics[f"level/new/{name}"]) for name in ("mass", "torque")])
    # Both rows end one episode of 4 steps in each rollout; what begins then was drawn before the rollout.
    share = np.minimum(8 * np.arange(16) / 100, 1)
    np.testing.assert_allclose(np.asarray(found)[:, 0, :], np.stack([0.5 + share] * 2, 1), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(found)[:, 1, :], np.stack([6 - 4 * share] * 2, 1), rtol=1e-5)


@pytest.mark.deep
def test_seeds_and_resumed_runs_are_the_same():
    both, alone = program_of(CORES["annealing"], n_seeds=2), program_of(CORES["annealing"])
    whole, _ = both.run(both.init(3), 6)
    half, _ = both.run(both.init(3), 3)
    rest, _ = both.run(half, 6)
    one, _ = alone.run(alone.init(4), 6)
    for a, b, c in zip(*(jax.tree.leaves(s.curriculum) for s in (whole, rest, one)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[1], c[0])


@pytest.mark.deep
@pytest.mark.parametrize("name", ["uniform"])
def test_it_conforms(name):
    env = Rectangles()
    agent = small_agent(env)
    check_curriculum(BoxMethod(core=CORES[name], n_steps=16).build(env, agent, 4), env, KEY, agent)


def test_a_box_of_levels_is_checked():
    check_environment(Rectangles(), KEY, n_rows=2)

    class Wrong(Rectangles):
        def level_at(self, key, point):
            return super().level_at(key, point).replace(mark=jnp.zeros((), jnp.int32))

    with pytest.raises(AssertionError, match="the level at a point"):
        check_environment(Wrong(), KEY)

    class Flat(Rectangles):
        level_box = BOUNDS | {"width": (1.0, 1.0)}

    with pytest.raises(AssertionError, match=r"level_box has width from 1.0 to 1.0: the first must be below"):
        check_environment(Flat(), KEY)


@pytest.mark.parametrize(
    ("core", "message"),
    [
        (AnnealingSettings(), r"runner.core.start is empty: it must be values of length, width, such as length=0"),
        (AnnealingSettings(("length=1",)), "runner.core.end is empty"),
        (
            AnnealingSettings(("lenght=1",), ("length=1",)),
            "unknown dimension in runner.core.start 'lenght': .*'length'",
        ),
        (AnnealingSettings(("length",), ("length=1",)), "runner.core.start has 'length': it must be a dimension and"),
        (AnnealingSettings(("length=8",), ("length=1",)), "runner.core.start has length=8: it must be between 0 and 7"),
        (AnnealingSettings(("length=nan",), ("length=1",)), "runner.core.start has length=nan: it must be between"),
        (AnnealingSettings(("length=1", "length=2"), ("length=1",)), "runner.core.start has length twice"),
        (
            AnnealingSettings(("length=1",), ("width=1",)),
            "runner.core.(end|start) has no (length|width): start and end",
        ),
        (AnnealingSettings(("length=1",), ("length=2",), 0), "runner.core.total_steps is 0: it must be at least 1"),
        (ExpandingBoxSettings(), "runner.core.dimension is empty: choose from length, width"),
        (ExpandingBoxSettings("lengt"), "unknown runner.core.dimension 'lengt': .*did you mean 'length'"),
        (ExpandingBoxSettings("width", steps=0), "runner.core.steps is 0: it must be at least 1"),
        (ExpandingBoxSettings("width", threshold=float("inf")), "runner.core.threshold is inf"),
    ],
)
def test_settings_that_do_not_fit_the_box_are_refused(core, message):
    env = Rectangles()
    with pytest.raises(ValueError, match=message):
        trained_with(env, small_agent(env), BoxMethod(core=core))


@pytest.mark.parametrize(
    "env",
    [
        AMaze(height=3, width=3, n_walls=2),
        Pendulum(**dict.fromkeys(PARAMETERS, (1.0, 1.0))),
        WithTask(Pendulum(), 3),  # its levels have a number beside the physics
    ],
    ids=["maze", "one point", "other levels"],
)
def test_an_environment_without_a_box_is_refused(env):
    assert jax.eval_shape(lambda number: level_of_list(env, number), jnp.int32(0)) is not None
    with pytest.raises(ValueError, match=r"runner is box, and the levels of \w+ are not points of a box"):
        BoxMethod().build(env, small_agent(env), 4)

"""Many seeds in one vmap, many updates in one dispatch."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.runners import hosts
from minimax_lib.runners.training import Runner, RunnerState
from minimax_lib.trees import mapped

MAX_STEPS = 100_000
RUN_ONCE = {"xla_backend_optimization_level": 1}  # compiler options that halve the compilation of many weights' draws


class Report(struct.PyTreeNode):
    """What an interval of training was like."""

    metrics: dict[str, jax.Array]  # f32[S], means over the steps on which they were measured; NaN if on none
    n_steps: jax.Array  # i32[], steps of the runner
    nonfinite: jax.Array  # bool[S], the last update's loss or gradient was not finite
    broken_curriculum: jax.Array  # bool[S], a parameter that the curriculum learns is not finite


class Program(Protocol):
    """Training of `n_seeds` independent runs, compiled. Every leaf of the state leads with S."""

    runner: Runner  # of one device

    @property
    def shape(self) -> RunnerState:
        """Shapes and types of a state and, where there are several devices, where its leaves lie."""
        ...

    def init(self, seed: int) -> RunnerState: ...

    def lower(self, state: RunnerState) -> jax.stages.Lowered:
        """`run` of states like this one, whose shapes will do, traced; once compiled, it is not compiled again."""
        ...

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        """Steps until every student has had `target_updates` gradient updates; one dispatch, `state` is donated.

        Stops early where a loss or a learnt parameter is not finite, and after `max_steps` steps.
        """
        ...

    def env_steps(self, state: RunnerState) -> np.ndarray:
        """i64[S], environment steps that the students have taken so far, on all devices; all processes have to ask."""
        ...


class SeedRunner:
    """A `Program` on one device."""

    def __init__(self, runner: Runner, n_seeds: int = 1):
        self.runner = runner
        self.n_seeds = n_seeds
        self._start = jax.jit(mapped(runner.init))  # traced once for its shapes and for `init`
        self._init = jax.jit(lambda keys: self._start(keys), compiler_options=RUN_ONCE)
        self._run = jax.jit(self.run_until, donate_argnums=0)

    @property
    def shape(self) -> RunnerState:
        return jax.eval_shape(self._start, seed_keys(0, self.n_seeds))

    def init(self, seed: int) -> RunnerState:
        """Seed i of the batch is `jax.random.key(seed + i)`: run i is the run that `seed + i` gives alone."""
        keys = seed_keys(seed, self.n_seeds)
        return (self._start if isinstance(keys, jax.core.Tracer) else self._init)(keys)  # RUN_ONCE is not for a part

    def lower(self, state: RunnerState) -> jax.stages.Lowered:
        return self._run.lower(state, np.int32(0), np.int32(0))

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        return self._run(state, np.int32(target_updates), np.int32(max_steps))

    def env_steps(self, state: RunnerState) -> np.ndarray:
        return counted_env_steps(self.runner, state)

    def run_until(
        self, state: RunnerState, target_updates: jax.Array, max_steps: jax.Array
    ) -> tuple[RunnerState, Report]:
        """`run`, pure. Wherever it is mapped over devices, all of them take the same number of steps."""
        step = jax.jit(mapped(self.runner.step, axis_name=axes.SEED))  # traced once for its shapes and the loop
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), jax.eval_shape(step, state)[1])
        sound = jnp.zeros(self.n_seeds, bool)

        def unfinished(state: RunnerState, n_steps: jax.Array, *bad: jax.Array) -> jax.Array:
            done = axes.everywhere_all(state.students.n_updates.min() >= target_updates)
            return ~done & (n_steps < max_steps) & axes.everywhere_all(~jnp.stack(bad).any())

        def one_step(loop: tuple[jax.Array, RunnerState, Any]) -> tuple[jax.Array, RunnerState, Any]:
            _, state, (total, count, n_steps, *_) = loop
            after, metrics = step(state)
            measured = jax.tree.map(jnp.isfinite, metrics)
            total = jax.tree.map(lambda t, m, ok: t + jnp.where(ok, m, 0.0), total, metrics, measured)
            count = jax.tree.map(lambda c, ok: c + ok, count, measured)
            trained = (after.students.n_updates > state.students.n_updates).any(axis=1)
            nonfinite = trained & ~(measured["loss"] & measured["grad_norm"])
            broken = ~finite(learnt_parameters(after.curriculum), self.n_seeds)
            going_on = unfinished(after, n_steps + 1, nonfinite, broken)
            return going_on, after, (total, count, n_steps + 1, nonfinite, broken)

        n_steps = jnp.zeros((), jnp.int32)
        start = (unfinished(state, n_steps, sound), state, (zero, zero, n_steps, sound, sound))
        _, state, (total, count, n_steps, nonfinite, broken) = jax.lax.while_loop(lambda loop: loop[0], one_step, start)
        means = jax.tree.map(lambda t, c: t / c, total, count)
        return state, Report(metrics=means, n_steps=n_steps, nonfinite=nonfinite, broken_curriculum=broken)


def counted_env_steps(runner: Runner, state: RunnerState, n_row_devices: int = 1) -> np.ndarray:
    """i64[S]; `n_row_devices` share the rows of a batch, and each has counted what its part of the curriculum added."""
    clock, extra = hosts.readable((state.clock, runner.extra_env_steps(state)))
    added = extra.number()
    of_seeds = added.sum(axis=1) if added.ndim > 1 else added
    return np.asarray(clock, np.int64) * (runner.env_steps_per_step * n_row_devices) + of_seeds


def seed_keys(seed: int | jax.Array, n_seeds: int) -> jax.Array:
    """key[S], of the seeds from `seed` on."""
    return jax.vmap(jax.random.key)(seed + jnp.arange(n_seeds))


def is_learner(part: Any) -> bool:
    """Whether a part of a state is what an agent learns."""
    return isinstance(part, TrainState)


def learnt_parameters(curriculum: Any) -> list[Any]:
    """The parameters of every agent that learns inside a curriculum's state (teachers); empty if none does."""
    return [part.params for part in jax.tree.leaves(curriculum, is_leaf=is_learner) if is_learner(part)]


def finite(tree: Any, n_seeds: int) -> jax.Array:
    """bool[S], whether all numbers of a seed are finite; every leaf of `tree` leads with S."""
    leaves = [jnp.isfinite(leaf).reshape(n_seeds, -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return jnp.stack([*leaves, jnp.ones(n_seeds, bool)]).all(axis=0)

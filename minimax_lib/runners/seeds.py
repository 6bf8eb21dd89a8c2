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

# A curriculum that never trains would keep the device for ever: after so many steps, control returns to the host.
MAX_STEPS = 100_000
OVER_EPISODES = ("return", "solved_rate")  # metrics that are means over the episodes that have ended
# Compiler options for drawing the first weights. That program runs once, and compiles in half the time with them.
RUN_ONCE = {"xla_backend_optimization_level": 1}


class Report(struct.PyTreeNode):
    """What was measured in one call of `Program.run`."""

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
        """`run`, traced for states like this one (its shapes will do); compiling this compiles `run` too."""
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
        # The state is donated: level buffers and optimisers would otherwise be in memory twice.
        self._run = jax.jit(self.run_until, donate_argnums=0)

    @property
    def shape(self) -> RunnerState:
        return jax.eval_shape(self._start, seed_keys(0, self.n_seeds))

    def init(self, seed: int) -> RunnerState:
        """Seed i of the batch is `jax.random.key(seed + i)`: run i is the run that `seed + i` gives alone."""
        keys = seed_keys(seed, self.n_seeds)
        # JAX takes compiler options for whole programs only, and this call may be a part of another program.
        return (self._start if isinstance(keys, jax.core.Tracer) else self._init)(keys)

    def lower(self, state: RunnerState) -> jax.stages.Lowered:
        return self._run.lower(state, np.int32(0), np.int32(0))

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        return self._run(state, np.int32(target_updates), np.int32(max_steps))

    def env_steps(self, state: RunnerState) -> np.ndarray:
        return counted_env_steps(self.runner, state)

    def run_until(
        self, state: RunnerState, target_updates: jax.Array, max_steps: jax.Array
    ) -> tuple[RunnerState, Report]:
        """`run` as a pure function. Mapped over devices, it takes the same number of steps on all of them."""
        step = jax.jit(mapped(self.runner.step, axis_name=axes.SEED))  # traced once for its shapes and the loop
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), jax.eval_shape(step, state)[1])
        sound = jnp.zeros(self.n_seeds, bool)

        # Steps exchange gradients and decisions. A device that left the loop early would keep the others waiting, so
        # the condition is reduced over all devices, and one bad seed stops every group.
        def unfinished(state: RunnerState, n_steps: jax.Array, *bad: jax.Array) -> jax.Array:
            done = axes.everywhere_all(state.students.n_updates.min() >= target_updates)
            return ~done & (n_steps < max_steps) & axes.everywhere_all(~jnp.stack(bad).any())

        def one_step(loop: tuple[jax.Array, RunnerState, Any]) -> tuple[jax.Array, RunnerState, Any]:
            _, state, (total, count, n_steps, *_) = loop
            after, metrics = step(state)
            # NaN says that there was nothing to measure (no loss on a step that only scores): each metric is a mean
            # over the steps that have it.
            measured = jax.tree.map(jnp.isfinite, metrics)
            weights = {name: ok * self._weight(name, metrics) for name, ok in measured.items()}
            known = jax.tree.map(lambda m, ok: jnp.where(ok, m, 0.0), metrics, measured)
            total = {name: t + known[name] * weights[name] for name, t in total.items()}
            count = {name: c + weights[name] for name, c in count.items()}
            # Without an update the losses are NaN by design, so that only a step that trained can have failed.
            trained = (after.students.n_updates > state.students.n_updates).any(axis=1)
            nonfinite = trained & ~(measured["loss"] & measured["grad_norm"])
            # A teacher's loss is none of the two above: its parameters show whether it is sound.
            broken = ~finite(learnt_parameters(after.curriculum), self.n_seeds)
            going_on = unfinished(after, n_steps + 1, nonfinite, broken)
            return going_on, after, (total, count, n_steps + 1, nonfinite, broken)

        n_steps = jnp.zeros((), jnp.int32)
        # The condition is asked before the first step too: a state that is at its target comes back as it was.
        start = (unfinished(state, n_steps, sound), state, (zero, zero, n_steps, sound, sound))
        _, state, (total, count, n_steps, nonfinite, broken) = jax.lax.while_loop(lambda loop: loop[0], one_step, start)
        means = jax.tree.map(lambda t, c: t / c, total, count)
        return state, Report(metrics=means, n_steps=n_steps, nonfinite=nonfinite, broken_curriculum=broken)

    def _weight(self, name: str, metrics: dict[str, jax.Array]) -> jax.Array | float:
        """What a step counts in the mean of the metric called `name` over an interval."""
        # Where episodes go on, a step may see few of them end or many: each of them should count once.
        of_episodes = name.split("/")[-1] in OVER_EPISODES or name.startswith("facts/")
        over_episodes = self.runner.continues and of_episodes
        return metrics["episodes"] if over_episodes else 1.0


def counted_env_steps(runner: Runner, state: RunnerState, n_row_devices: int = 1) -> np.ndarray:
    """i64[S], environment steps so far, with what the curriculum added to those of the rollouts.

    `n_row_devices` share the rows of a batch, and each has counted what its part of the curriculum added.
    """
    clock, extra = hosts.readable((state.clock, runner.extra_env_steps(state)))
    added = extra.number()
    # An axis behind S is that of the devices; a curriculum that adds nothing has no axes at all.
    of_seeds = added.sum(axis=1) if added.ndim > 1 else added
    # In 64 bits, which only the host has: 30,000 updates of 2,048 rows x 256 steps are 1.6e10.
    return np.asarray(clock, np.int64) * (runner.env_steps_per_step * n_row_devices) + of_seeds


def seed_keys(seed: int | jax.Array, n_seeds: int) -> jax.Array:
    """key[S], of the seeds from `seed` on."""
    # Not split from one key: each seed must give the run that it gives alone.
    return jax.vmap(jax.random.key)(seed + jnp.arange(n_seeds))


def is_learner(part: Any) -> bool:
    """Whether a part of a state is what an agent learns."""
    return isinstance(part, TrainState)


def learnt_parameters(curriculum: Any) -> list[Any]:
    """The parameters of every agent that learns inside a curriculum's state (teachers); empty if none does."""
    return [part.params for part in jax.tree.leaves(curriculum, is_leaf=is_learner) if is_learner(part)]


def finite(tree: Any, n_seeds: int) -> jax.Array:
    """bool[S], whether all numbers of a seed are finite; every leaf of `tree` leads with S."""
    # The ones stand for a tree without leaves, in which nothing can be broken.
    leaves = [jnp.isfinite(leaf).reshape(n_seeds, -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return jnp.stack([*leaves, jnp.ones(n_seeds, bool)]).all(axis=0)

"""Many seeds in one vmap, many updates in one dispatch."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.counts import Count
from minimax_lib.loops import RUN_ONCE
from minimax_lib.runners import hosts
from minimax_lib.runners.training import Runner, RunnerState
from minimax_lib.trees import mapped

# After so many steps, control returns to the host. A curriculum that never trains would otherwise run for ever.
MAX_STEPS = 100_000
OVER_EPISODES = ("return", "solved_rate")  # metrics that are means over the episodes that have ended


class Report(struct.PyTreeNode):
    """The measurements of one call of `Program.run`."""

    sums: dict[str, jax.Array]  # f32[S], of each metric over the steps on which it was measured
    weights: dict[str, jax.Array]  # f32[S], of these steps; 0 if there are none
    n_steps: jax.Array  # i32[], steps of the runner
    nonfinite: jax.Array  # bool[S], the last update's loss or gradient was not finite
    broken_curriculum: jax.Array  # bool[S], a parameter that the curriculum learns is not finite

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """f32[S], means over the steps on which each was measured; NaN if on none."""
        # On the host: a compiled program that gave NaN would be stopped by jax_debug_nans, the tool against real ones.
        return {name: _quotient(total, self.weights[name]) for name, total in self.sums.items()}


def _quotient(total: Any, weight: Any) -> Any:
    if isinstance(total, jax.core.Tracer):
        return total / weight
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(total) / np.asarray(weight)


class Program(Protocol):
    """The compiled training of `n_seeds` independent runs. Every leaf of the state leads with S."""

    runner: Runner  # the runner of one device

    @property
    def shape(self) -> RunnerState:
        """Shapes and types of a state. If there are several devices, also the sharding of its leaves."""
        ...

    def init(self, seed: int) -> RunnerState: ...

    def lower(self, state: RunnerState) -> jax.stages.Lowered:
        """`run`, traced for states like this one; its shapes are enough. Compiling this compiles `run` too."""
        ...

    def run(self, state: RunnerState, target_updates: int, max_steps: int = MAX_STEPS) -> tuple[RunnerState, Report]:
        """Steps until every student has had `target_updates` gradient updates. One dispatch; `state` is donated.

        Stops early if a loss or a learnt parameter is not finite, and after `max_steps` steps.
        """
        ...

    def env_steps(self, state: RunnerState) -> np.ndarray:
        """i64[S], environment steps of the students so far, on all devices. All processes must call this."""
        ...


class SeedRunner:
    """A `Program` on one device."""

    def __init__(self, runner: Runner, n_seeds: int = 1):
        self.runner = runner
        self.n_seeds = n_seeds
        self._start = jax.jit(mapped(runner.init))  # traced once for its shapes and for `init`
        self._init = jax.jit(lambda keys: self._start(keys), compiler_options=RUN_ONCE)
        # The state is donated. Otherwise level buffers and optimisers would be in memory twice.
        self._run = jax.jit(self.run_until, donate_argnums=0)

    @property
    def shape(self) -> RunnerState:
        # The keys are described too: of an impossible number of seeds, they would not fit into memory.
        return jax.eval_shape(lambda: self._start(seed_keys(0, self.n_seeds)))

    def init(self, seed: int) -> RunnerState:
        """Seed i of the batch is `jax.random.key(seed + i)`. So run i is the same run as `seed + i` alone."""
        keys = seed_keys(seed, self.n_seeds)
        # JAX takes compiler options only for whole programs, but this call may be a part of another program.
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
        """`run` as a pure function. Mapped over devices, it takes the same number of steps on each."""
        step = jax.jit(mapped(self.runner.step, axis_name=axes.SEED))  # traced once for its shapes and the loop
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), jax.eval_shape(step, state)[1])
        sound = jnp.zeros(self.n_seeds, bool)

        # Devices exchange gradients and decisions in every step. If one left the loop early, the others would wait for
        # it. So the condition is reduced over all devices, and one bad seed stops every group.
        def unfinished(state: RunnerState, n_steps: jax.Array, *bad: jax.Array) -> jax.Array:
            done = axes.everywhere_all(state.students.n_updates.min() >= target_updates)
            return ~done & (n_steps < max_steps) & axes.everywhere_all(~jnp.stack(bad).any())

        def one_step(loop: tuple[jax.Array, RunnerState, Any]) -> tuple[jax.Array, RunnerState, Any]:
            _, state, (total, count, n_steps, *_) = loop
            after, metrics = step(state)
            # NaN means that there was nothing to measure, as the loss on a step that only scores. So each metric is a
            # mean over the steps on which it was measured.
            measured = jax.tree.map(jnp.isfinite, metrics)
            weights = {name: ok * self._weight(name, metrics) for name, ok in measured.items()}
            known = jax.tree.map(lambda m, ok: jnp.where(ok, m, 0.0), metrics, measured)
            total = {name: t + known[name] * weights[name] for name, t in total.items()}
            count = {name: c + weights[name] for name, c in count.items()}
            # Without an update the losses are NaN by design. So only a step that trained can have failed.
            trained = (after.students.n_updates > state.students.n_updates).any(axis=1)
            nonfinite = trained & ~(measured["loss"] & measured["grad_norm"])
            # A teacher's loss is not among these metrics. Its parameters show whether it is finite.
            broken = ~finite(learnt_parameters(after.curriculum), self.n_seeds)
            going_on = unfinished(after, n_steps + 1, nonfinite, broken)
            return going_on, after, (total, count, n_steps + 1, nonfinite, broken)

        n_steps = jnp.zeros((), jnp.int32)
        # The condition is checked before the first step too, so a state that has reached its target is not changed.
        start = (unfinished(state, n_steps, sound), state, (zero, zero, n_steps, sound, sound))
        _, state, (total, count, n_steps, nonfinite, broken) = jax.lax.while_loop(lambda loop: loop[0], one_step, start)
        return state, Report(total, count, n_steps=n_steps, nonfinite=nonfinite, broken_curriculum=broken)

    def _weight(self, name: str, metrics: dict[str, jax.Array]) -> jax.Array | float:
        """The weight of a step in the mean of the metric `name` over an interval."""
        # If episodes go on in the next step, few or many of them may end in a step. Each episode should count once.
        of_episodes = name.split("/")[-1] in OVER_EPISODES or name.startswith("facts/")
        if not (self.runner.continues and of_episodes):
            return 1.0
        # Students finish their episodes at different times.
        own = f"{name.rpartition('/')[0]}/episodes"
        return metrics.get(own, metrics["episodes"])


def counted_env_steps(runner: Runner, state: RunnerState, n_row_devices: int = 1) -> np.ndarray:
    """i64[S], environment steps so far: those of the rollouts, and those that the curriculum added.

    A step counts for each agent that lives in it: with several in an environment, 128 that live are 128 steps.

    `n_row_devices` devices divide the rows of a batch. Each has counted the steps that its part of the curriculum
    added.
    """
    clock, idle, extra = hosts.readable((state.clock, state.idle, runner.extra_env_steps(state)))
    added = extra.number()
    # An axis after S is that of the devices. A curriculum that adds nothing has no axes at all.
    of_seeds = added.sum(axis=1) if added.ndim > 1 else added
    # In 64 bits, as only the host can: 30,000 updates of 2,048 rows x 256 steps are 1.6e10 steps.
    of_rows = np.asarray(clock, np.int64) * (runner.env_steps_per_step * n_row_devices)
    return of_rows - (idle.number() if isinstance(idle, Count) else 0) + of_seeds


def seed_keys(seed: int | jax.Array, n_seeds: int) -> jax.Array:
    """key[S], the keys of the seeds `seed`, `seed` + 1, ..."""
    # Not split from one key: each seed must give the same run as alone.
    return jax.vmap(jax.random.key)(seed + jnp.arange(n_seeds))


def is_learner(part: Any) -> bool:
    """Whether a part of a state belongs to an agent that learns."""
    return isinstance(part, TrainState)


def learnt_parameters(curriculum: Any) -> list[Any]:
    """The parameters of every agent that learns in a curriculum's state (a teacher); empty if there is none."""
    return [part.params for part in jax.tree.leaves(curriculum, is_leaf=is_learner) if is_learner(part)]


def finite(tree: Any, n_seeds: int) -> jax.Array:
    """bool[S], whether all numbers of a seed are finite. Every leaf of `tree` leads with S."""
    # The ones are the answer for a tree without leaves.
    leaves = [jnp.isfinite(leaf).reshape(n_seeds, -1).all(axis=1) for leaf in jax.tree.leaves(tree)]
    return jnp.stack([*leaves, jnp.ones(n_seeds, bool)]).all(axis=0)

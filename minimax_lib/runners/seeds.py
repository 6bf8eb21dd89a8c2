"""Many seeds in one vmap, many updates in one dispatch."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.runners.training import Runner, RunnerState


class Report(struct.PyTreeNode):
    """What an interval of training was like."""

    metrics: dict[str, jax.Array]  # f32[S], means over the steps on which they were measured; NaN if on none
    n_steps: jax.Array  # i32[], steps of the runner
    nonfinite: jax.Array  # bool[S], the last update's loss or gradient was not finite


class SeedRunner:
    """`n_seeds` independent runs of one runner, as one program. Every leaf of the state leads with S."""

    def __init__(self, runner: Runner, n_seeds: int = 1):
        self.runner = runner
        self.n_seeds = n_seeds
        self._init = jax.jit(jax.vmap(runner.init))
        self._run = jax.jit(self._run_until, donate_argnums=0)

    def init(self, seed: int) -> RunnerState:
        """Seed i of the batch is `jax.random.key(seed + i)`: run i is the run that `seed + i` gives alone."""
        return self._init(jax.vmap(jax.random.key)(seed + jnp.arange(self.n_seeds)))

    def run(self, state: RunnerState, target_updates: int, max_steps: int = 100_000) -> tuple[RunnerState, Report]:
        """Steps until every student has had `target_updates` gradient updates; one dispatch, `state` is donated.

        Stops early where a loss is not finite, and after `max_steps` steps.
        """
        return self._run(state, jnp.asarray(target_updates, jnp.int32), jnp.asarray(max_steps, jnp.int32))

    def _run_until(
        self, state: RunnerState, target_updates: jax.Array, max_steps: jax.Array
    ) -> tuple[RunnerState, Report]:
        step = jax.vmap(self.runner.step, axis_name=axes.SEED)
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), jax.eval_shape(step, state)[1])
        totals = (zero, zero, jnp.zeros((), jnp.int32), jnp.zeros(self.n_seeds, bool))

        def unfinished(loop: tuple[RunnerState, Any]) -> jax.Array:
            state, (_, _, n_steps, nonfinite) = loop
            behind = state.students.n_updates.min() < target_updates
            return behind & (n_steps < max_steps) & ~nonfinite.any()

        def one_step(loop: tuple[RunnerState, Any]) -> tuple[RunnerState, Any]:
            state, (total, count, n_steps, _) = loop
            after, metrics = step(state)
            measured = jax.tree.map(jnp.isfinite, metrics)
            total = jax.tree.map(lambda t, m, ok: t + jnp.where(ok, m, 0.0), total, metrics, measured)
            count = jax.tree.map(lambda c, ok: c + ok, count, measured)
            trained = (after.students.n_updates > state.students.n_updates).any(axis=1)
            nonfinite = trained & ~(measured["loss"] & measured["grad_norm"])
            return after, (total, count, n_steps + 1, nonfinite)

        state, (total, count, n_steps, nonfinite) = jax.lax.while_loop(unfinished, one_step, (state, totals))
        means = jax.tree.map(lambda t, c: t / c, total, count)
        return state, Report(metrics=means, n_steps=n_steps, nonfinite=nonfinite)

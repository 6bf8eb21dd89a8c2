"""A point of a box that moves from a start to an end."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.tasks.core import Results


class AnnealingState(struct.PyTreeNode):
    steps: jax.Array  # i32[], of the attempts that have ended; it stops at the largest total


@dataclasses.dataclass(frozen=True)
class SimulatedAnnealing:
    """Every draw is the same point: it has gone the share of steps / `total_steps` of its way, in each dimension.

    Tasks are f32[D], points of a box. The steps of an attempt count when it ends.
    """

    start: tuple[float, ...]
    end: tuple[float, ...]
    total_steps: tuple[int, ...]  # one for all dimensions, or one each

    n_tasks = None
    reads_scores = False

    def __post_init__(self) -> None:
        for name, kind in (("start", np.float32), ("end", np.float32), ("total_steps", np.int64)):
            values = np.atleast_1d(np.asarray(getattr(self, name), kind))
            object.__setattr__(self, name, tuple(values.tolist()))
        sizes = {len(self.start), len(self.end)} | ({len(self.total_steps)} - {1})
        if len(sizes) != 1 or not self.start:
            raise ValueError(
                f"start is {self.start}, end is {self.end}, total_steps is {self.total_steps}: they need one length"
            )
        if not np.isfinite([*self.start, *self.end]).all():
            raise ValueError(f"start is {self.start}, end is {self.end}: all numbers must be finite")
        if not all(1 <= total < 2**31 for total in self.total_steps):
            raise ValueError(f"total_steps is {self.total_steps}: it must be at least 1 and less than {2**31}")

    def init(self, key: jax.Array) -> AnnealingState:
        return AnnealingState(jnp.zeros((), jnp.int32))

    def point(self, state: AnnealingState) -> jax.Array:
        """f32[D]"""
        start, end = jnp.asarray(self.start, jnp.float32), jnp.asarray(self.end, jnp.float32)
        totals = jnp.asarray(self.total_steps, jnp.int32)
        share = jnp.minimum(state.steps, totals).astype(jnp.float32) / totals.astype(jnp.float32)
        return jnp.where(share < 1, start + (end - start) * share, end)

    def sample(self, key: jax.Array, state: AnnealingState, n: int) -> jax.Array:
        return jnp.tile(self.point(state), (n, 1))

    def started(self, state: AnnealingState, tasks: jax.Array, valid: jax.Array) -> AnnealingState:
        return state

    def update(self, state: AnnealingState, results: Results) -> AnnealingState:
        more = jnp.where(results.valid, results.length, 0).sum(dtype=jnp.int32)
        return state.replace(steps=state.steps + jnp.minimum(more, max(self.total_steps) - state.steps))

    def weights(self, state: AnnealingState) -> None:
        return None

    def report(self, state: AnnealingState) -> dict[str, jax.Array]:
        return {"tasks/annealed": state.steps.astype(jnp.float32) / max(self.total_steps)}

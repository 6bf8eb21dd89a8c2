"""A range that grows as long as the student succeeds."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.tasks.core import Results
from minimax_lib.tasks.ordered import in_order
from minimax_lib.tasks.rates import check_at_least


class ExpandingBoxState(struct.PyTreeNode):
    size: jax.Array  # i32[], from 1 to `steps`: how far the range has grown
    successes: jax.Array  # i32[], in a row, since it has grown last


@dataclasses.dataclass(frozen=True)
class ExpandingBox:
    """A range in the middle of one dimension grows while the students succeed. The other dimensions stay uniform.

    The task is a range f32[2], its lower and upper end, from which the environment draws what it needs. The range
    begins around the middle of `low` and `high`. After `required` attempts in a row with more progress than
    `threshold`, it grows at both ends, until it reaches `low` and `high` in `steps` sizes. Only attempts from the
    whole range count: those that end later, from the smaller one before, say nothing about it.

    Attempts are in the order in which they end. Of many rows that begin together, quick successes come first, so
    `required` should be well above the number of rows where failures take longer.
    """

    low: float
    high: float
    steps: int = 5
    """Sizes of the range, of which the last is the whole dimension."""
    threshold: float = 0.75
    """Progress that an attempt must exceed to be a success."""
    required: int = 10
    """Successes in a row before the range grows."""

    n_tasks = None
    reads_scores = False

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise ValueError(f"low is {self.low} and high is {self.high}: low must be below high, and both finite")
        if not -np.inf < self.threshold < 1:
            raise ValueError(f"threshold is {self.threshold}: it must be below 1, since no progress exceeds 1")
        check_at_least("steps", self.steps, 1)
        check_at_least("required", self.required, 1)

    def init(self, key: jax.Array) -> ExpandingBoxState:
        return ExpandingBoxState(jnp.ones((), jnp.int32), jnp.zeros((), jnp.int32))

    def range(self, state: ExpandingBoxState) -> jax.Array:
        """f32[2]"""
        middle, step = (self.low + self.high) / 2, (self.high - self.low) / 2 / self.steps
        # A table, since sums of float32 steps would miss the ends.
        sizes = np.arange(1, self.steps + 1)[:, None] * step * np.array([-1.0, 1.0]) + middle
        sizes[-1] = self.low, self.high
        return jnp.asarray(sizes, jnp.float32)[state.size - 1]

    def sample(self, key: jax.Array, state: ExpandingBoxState, n: int) -> jax.Array:
        return jnp.tile(self.range(state), (n, 1))

    def started(self, state: ExpandingBoxState, tasks: jax.Array, valid: jax.Array) -> ExpandingBoxState:
        return state

    def update(self, state: ExpandingBoxState, results: Results) -> ExpandingBoxState:
        def one(state: ExpandingBoxState, i: jax.Array) -> ExpandingBoxState:
            is_full = state.size == self.steps
            is_of_it = (results.task[i] == self.range(state)).all()
            counted = jnp.where(results.progress[i] > self.threshold, state.successes + 1, 0)
            grows = ~is_full & (counted >= self.required)
            successes = jnp.where(is_full, state.successes, jnp.where(grows, 0, counted))
            after = ExpandingBoxState(state.size + grows.astype(jnp.int32), successes)
            return jax.tree.map(lambda new, old: jnp.where(is_of_it, new, old), after, state)

        return in_order(one, state, results.valid)

    def weights(self, state: ExpandingBoxState) -> None:
        return None

    def report(self, state: ExpandingBoxState) -> dict[str, jax.Array]:
        return {"tasks/range": state.size.astype(jnp.float32) / self.steps}

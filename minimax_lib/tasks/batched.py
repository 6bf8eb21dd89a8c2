"""One random task for all rows, and after a while another one."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results
from minimax_lib.tasks.rates import check_at_least, check_share
from minimax_lib.tasks.weighted import Weighted


class BatchedState(struct.PyTreeNode):
    """The task of batch i follows from the seed and i."""

    seed: jax.Array  # u32[]
    batch: jax.Array  # i32[]
    steps: jax.Array  # i32[], of the attempts that ended since the batch began


class _InBatches(Weighted):
    """The common part of both kinds."""

    warmup: int
    uniform_chance: float

    def init(self, key: jax.Array) -> BatchedState:
        zero = jnp.zeros((), jnp.int32)
        return BatchedState(jax.random.bits(key, (), jnp.uint32), zero, zero)

    def task(self, state: BatchedState) -> jax.Array:
        """i32[], the task of the batch."""
        key = jax.random.fold_in(jax.random.key(state.seed), state.batch)
        return jax.random.randint(key, (), 0, self.n_tasks, jnp.int32)

    def weights(self, state: BatchedState) -> jax.Array:
        uniform = jnp.where(state.batch < self.warmup, 1.0, self.uniform_chance)
        common = (jnp.arange(self.n_tasks, dtype=jnp.int32) == self.task(state)).astype(jnp.float32)
        return uniform / self.n_tasks + (1.0 - uniform) * common

    def report(self, state: BatchedState) -> dict[str, jax.Array]:
        return {"tasks/batch": state.batch.astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class BatchedUniform(_InBatches):
    """One random task for all rows, and after a number of steps another one.

    The steps of an attempt count when it ends.
    """

    n_tasks: int
    batch_steps: int = 100_000
    """Environment steps of ended attempts before the task changes."""
    warmup: int = 5
    """Batches at the beginning in which each draw alone is uniform."""

    uniform_chance = 0.0

    def __post_init__(self) -> None:
        check_at_least("n_tasks", self.n_tasks, 1)
        check_at_least("batch_steps", self.batch_steps, 1)
        check_at_least("warmup", self.warmup, 0)

    def update(self, state: BatchedState, results: Results) -> BatchedState:
        steps = state.steps + jnp.where(results.valid, results.length, 0).sum(dtype=jnp.int32)
        return state.replace(batch=state.batch + steps // self.batch_steps, steps=steps % self.batch_steps)


@dataclasses.dataclass(frozen=True)
class SyncedUniform(_InBatches):
    """All attempts are on one random task until the host calls `next_batch`. Some draws alone are uniform."""

    n_tasks: int
    warmup: int = 1
    uniform_chance: float = 0.05

    def __post_init__(self) -> None:
        check_at_least("n_tasks", self.n_tasks, 1)
        check_at_least("warmup", self.warmup, 0)
        check_share("uniform_chance", self.uniform_chance)

    def next_batch(self, state: BatchedState) -> BatchedState:
        """The state after which all rows get another task."""
        return state.replace(batch=state.batch + 1)

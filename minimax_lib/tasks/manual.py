"""Tasks in the order in which they are given."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results
from minimax_lib.tasks.rates import check_at_least


class ManualState(struct.PyTreeNode):
    """A queue of at most C tasks. The first `count` entries are waiting."""

    queue: jax.Array  # i32[C]
    count: jax.Array  # i32[]
    last: jax.Array  # i32[], the task that was begun last
    empty: jax.Array  # i32[], attempts that began when no task was waiting
    dropped: jax.Array  # i32[], tasks that found the queue full


@dataclasses.dataclass(frozen=True)
class Manual:
    """The tasks that `put` has queued, first in, first out. If none is left, the last task is repeated."""

    n_tasks: int
    capacity: int = 1024

    reads_scores = False
    from_weights = False

    def __post_init__(self) -> None:
        check_at_least("n_tasks", self.n_tasks, 1)
        check_at_least("capacity", self.capacity, 1)

    def init(self, key: jax.Array) -> ManualState:
        zero = jnp.zeros((), jnp.int32)
        return ManualState(jnp.zeros(self.capacity, jnp.int32), zero, zero, zero, zero)

    def put(self, state: ManualState, tasks: jax.Array) -> ManualState:
        """The state with `tasks` (i32[M]) at the end of the queue. Those that find it full are dropped and counted."""
        places = state.count + jnp.arange(len(tasks), dtype=jnp.int32)
        fits = jnp.clip(self.capacity - state.count, 0, len(tasks))
        queue = state.queue.at[places].set(tasks, mode="drop")
        return state.replace(queue=queue, count=state.count + fits, dropped=state.dropped + len(tasks) - fits)

    def sample(self, key: jax.Array, state: ManualState, n: int) -> jax.Array:
        places = jnp.arange(n, dtype=jnp.int32)
        final = jnp.where(state.count > 0, state.queue[jnp.maximum(state.count - 1, 0)], state.last)
        return jnp.where(places < state.count, state.queue[jnp.minimum(places, self.capacity - 1)], final)

    def started(self, state: ManualState, tasks: jax.Array, valid: jax.Array) -> ManualState:
        """Each attempt takes the first entry of its task out of the queue: of many draws, only some may be begun."""
        begun = jnp.zeros(self.n_tasks, jnp.int32).at[tasks].add(valid.astype(jnp.int32))
        waits = jnp.arange(self.capacity, dtype=jnp.int32) < state.count
        earlier = _equal_before(jnp.where(waits, state.queue, self.n_tasks))
        taken = waits & (earlier < begun[state.queue])
        order = jnp.argsort(~waits | taken, stable=True)
        n_taken, n_begun = taken.sum(dtype=jnp.int32), valid.sum(dtype=jnp.int32)
        newest = jnp.where(valid, jnp.arange(len(tasks), dtype=jnp.int32), -1).max()
        return state.replace(
            queue=state.queue[order],
            count=state.count - n_taken,
            last=jnp.where(newest >= 0, tasks[jnp.maximum(newest, 0)], state.last),
            empty=state.empty + n_begun - n_taken,
        )

    def update(self, state: ManualState, results: Results) -> ManualState:
        return state

    def weights(self, state: ManualState) -> jax.Array:
        """The shares of the tasks that wait; of the last task, if none does."""
        waits = (jnp.arange(self.capacity, dtype=jnp.int32) < state.count).astype(jnp.float32)
        found = jnp.zeros(self.n_tasks, jnp.float32).at[state.queue].add(waits)
        last = (jnp.arange(self.n_tasks, dtype=jnp.int32) == state.last).astype(jnp.float32)
        return jnp.where(state.count > 0, found / jnp.maximum(state.count, 1), last)

    def report(self, state: ManualState) -> dict[str, jax.Array]:
        return {
            "manual/waiting": state.count.astype(jnp.float32),
            "manual/empty": state.empty.astype(jnp.float32),
            "manual/dropped": state.dropped.astype(jnp.float32),
        }


def _equal_before(values: jax.Array) -> jax.Array:
    """i32[C]: how many entries before each one are equal to it."""
    order = jnp.argsort(values, stable=True)
    ordered, places = values[order], jnp.arange(len(values), dtype=jnp.int32)
    differs = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    begins = jnp.where(differs, places, 0)
    return jnp.zeros_like(places).at[order].set(places - jax.lax.cummax(begins))

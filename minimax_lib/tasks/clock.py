"""When each task was last begun."""

import jax
import jax.numpy as jnp
from flax import struct

MOST = 2**29  # no age is counted further than this


class Begun(struct.PyTreeNode):
    """Counts the attempts that have begun, on all tasks together."""

    last: jax.Array  # i32[N], the number of the latest attempt on each task; 0: none
    count: jax.Array  # i32[], attempts so far, less `MOST` whenever they would be more than twice as many

    @staticmethod
    def none(n_tasks: int) -> "Begun":
        """Nothing has begun."""
        return Begun(last=jnp.zeros(n_tasks, jnp.int32), count=jnp.zeros((), jnp.int32))

    def after(self, tasks: jax.Array, valid: jax.Array) -> "Begun":
        """With attempts on `tasks` (i32[M]), one after another. Those not `valid` (bool[M]) do not count."""
        number = self.count + jnp.cumsum(valid, dtype=jnp.int32)
        last, count = self.last.at[tasks].max(jnp.where(valid, number, 0)), number[-1]
        # Only differences are read. So all numbers go down together, long before they would wrap round.
        past = jnp.where(count > 2 * MOST, MOST, 0)
        return Begun(last=jnp.maximum(last - past, 0), count=count - past)

    def ages(self) -> jax.Array:
        """i32[N], attempts since each task was last begun."""
        return self.count - self.last


def last_entries(n_tasks: int, tasks: jax.Array, valid: jax.Array) -> jax.Array:
    """i32[n_tasks]: the last of the `valid` entries of `tasks` (i32[M]) that is each task; -1 where there is none."""
    # A scatter with repeated indices has no order on an accelerator; a maximum needs none.
    places = jnp.where(valid, jnp.arange(len(tasks), dtype=jnp.int32), -1)
    return jnp.full(n_tasks, -1, jnp.int32).at[tasks].max(places)

"""Random cells."""

import jax
import jax.numpy as jnp


def draw_cell(key: jax.Array, wanted: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(row i32[], column i32[], found bool[]): uniform over the `wanted` cells (bool[h, w]), if there are any."""
    # First the row of wanted cell number `drawn`, then its place in that row. Ranks of all cells at once would take
    # several times as long.
    up_to_row = jnp.cumsum(jnp.sum(wanted, axis=1, dtype=jnp.int32))
    n_wanted = up_to_row[-1]
    drawn = jax.random.randint(key, (), 0, jnp.maximum(n_wanted, 1))
    found = n_wanted > 0
    # The rows before it are those that end with a rank of at most `drawn`, and their number is its index. It is outside
    # the grid if none is wanted.
    y = jnp.where(found, jnp.sum(up_to_row <= drawn, dtype=jnp.int32), 0)
    up_to_cell = jnp.cumsum(wanted[y], dtype=jnp.int32)
    x = jnp.sum(up_to_cell <= drawn - (up_to_row[y] - up_to_cell[-1]), dtype=jnp.int32)
    return y, jnp.where(found, x, 0), found

"""Random cells."""

import jax
import jax.numpy as jnp


def draw_cell(key: jax.Array, wanted: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(row i32[], column i32[], found bool[]): uniform over the `wanted` cells (bool[h, w]), if there are any."""
    ranks = jnp.cumsum(wanted.reshape(-1), dtype=jnp.int32)
    drawn = jax.random.randint(key, (), 0, jnp.maximum(ranks[-1], 1))
    # The index of wanted cell number `drawn`: the cells before it are those with a rank of at most `drawn`, and their
    # number is its index. It is outside the grid if none is wanted.
    cell = jnp.sum(ranks <= drawn, dtype=jnp.int32)
    found = ranks[-1] > 0
    y, x = jnp.divmod(jnp.where(found, cell, 0), wanted.shape[1])
    return y, x, found

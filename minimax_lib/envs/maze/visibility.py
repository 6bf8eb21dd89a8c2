"""MiniGrid's shadow casting."""

import jax
import jax.numpy as jnp


def visible_cells(clear: jax.Array) -> jax.Array:
    """bool[v, v]: what an agent in the middle of the last row sees, given which cells can be seen through.

    MiniGrid's `Grid.process_vis`: from the last row upwards, sight spreads to the right, then to the left, through
    clear cells, and from each clear cell it passed to the three cells above. The agent's own cell is seen through
    (MiniGrid never has a wall there).
    """
    size = clear.shape[-1]
    row = jnp.arange(size) == size // 2
    rows = []
    for i in range(size - 1, -1, -1):
        row = _spread(row, clear[i], 1)
        lit = row[: size - 1] & clear[i, : size - 1]
        above = jnp.zeros_like(row).at[: size - 1].set(lit)
        above = above.at[1:].set(above[1:] | lit)
        row = _spread(row, clear[i], -1)
        lit = row[1:] & clear[i, 1:]
        above = above.at[1:].set(above[1:] | lit)
        above = above.at[: size - 1].set(above[: size - 1] | lit)
        rows.append(row)
        row = above
    return jnp.stack(rows[::-1])


def _shift(row: jax.Array, by: int) -> jax.Array:
    """`row` moved `by` cells to the right (left if negative), False coming in."""
    gap = jnp.zeros(abs(by), bool)
    return jnp.concatenate([gap, row[:-by]]) if by > 0 else jnp.concatenate([row[-by:], gap])


def _spread(seen: jax.Array, clear: jax.Array, way: int) -> jax.Array:
    """`seen` and all cells that it reaches through clear cells, going `way` (1 right, -1 left); log2(v) shifts."""
    through = _shift(clear, way)
    by = 1
    while by < seen.shape[0]:
        seen = seen | (through & _shift(seen, way * by))
        through = through & _shift(through, way * by)
        by *= 2
    return seen

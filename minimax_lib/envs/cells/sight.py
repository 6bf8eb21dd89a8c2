"""MiniGrid's shadow casting: what an agent sees in the square ahead of it."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.bits import to_words


def visible_cells(clear: jax.Array) -> jax.Array:
    """bool[v, v]: the cells that the agent sees, if it can see through those of `clear` (bool[v, v]). v is at most 31.

    The rule is that of MiniGrid's `Grid.process_vis`. It goes row by row, from the agent's row upwards. In a row, sight
    spreads through clear cells to the right, and then to the left. In both directions, a clear cell that is seen
    lights the cell above it and the cell above its neighbour.
    """
    # A row is the bits of a word, with the leftmost cell as the lowest bit. So a few operations spread the sight of all
    # cells of a row.
    size = clear.shape[0]
    leftmost, rightmost = np.uint32(1), np.uint32(1 << (size - 1))

    def cast(seen: jax.Array, clear: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen = _spread(seen, clear, size, jnp.left_shift)
        # Computed before the second pass, because MiniGrid's first pass does not know the cells that only the second
        # one reaches. The first pass leaves out the last column, and the second pass the first: they have no neighbour
        # to light.
        rightwards = seen & clear & ~rightmost
        seen = _spread(seen, clear, size, jnp.right_shift)
        leftwards = seen & clear & ~leftmost
        above = rightwards | (rightwards << 1) | leftwards | (leftwards >> 1)
        return above, seen

    rows = to_words(clear.reshape(-1), per_word=size)
    _, seen = jax.lax.scan(cast, jnp.full((), 1 << (size // 2), jnp.uint32), rows, reverse=True)
    return (seen[:, None] >> np.arange(size, dtype=np.uint32)[None, :]) & 1 == 1


def _spread(seen: jax.Array, clear: jax.Array, size: int, move: Callable) -> jax.Array:
    """`seen`, and all cells of its row that sight reaches from there through clear cells, in the direction of `move`.

    The distance doubles with each pass, so there are log2(v) passes.
    """
    # Bits that leave the row do no harm: `clear` has no bit there, so nothing spreads from them.
    through = move(clear, 1)
    by = 1
    while by < size:
        seen = seen | (through & move(seen, by))
        through = through & move(through, by)
        by *= 2
    return seen

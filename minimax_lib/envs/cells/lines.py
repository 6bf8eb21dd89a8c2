"""The lines of a grid as the bits of words, from which a view is looked up row by row instead of cell by cell.

The code is written so that XLA compiles it to few and short loops. docs/speed.md lists what was tried and was slower.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.bits import WORD, reverse


class ViewSize(NamedTuple):
    """A rectangle of cells round an agent that looks upwards in it."""

    front: int  # rows ahead of the agent's own
    back: int  # rows behind it
    side: int  # columns to either side of it; 2 * side + 1 is at most 31

    @property
    def height(self) -> int:
        """Rows, with the agent's own."""
        return self.front + 1 + self.back

    @property
    def width(self) -> int:
        """Columns."""
        return 2 * self.side + 1


def packed_view(walls: jax.Array, pos: jax.Array, facing: jax.Array, view: ViewSize) -> jax.Array:
    """u32[n]: the rows of the view as bits (`rows_a_word` a word, `unpacked`); 1 for `walls` (bool[h, w]) and outside.

    A row of the view is a piece of one line of the grid: of a column if the agent faces right or left, of a row if it
    faces up or down. So all lines of the grid are packed into words, and one word is looked up for each row.
    """
    reach, side, width = max(view.front, view.back), view.side, view.width
    # The words depend only on the walls. In a loop over the same levels, XLA packs them once, before the loop.
    rows, columns = (packed_lines(cells, width, reach, side) for cells in (walls, walls.T))
    # Rows and columns are in one array, so that one lookup serves all four directions.
    lines = jnp.concatenate([rows.reshape(-1), columns.reshape(-1)])

    sideways = (facing & 1) == 0  # right is 0 and left is 2
    line, cell = jnp.where(sideways, pos[0], pos[1]), jnp.where(sideways, pos[1], pos[0])  # the agent's place
    # If the agent faces down or left, its left is the high end of a line. Several lines share a word, which is then
    # reversed as a whole. So its lines are looked up in the opposite order.
    mirrored, together = (facing == 1) | (facing == 2), rows_a_word(view.height, width)
    distances = np.arange(view.front, -view.back - 1, -1, dtype=np.int32)
    ahead = jnp.where(mirrored, distances.reshape(-1, together)[:, ::-1].reshape(-1), distances)
    # Right and down look towards higher coordinates. `reach` counts the walls that are added before the first line.
    line = line + reach + jnp.where(facing < 2, ahead, -ahead)
    word = cell // stretch(width)  # `cell` counts from the first added wall, as the first visible cell does
    index = jnp.where(sideways, rows.size + line * columns.shape[1], line * rows.shape[1]) + word
    # Every index is in bounds: enough walls are added on each side for everything that the agent can see.
    seen = lines.at[index].get(mode="promise_in_bounds") >> (cell - word * stretch(width)).astype(jnp.uint32)
    words = joined(seen & np.uint32((1 << width) - 1), width, together)
    # To store each line both ways was no faster.
    return jnp.where(mirrored, reverse(words, together * width), words)


def rows_a_word(height: int, width: int) -> int:
    """The number of rows of a view that share a word: a divisor of `height`, so that all words are full."""
    return max(n for n in range(1, height + 1) if height % n == 0 and n * width <= WORD)


def stretch(width: int) -> int:
    """The number of cells from the start of one word of a packed line to the start of the next.

    Words overlap by width - 1 cells. So any `width` neighbouring cells are in one word, and one lookup finds them.
    """
    return WORD + 1 - width


def packed_lines(walls: jax.Array, width: int, reach: int, side: int) -> jax.Array:
    """u32[h + 2 reach, n]: the rows of bool[h, w] as bits, for views of `width` cells of a line.

    Walls are added: `reach` lines above and below, and `side` cells before and after each line. Word i of a row starts
    at cell i * stretch, counted from the first added wall, and holds 32 cells.
    """
    n_cells = walls.shape[1]
    words = []
    for start in range(-side, n_cells + side - width + 1, stretch(width)):
        cells = start + np.arange(WORD)
        inside = (cells >= 0) & (cells < n_cells)
        # All bits outside the grid are walls. They are known before the program runs.
        border = np.uint32(sum(1 << int(bit) for bit in np.flatnonzero(~inside)))
        within = walls[:, max(start, 0) : start + WORD]
        bits = np.flatnonzero(inside).astype(np.uint32)
        # Each bit is a different power of two, so the sum is their union.
        words.append(jnp.sum(within.astype(jnp.uint32) << bits[None], axis=1, dtype=jnp.uint32) | border)
    return jnp.pad(jnp.stack(words, axis=1), ((reach, reach), (0, 0)), constant_values=np.uint32(0xFFFFFFFF))


def joined(rows: jax.Array, width: int, together: int) -> jax.Array:
    """u32[h / n] of the `width` lowest bits of u32[h], n = `together` rows a word; all higher bits are 0.

    XLA computes a reduction once, but it repeats an element-wise function for each pixel that depends on it. Without
    the reduction, the walls of every cell would be looked up once for each pixel.
    """
    shifts = np.arange(together, dtype=np.uint32) * np.uint32(width)
    return jnp.sum(rows.reshape(-1, together) << shifts[None], axis=1, dtype=jnp.uint32)


def unpacked(words: jax.Array, height: int, width: int) -> jax.Array:
    """bool[height, width] from its rows in words (`joined`)."""
    # A flat range: XLA counts it, and compiles shorter loops. A table of two axes would be read from memory.
    place = jnp.arange(rows_a_word(height, width) * width, dtype=jnp.uint32)[None]
    return ((words[:, None] >> place) & 1 == 1).reshape(height, width)

"""What the agent sees: MiniGrid's image of the square ahead of it, [row, column]. Row 0 is the farthest.

An environment step spends most of its time here. The code is written so that XLA compiles it to few and short loops.
docs/speed.md lists what was tried and was slower.
"""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.bits import WORD, reverse
from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.maze.level import AGENT, EMPTY, GOAL, UNSEEN, WALL, Level


def walls_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: true for walls and for all cells outside the grid. v is at most 31.

    A row of the view is a piece of one line of the grid: of a column if the agent faces right or left, of a row if it
    faces up or down. So all lines of the grid are packed into words, and v words are looked up instead of v * v cells.
    """
    wall_map, reach = jnp.asarray(level.wall_map), view_size - 1
    # The words depend only on the walls. In a loop over the same levels, XLA packs them once, before the loop.
    rows, columns = packed_lines(wall_map, view_size), packed_lines(wall_map.T, view_size)
    # Rows and columns are in one array, so that one lookup serves all four directions.
    lines = jnp.concatenate([rows.reshape(-1), columns.reshape(-1)])

    sideways = (facing & 1) == 0  # right is 0 and left is 2
    line, cell = jnp.where(sideways, pos[0], pos[1]), jnp.where(sideways, pos[1], pos[0])  # the agent's place
    # If the agent faces down or left, its left is the high end of a line. Several lines share a word, which is then
    # reversed as a whole. So its lines are looked up in the opposite order.
    mirrored, together = (facing == 1) | (facing == 2), rows_a_word(view_size)
    distances = np.arange(view_size - 1, -1, -1, dtype=np.int32)
    ahead = jnp.where(mirrored, distances.reshape(-1, together)[:, ::-1].reshape(-1), distances)
    # Right and down look towards higher coordinates. `reach` counts the walls that are added before the first line.
    line = line + reach + jnp.where(facing < 2, ahead, -ahead)
    first = cell + reach - view_size // 2  # the lowest visible cell of each line
    word = first // stretch(view_size)
    index = jnp.where(sideways, rows.size + line * columns.shape[1], line * rows.shape[1]) + word
    # Every index is in bounds: enough walls are added on each side for everything that the agent can see.
    seen = lines.at[index].get(mode="promise_in_bounds") >> (first - word * stretch(view_size)).astype(jnp.uint32)
    words = joined(seen & np.uint32((1 << view_size) - 1), view_size)
    # To store each line both ways was no faster.
    words = jnp.where(mirrored, reverse(words, together * view_size), words)
    return unpacked(words, view_size)


def rows_a_word(size: int) -> int:
    """The number of rows of a view that share a word: a divisor of `size`, so that all words are full."""
    return max(n for n in range(1, size + 1) if size % n == 0 and n * size <= WORD)


def stretch(view_size: int) -> int:
    """The number of cells from the start of one word of a packed line to the start of the next.

    Words overlap by v - 1 cells. So any v neighbouring cells are in one word, and one lookup finds them.
    """
    return WORD + 1 - view_size


def packed_lines(wall_map: jax.Array, view_size: int) -> jax.Array:
    """u32[h + 2 (v - 1), n]: the rows of bool[h, w] as bits, after v - 1 walls are added on all four sides.

    Word i of a row starts at cell i * stretch, counted from the first added wall, and holds 32 cells.
    """
    width, reach = wall_map.shape[1], view_size - 1
    words = []
    for start in range(-reach, width + reach - view_size + 1, stretch(view_size)):
        cells = start + np.arange(WORD)
        inside = (cells >= 0) & (cells < width)
        # All bits outside the grid are walls. They are known before the program runs.
        border = np.uint32(sum(1 << int(bit) for bit in np.flatnonzero(~inside)))
        within = wall_map[:, max(start, 0) : start + WORD]
        bits = np.flatnonzero(inside).astype(np.uint32)
        # Each bit is a different power of two, so the sum is their union.
        words.append(jnp.sum(within.astype(jnp.uint32) << bits[None], axis=1, dtype=jnp.uint32) | border)
    return jnp.pad(jnp.stack(words, axis=1), ((reach, reach), (0, 0)), constant_values=np.uint32(0xFFFFFFFF))


def joined(rows: jax.Array, size: int) -> jax.Array:
    """u32[v / n] of the `size` lowest bits of u32[v], n rows a word (`rows_a_word`); all higher bits are 0.

    XLA computes a reduction once, but it repeats an element-wise function for each pixel that depends on it. Without
    the reduction, the walls of every cell would be looked up once for each pixel.
    """
    together = rows_a_word(size)
    shifts = np.arange(together, dtype=np.uint32) * np.uint32(size)
    return jnp.sum(rows.reshape(-1, together) << shifts[None], axis=1, dtype=jnp.uint32)


def unpacked(words: jax.Array, size: int) -> jax.Array:
    """bool[size, size] from its rows in words (`joined`)."""
    # A flat range: XLA counts it, and compiles shorter loops. A table of two axes would be read from memory.
    place = jnp.arange(rows_a_word(size) * size, dtype=jnp.uint32)[None]
    return ((words[:, None] >> place) & 1 == 1).reshape(size, size)


def goal_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: the cell where the agent sees the goal. It does not see the goal in its own cell."""
    dx, dy = direction_vector(facing)
    x, y = level.goal_pos[0] - pos[0], level.goal_pos[1] - pos[1]
    # The goal's position is rotated into the view. To rotate the view into the grid would take v * v positions.
    row, column = view_size - 1 - (x * dx + y * dy), view_size // 2 + y * dx - x * dy
    # In the agent's own cell, MiniGrid shows what it carries. Here that is nothing, even if it stands on the goal.
    seen = (row >= 0) & (row < view_size) & (column >= 0) & (column < view_size) & ((x != 0) | (y != 0))
    # A sum of two numbers is a reduction, which XLA computes once, not for each pixel (see `joined`).
    # To look up the goal together with the walls saved a kernel, but was slower.
    summands = jnp.where(np.arange(2) == 0, row * view_size, column)
    # A goal that is not visible gets a negative number, which is no cell of the view.
    cell = jnp.where(seen, summands, -(view_size**2)).sum(dtype=jnp.int32)
    return (jnp.arange(view_size**2, dtype=jnp.int32) == cell).reshape(view_size, view_size)  # flat, as in `unpacked`


def paint(walls: jax.Array, goal: jax.Array, visible: jax.Array | None) -> jax.Array:
    """u8[v, v, 3]: MiniGrid's image of `walls` and `goal`, as far as `visible`. All are bool[v, v]; None: all visible.

    The code of a cell is one number, whose bytes are the channels. So XLA's loop works out each cell once.
    """
    codes = jnp.where(goal, as_number(GOAL), jnp.where(walls, as_number(WALL), as_number(EMPTY)))
    codes = codes if visible is None else jnp.where(visible, codes, as_number(UNSEEN))
    return jax.lax.bitcast_convert_type(codes, jnp.uint8)[..., : len(EMPTY)]


def as_number(code: np.ndarray) -> np.uint32:
    """u32 with the lowest byte code[0], and so on."""
    return np.uint32(int.from_bytes(code.tobytes(), "little"))


def own_cell(view_size: int) -> np.ndarray:
    """bool[v, v]: the agent's own cell, the middle of the last row."""
    row, column = np.mgrid[:view_size, :view_size]
    return (row == view_size - 1) & (column == view_size // 2)


def paint_agent(image: jax.Array, own: jax.Array | np.ndarray, facing: jax.Array) -> jax.Array:
    """`image` u8[h, w, 3] with the agent in the cell of `own`, bool[h, w]."""
    code = jnp.asarray(AGENT).at[2].set(facing.astype(jnp.uint8))
    return jnp.where(own[..., None], code, image)

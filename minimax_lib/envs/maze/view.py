"""What the agent sees: the square ahead of it as MiniGrid's image, [row, column], row 0 farthest away."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.bits import WORD, reverse, to_words
from minimax_lib.envs.maze.level import AGENT, EMPTY, GOAL, UNSEEN, WALL, Level, direction_vector


def walls_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: walls, and all that lies outside the grid; v <= 31.

    A row of what the agent sees is a stretch of a column of the grid, if it faces right or left, or of a row; facing
    down or left it sees it from the other end. All lines of the grid are packed into words for that. They depend on
    the walls alone: XLA packs them once, before a loop in which the walls stay the same.
    """
    wall_map, reach = jnp.asarray(level.wall_map), view_size - 1
    rows, columns = packed_lines(wall_map, view_size), packed_lines(wall_map.T, view_size)
    lines = jnp.concatenate([rows.reshape(-1), columns.reshape(-1)])

    sideways = (facing & 1) == 0
    line, cell = jnp.where(sideways, pos[0], pos[1]), jnp.where(sideways, pos[1], pos[0])  # the agent's, of the grid
    ahead = np.arange(view_size - 1, -1, -1, dtype=np.int32)
    line = line + reach + jnp.where(facing < 2, ahead, -ahead)
    first = cell + reach - view_size // 2  # of the cells that are seen of each line
    word = first // stretch(view_size)
    index = jnp.where(sideways, rows.size + line * columns.shape[1], line * rows.shape[1]) + word
    seen = lines.at[index].get(mode="promise_in_bounds") >> (first - word * stretch(view_size)).astype(jnp.uint32)
    seen = seen & np.uint32((1 << view_size) - 1)
    seen = jnp.where((facing == 1) | (facing == 2), reverse(seen, view_size), seen)
    return unpacked(seen, view_size)


def stretch(view_size: int) -> int:
    """Cells from one word of a packed line to the next: any v cells in a row are bits of one word."""
    return WORD + 1 - view_size


def packed_lines(wall_map: jax.Array, view_size: int) -> jax.Array:
    """u32[h + 2 (v - 1), n]: the rows of bool[h, w] with v - 1 walls on all sides, cell i in word i // stretch.

    Words overlap: each goes on for as long as it has bits.
    """
    width, reach = wall_map.shape[1], view_size - 1
    words = []
    for start in range(-reach, width + reach - view_size + 1, stretch(view_size)):
        cells = start + np.arange(WORD)
        inside = (cells >= 0) & (cells < width)
        border = np.uint32(sum(1 << int(bit) for bit in np.flatnonzero(~inside)))
        within = wall_map[:, max(start, 0) : start + WORD]
        bits = np.flatnonzero(inside).astype(np.uint32)
        words.append(jnp.sum(within.astype(jnp.uint32) << bits[None], axis=1, dtype=jnp.uint32) | border)
    return jnp.pad(jnp.stack(words, axis=1), ((reach, reach), (0, 0)), constant_values=np.uint32(0xFFFFFFFF))


def unpacked(rows: jax.Array, size: int) -> jax.Array:
    """bool[n, size] from the low bits of u32[n], by way of words that hold several rows each.

    XLA computes a reduction once, but an element-wise function anew for each pixel that depends on it: without
    this detour the walls are looked up three times a cell, one channel after the other.
    """
    together = max(n for n in range(1, len(rows) + 1) if len(rows) % n == 0 and n * size <= WORD)
    shifts = np.arange(together, dtype=np.uint32) * np.uint32(size)
    words = jnp.sum(rows.reshape(-1, together) << shifts[None], axis=1, dtype=jnp.uint32)
    place = np.arange(together * size, dtype=np.uint32).reshape(1, together, size)
    return ((words[:, None, None] >> place) & 1 == 1).reshape(len(rows), size)


def goal_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: the goal; the agent hides it where it stands."""
    dx, dy = direction_vector(facing)
    x, y = level.goal_pos[0] - pos[0], level.goal_pos[1] - pos[1]
    row, column = view_size - 1 - (x * dx + y * dy), view_size // 2 + y * dx - x * dy
    seen = (row >= 0) & (row < view_size) & (column >= 0) & (column < view_size) & ((x != 0) | (y != 0))
    summands = jnp.where(np.arange(2) == 0, row * view_size, column)  # a reduction, computed once: see `unpacked`
    cell = jnp.where(seen, summands, -(view_size**2)).sum(dtype=jnp.int32)
    return np.arange(view_size * view_size, dtype=np.int32).reshape(view_size, view_size) == cell


def visible_cells(clear: jax.Array) -> jax.Array:
    """bool[v, v]: what the agent sees, given which cells can be seen through; v <= 31.

    MiniGrid's `Grid.process_vis`: row by row from the agent's upwards, sight spreads to the right and then to the
    left through clear cells, and each clear cell that it left sideways lights the cell above it and the one above
    its neighbour. A row is the bits of a word, the leftmost cell the lowest.
    """
    size = clear.shape[0]
    leftmost, rightmost = np.uint32(1), np.uint32(1 << (size - 1))

    def cast(seen: jax.Array, clear: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen = _spread(seen, clear, size, jnp.left_shift)
        rightwards = seen & clear & ~rightmost
        seen = _spread(seen, clear, size, jnp.right_shift)
        leftwards = seen & clear & ~leftmost
        above = rightwards | (rightwards << 1) | leftwards | (leftwards >> 1)
        return above, seen

    rows = to_words(clear.reshape(-1), per_word=size)
    _, seen = jax.lax.scan(cast, jnp.full((), 1 << (size // 2), jnp.uint32), rows, reverse=True)
    return (seen[:, None] >> np.arange(size, dtype=np.uint32)[None, :]) & 1 == 1


def _spread(seen: jax.Array, clear: jax.Array, size: int, move: Callable) -> jax.Array:
    """`seen` and all cells of its row that it reaches through clear cells, going the way of `move`; log2(v) moves."""
    through = move(clear, 1)
    by = 1
    while by < size:
        seen = seen | (through & move(seen, by))
        through = through & move(through, by)
        by *= 2
    return seen


def paint(walls: jax.Array, goal: jax.Array, visible: jax.Array | None) -> jax.Array:
    """u8[v, v, 3]: MiniGrid's image of bool[v, v] walls, goal, and what is not hidden (None: nothing is).

    The codes are scalars and the channels are stacked last: XLA turns arrays of codes into loops five times slower.
    """

    def channel(i: int) -> jax.Array:
        seen = jnp.where(goal, GOAL[i], jnp.where(walls, WALL[i], EMPTY[i]))
        return seen if visible is None else jnp.where(visible, seen, UNSEEN[i])

    return jnp.stack([channel(i) for i in range(3)], axis=-1)


def own_cell(view_size: int) -> np.ndarray:
    """bool[v, v]: where the agent stands, the middle of the last row."""
    row, column = np.mgrid[:view_size, :view_size]
    return (row == view_size - 1) & (column == view_size // 2)


def paint_agent(image: jax.Array, own: jax.Array | np.ndarray, facing: jax.Array) -> jax.Array:
    """`image` u8[h, w, 3] with the agent in the cell of `own`, bool[h, w]."""
    code = jnp.asarray(AGENT).at[2].set(facing.astype(jnp.uint8))
    return jnp.where(own[..., None], code, image)

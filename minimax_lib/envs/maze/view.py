"""What the agent sees: MiniGrid's image of the square ahead of it, [row, column], row 0 farthest away.

Most of the time of an environment step is spent here. The code is written so that XLA makes few and short loops of it.
docs/speed.md lists what was tried and was slower.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.bits import WORD, reverse, to_words
from minimax_lib.envs.maze.level import AGENT, EMPTY, GOAL, UNSEEN, WALL, Level, direction_vector


def walls_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: walls, and all cells outside the grid; v <= 31.

    A row of the view is a piece of one line of the grid: of a column if the agent faces right or left, of a row if it
    faces up or down. So all lines of the grid are packed into words, and v words are looked up instead of v * v cells.
    """
    wall_map, reach = jnp.asarray(level.wall_map), view_size - 1
    # The words depend on the walls alone: in a loop over the same levels, XLA packs them once, before the loop.
    rows, columns = packed_lines(wall_map, view_size), packed_lines(wall_map.T, view_size)
    # Rows and columns in one array, so that one lookup serves all four facings.
    lines = jnp.concatenate([rows.reshape(-1), columns.reshape(-1)])

    sideways = (facing & 1) == 0  # right is 0 and left is 2
    line, cell = jnp.where(sideways, pos[0], pos[1]), jnp.where(sideways, pos[1], pos[0])  # where the agent stands
    ahead = np.arange(view_size - 1, -1, -1, dtype=np.int32)
    # Right and down look towards higher coordinates. `reach` is for the walls that are added before the first line.
    line = line + reach + jnp.where(facing < 2, ahead, -ahead)
    first = cell + reach - view_size // 2  # the lowest cell of each line that is seen
    word = first // stretch(view_size)
    index = jnp.where(sideways, rows.size + line * columns.shape[1], line * rows.shape[1]) + word
    # No index needs a test: on each side as many walls are added as the agent sees cells ahead of it.
    seen = lines.at[index].get(mode="promise_in_bounds") >> (first - word * stretch(view_size)).astype(jnp.uint32)
    seen = seen & np.uint32((1 << view_size) - 1)
    # Facing down or left, the agent's left is at the high end of a line. Storing each line both ways was no faster.
    seen = jnp.where((facing == 1) | (facing == 2), reverse(seen, view_size), seen)
    return unpacked(seen, view_size)


def stretch(view_size: int) -> int:
    """How many cells after one word of a packed line the next word starts.

    Words overlap by v - 1 cells. So any v neighbouring cells lie in one word, and one lookup finds them.
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
        # All bits outside the grid are walls. Which ones these are is known before the program runs.
        border = np.uint32(sum(1 << int(bit) for bit in np.flatnonzero(~inside)))
        within = wall_map[:, max(start, 0) : start + WORD]
        bits = np.flatnonzero(inside).astype(np.uint32)
        # Every bit is another power of two: the sum is their union.
        words.append(jnp.sum(within.astype(jnp.uint32) << bits[None], axis=1, dtype=jnp.uint32) | border)
    return jnp.pad(jnp.stack(words, axis=1), ((reach, reach), (0, 0)), constant_values=np.uint32(0xFFFFFFFF))


def unpacked(rows: jax.Array, size: int) -> jax.Array:
    """bool[n, size] from the `size` lowest bits of u32[n].

    The rows take a detour: several of them are added up in one word. XLA computes a reduction once, but it repeats an
    element-wise function for each pixel that depends on it. Without the detour, the walls of every cell are looked up
    three times, once for each channel of the image.
    """
    # A divisor of the number of rows: no word is left half empty, and nothing has to be padded.
    together = max(n for n in range(1, len(rows) + 1) if len(rows) % n == 0 and n * size <= WORD)
    shifts = np.arange(together, dtype=np.uint32) * np.uint32(size)
    words = jnp.sum(rows.reshape(-1, together) << shifts[None], axis=1, dtype=jnp.uint32)
    place = np.arange(together * size, dtype=np.uint32).reshape(1, together, size)
    return ((words[:, None, None] >> place) & 1 == 1).reshape(len(rows), size)


def goal_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: where the goal is seen. In its own cell the agent hides it."""
    dx, dy = direction_vector(facing)
    x, y = level.goal_pos[0] - pos[0], level.goal_pos[1] - pos[1]
    # The goal's place is turned into the view, not the view into the grid: that is one place instead of v * v.
    row, column = view_size - 1 - (x * dx + y * dy), view_size // 2 + y * dx - x * dy
    # In the agent's own cell MiniGrid shows what it carries, which is nothing here, even if it stands on the goal.
    seen = (row >= 0) & (row < view_size) & (column >= 0) & (column < view_size) & ((x != 0) | (y != 0))
    # A sum of two numbers is a reduction, which XLA computes once and not for each pixel: see `unpacked`.
    # Looking the goal up together with the walls saves a kernel and was slower.
    summands = jnp.where(np.arange(2) == 0, row * view_size, column)
    # A goal out of sight gets a negative number, which is no cell of the view.
    cell = jnp.where(seen, summands, -(view_size**2)).sum(dtype=jnp.int32)
    return np.arange(view_size * view_size, dtype=np.int32).reshape(view_size, view_size) == cell


def visible_cells(clear: jax.Array) -> jax.Array:
    """bool[v, v]: which cells the agent sees, if those of `clear` (bool[v, v]) can be seen through; v <= 31.

    The rule is that of MiniGrid's `Grid.process_vis`. It goes row by row, from the agent's row upwards. In a row, sight
    spreads through clear cells to the right, and then to the left. In both directions, a clear cell that is seen
    lights the cell above it and the one above its neighbour.
    """
    # A row is the bits of a word, the leftmost cell the lowest bit: a few operations spread the sight of all cells.
    size = clear.shape[0]
    leftmost, rightmost = np.uint32(1), np.uint32(1 << (size - 1))

    def cast(seen: jax.Array, clear: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen = _spread(seen, clear, size, jnp.left_shift)
        # Before the way back: MiniGrid's first pass does not know the cells that only the second one reaches.
        # That pass leaves out the last column and the second pass the first: they have no neighbour to light.
        rightwards = seen & clear & ~rightmost
        seen = _spread(seen, clear, size, jnp.right_shift)
        leftwards = seen & clear & ~leftmost
        above = rightwards | (rightwards << 1) | leftwards | (leftwards >> 1)
        return above, seen

    rows = to_words(clear.reshape(-1), per_word=size)
    _, seen = jax.lax.scan(cast, jnp.full((), 1 << (size // 2), jnp.uint32), rows, reverse=True)
    return (seen[:, None] >> np.arange(size, dtype=np.uint32)[None, :]) & 1 == 1


def _spread(seen: jax.Array, clear: jax.Array, size: int, move: Callable) -> jax.Array:
    """`seen`, and all cells of its row that sight reaches from there through clear cells, going the way of `move`.

    The distance doubles with each pass, so that there are log2(v) of them.
    """
    # Bits that leave the row do no harm: `clear` has none there, so nothing spreads from them.
    through = move(clear, 1)
    by = 1
    while by < size:
        seen = seen | (through & move(seen, by))
        through = through & move(through, by)
        by *= 2
    return seen


def paint(walls: jax.Array, goal: jax.Array, visible: jax.Array | None) -> jax.Array:
    """u8[v, v, 3]: MiniGrid's image of `walls`, `goal` and what is `visible`, all bool[v, v] (None: everything is).

    Each channel is painted with scalars, and the channels are stacked at the end. XLA's loops over codes that are
    arrays were five times slower.
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

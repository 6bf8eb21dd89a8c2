"""What the agent sees: the square ahead of it as MiniGrid's image, [row, column], row 0 farthest away."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.bits import WORD, to_words
from minimax_lib.envs.maze.level import AGENT, EMPTY, GOAL, UNSEEN, WALL, Level, direction_vector


def walls_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: walls, and all that lies outside the grid."""
    height, width = level.wall_map.shape
    row, column = np.mgrid[:view_size, :view_size].astype(np.int32)
    forward, right = view_size - 1 - row, column - view_size // 2
    dx, dy = direction_vector(facing)
    x = pos[0] + forward * dx - right * dy
    y = pos[1] + forward * dy + right * dx
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    index = jnp.clip(y, 0, height - 1) * width + jnp.clip(x, 0, width - 1)
    return by_words(~inside | jnp.asarray(level.wall_map).reshape(-1).at[index].get(mode="promise_in_bounds"))


def goal_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: the goal; the agent hides it where it stands."""
    dx, dy = direction_vector(facing)
    x, y = level.goal_pos[0] - pos[0], level.goal_pos[1] - pos[1]
    row, column = view_size - 1 - (x * dx + y * dy), view_size // 2 + y * dx - x * dy
    seen = (row >= 0) & (row < view_size) & (column >= 0) & (column < view_size) & ((x != 0) | (y != 0))
    summands = jnp.where(np.arange(2) == 0, row * view_size, column)  # a reduction, computed once: see `by_words`
    cell = jnp.where(seen, summands, -(view_size**2)).sum(dtype=jnp.int32)
    return np.arange(view_size * view_size, dtype=np.int32).reshape(view_size, view_size) == cell


def by_words(bits: jax.Array) -> jax.Array:
    """bool[v, v] as it is, by way of the bits of a few words that hold whole rows each (v <= 32).

    XLA computes a reduction once, but an element-wise function anew for each pixel that depends on it: without
    this detour the walls are looked up three times a cell, one channel after the other, and the place of the goal is
    worked out 75 times an observation, from the action on.
    """
    size = bits.shape[0]
    if size > WORD:
        return bits
    rows = max(n for n in range(1, size + 1) if size % n == 0 and n * size <= WORD)  # of a word: no padding
    words = to_words(bits.reshape(-1), rows * size)
    place = np.arange(rows * size, dtype=np.uint32).reshape(1, rows, size)
    return ((words[:, None, None] >> place) & 1 == 1).reshape(bits.shape)


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

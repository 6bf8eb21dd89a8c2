"""What the agent sees: MiniGrid's image of the square ahead of it, [row, column]. Row 0 is the farthest.

An environment step spends most of its time here. The code is written so that XLA compiles it to few and short loops.
docs/speed.md lists what was tried and was slower.
"""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.cells.lines import ViewSize, packed_view, unpacked
from minimax_lib.envs.maze.level import AGENT, EMPTY, GOAL, UNSEEN, WALL, Level


def walls_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: true for walls and for all cells outside the grid. v is at most 31."""
    view = ViewSize(front=view_size - 1, back=0, side=view_size // 2)
    return unpacked(packed_view(jnp.asarray(level.wall_map), pos, facing, view), view_size, view_size)


def goal_ahead(level: Level, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """bool[v, v]: the cell where the agent sees the goal. It does not see the goal in its own cell."""
    dx, dy = direction_vector(facing)
    x, y = level.goal_pos[0] - pos[0], level.goal_pos[1] - pos[1]
    # The goal's position is rotated into the view. To rotate the view into the grid would take v * v positions.
    row, column = view_size - 1 - (x * dx + y * dy), view_size // 2 + y * dx - x * dy
    # In the agent's own cell, MiniGrid shows what it carries. Here that is nothing, even if it stands on the goal.
    seen = (row >= 0) & (row < view_size) & (column >= 0) & (column < view_size) & ((x != 0) | (y != 0))
    # A sum of two numbers is a reduction, which XLA computes once, not for each pixel (see `lines.joined`).
    # To look up the goal together with the walls saved a kernel, but was slower.
    summands = jnp.where(np.arange(2) == 0, row * view_size, column)
    # A goal that is not visible gets a negative number, which is not a cell of the view.
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

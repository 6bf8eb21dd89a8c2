"""What the agent sees of the object world: MiniGrid's images, [row, column]."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.cells.sight import visible_cells
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.dynamics import EnvState


def partial_view(state: EnvState, view_size: int, see_through_walls: bool) -> jax.Array:
    """u8[v, v, 3]: the square ahead of the agent, which stands in the middle of the last row and looks upwards.

    In its own cell it sees what it carries.
    """
    ahead = _computed_once(cells_ahead(state.grid, state.agent_pos, state.agent_dir, view_size))
    own = np.zeros((view_size, view_size), bool)
    own[-1, view_size // 2] = True
    carried = jnp.where(state.carrying == cells.NOTHING, cells.EMPTY, state.carrying)
    image = jnp.where(own, carried, ahead)
    if not see_through_walls:
        # The cell under the agent casts the shadow of what it is, not of what the agent carries.
        image = jnp.where(visible_cells(cells.is_clear(ahead)), image, codes.UNSEEN)
    return cells.seen(image)


def cells_ahead(grid: jax.Array, pos: jax.Array, facing: jax.Array, view_size: int) -> jax.Array:
    """u16[v, v]: the square ahead of the agent, turned so that it looks upwards. Outside of the grid are walls."""
    height, width = grid.shape
    dx, dy = direction_vector(facing)
    ahead, aside = np.mgrid[view_size - 1 : -1 : -1, -(view_size // 2) : view_size // 2 + 1].astype(np.int32)
    x, y = pos[0] + ahead * dx - aside * dy, pos[1] + ahead * dy + aside * dx
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    # An index outside the grid is filled with the wall.
    index = jnp.where(inside, y * width + x, height * width)
    return grid.reshape(-1).at[index].get(mode="fill", fill_value=cells.WALL)


def _computed_once(view: jax.Array) -> jax.Array:
    """`view` (u16[v, v]), as XLA computes it once.

    Otherwise it looks up every cell again for each channel of the image, and for the shadows too. It computes a
    reduction only once, and so here is one: a sum of two numbers. That made a step 1.7 times as fast.
    """
    wide = view.astype(jnp.uint32)
    return jnp.stack([wide, jnp.zeros_like(wide)]).sum(axis=0, dtype=jnp.uint32).astype(jnp.uint16)


def full_view(state: EnvState) -> jax.Array:
    """u8[H, W, 3]: the whole frame, with the agent in its cell, whatever it stands on. What it carries is not shown."""
    x, y = state.agent_pos
    agent = cells.pack(codes.AGENT, 0, state.agent_dir)  # its state is the direction
    return cells.seen(state.grid.at[y, x].set(agent))

"""What an agent sees: planes of the cells round it, turned so that it looks upwards.

As in the maze, a step spends most of its time here: rows of cells are handled as the bits of words.
"""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.cells.lines import ViewSize, packed_view, rows_a_word

SELF, OTHER, FREE, WALL = range(4)  # planes; then four for the other's facing, if it is shown


def planes_ahead(
    walls: jax.Array, position: jax.Array, facing: jax.Array, view: ViewSize, show_facing: bool
) -> jax.Array:
    """bool[2, h, w, planes]: what each agent sees; `position` is i32[2, 2], `facing` i32[2]."""

    def look(own: jax.Array, facing: jax.Array, other: jax.Array, turned: jax.Array) -> jax.Array:
        is_wall, is_other = packed_view(walls, own, facing, view), packed_cell(other - own, facing, view)
        is_self, everywhere = jnp.asarray(packed_own(view)), packed_all(view)
        is_free = everywhere & ~(is_self | is_other | is_wall)
        planes: list[jax.Array] = [is_self, is_other, is_free, is_wall]
        if show_facing:
            planes += [jnp.where(turned == k, is_other, jnp.uint32(0)) for k in range(4)]
        return unpacked_planes(planes, view)

    # The other's facing is told as it looks from here: 0 away from the agent, 1 to its right, 2 towards it, 3 left.
    return jax.vmap(look)(position, facing, position[::-1], (facing[::-1] - facing) & 3)


def packed_cell(offset: jax.Array, facing: jax.Array, view: ViewSize) -> jax.Array:
    """u32[n]: the cell at `offset` (i32[2]) from the agent as a bit; none if it is out of sight."""
    dx, dy = direction_vector(facing)
    x, y = offset[0], offset[1]
    row, column = view.front - (x * dx + y * dy), view.side + y * dx - x * dy
    seen = (row >= 0) & (row < view.height) & (column >= 0) & (column < view.width)
    together = rows_a_word(view.height, view.width)
    word, place = row // together, (row % together) * view.width + column
    bit = jnp.left_shift(jnp.uint32(1), jnp.where(seen, place, 0).astype(jnp.uint32))
    words = np.arange(view.height // together, dtype=np.int32)
    return jnp.where(seen & (words == word), bit, jnp.uint32(0))


def packed_own(view: ViewSize) -> np.ndarray:
    """u32[n]: the agent's own cell as a bit."""
    together = rows_a_word(view.height, view.width)
    words = np.zeros(view.height // together, np.uint32)
    words[view.front // together] = 1 << ((view.front % together) * view.width + view.side)
    return words


def packed_all(view: ViewSize) -> np.uint32:
    """A word in which all cells are set."""
    return np.uint32((1 << (rows_a_word(view.height, view.width) * view.width)) - 1)


def unpacked_planes(planes: list[jax.Array], view: ViewSize) -> jax.Array:
    """bool[h, w, planes] from planes of words, u32[n] each."""
    words = jnp.stack(planes, axis=1)
    place = jnp.arange(rows_a_word(view.height, view.width) * view.width, dtype=jnp.uint32)
    bits = (words[:, None, :] >> place[None, :, None]) & 1 == 1
    return bits.reshape(view.height, view.width, len(planes))

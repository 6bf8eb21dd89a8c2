"""Random draws that the families of levels share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.grid.cells import EMPTY, WALL


def below(bits: jax.Array, n: Any) -> jax.Array:
    """i32[...]: random whole numbers from 0 to n - 1, from `bits` (u32[...]).

    Each is within n / 2**32 of equally likely. That is not to be seen: n is never more than the cells of a level.
    """
    return (bits % jnp.asarray(n).astype(jnp.uint32)).astype(jnp.int32)


def walled(height: int, width: int) -> np.ndarray:
    """u16[height, width]: a room that fills the frame, with nothing in it."""
    return np.pad(np.full((height - 2, width - 2), EMPTY), 1, constant_values=WALL)


def draw_place(key: jax.Array, wanted: jax.Array) -> jax.Array:
    """i32[2], [x, y]: uniform over the `wanted` cells (bool[h, w]), of which there must be one."""
    y, x, _ = draw_cell(key, wanted)
    return jnp.stack([x, y])

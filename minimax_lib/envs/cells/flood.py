"""Floods over a grid of cells, and what they find out: how far it is, and whether there is a way.

The whole grid is one string of bits, row after row. So a step of a flood is four shifts of a few words.
"""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.bits import WORD, one_bit, shift, to_words
from minimax_lib.loops import steps_at_once


def bits_of(cells: jax.Array) -> jax.Array:
    """u32[n]: the cells bool[h, w] as a string of bits."""
    # A wall is added after each row. Without it, a move to the right from the last column would enter the next row.
    return to_words(jnp.pad(cells, ((0, 0), (0, 1))).reshape(-1))


def cells_of(bits: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """bool[h, w]: the cells that are set in a string of bits (u32[n])."""
    height, width = shape
    each = (bits[:, None] >> np.arange(WORD, dtype=np.uint32)[None]) & 1
    return each.reshape(-1)[: height * (width + 1)].reshape(height, width + 1)[:, :width] == 1


def bit_at(pos: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """u32[n]: the string in which only the cell at `pos` (i32[2], [x, y]) of a grid of `shape` is set."""
    height, width = shape
    return one_bit(pos[1] * (width + 1) + pos[0], -(-height * (width + 1) // WORD))


def beside(cells: jax.Array, width: int) -> jax.Array:
    """u32[n]: the neighbours of the `cells` (u32[n]), some of which may lie outside of a grid of that width."""
    stride = width + 1
    return shift(cells, 1) | shift(cells, -1) | shift(cells, stride) | shift(cells, -stride)


def moves_between(start: jax.Array, goal: jax.Array, free: jax.Array, width: int) -> tuple[jax.Array, jax.Array]:
    """(moves from `start` to the nearest cell of `goal` i32[], whether there is a way bool[]); 0 moves without one.

    A move goes to one of four neighbours, over the cells of `free`. All three are strings of bits.
    """

    def spreads(loop: tuple) -> jax.Array:
        # Under vmap, the loop goes on until the last level is done. The others keep their state.
        _, _, arrived, stuck = loop
        return ~arrived & ~stuck

    def spread(loop: tuple) -> tuple:
        # The host waits after every iteration on an accelerator, so an iteration takes several steps there. Steps after
        # the end change nothing.
        for _ in range(steps_at_once(8)):
            reached, length, arrived, stuck = loop
            wider = (reached | beside(reached, width)) & free
            length = length + ~(arrived | stuck)
            loop = wider, length, arrived | jnp.any(wider & goal), stuck | jnp.all(wider == reached)
        return loop

    loop = (start, jnp.zeros((), jnp.int32), jnp.any(start & goal), jnp.zeros((), bool))
    _, length, arrived, _ = jax.lax.while_loop(spreads, spread, loop)
    return jnp.where(arrived, length, 0), arrived

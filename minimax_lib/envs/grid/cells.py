"""A cell of the object world: one u16 that holds an object, its colour and state, and what is inside of it.

| bits | what |
|---|---|
| 0-3 | the object |
| 4-6 | its colour |
| 7-8 | the state of a door; 0 for all other objects |
| 9-12 | the object inside a box; 0 where there is none |
| 13-15 | the colour of the object inside |

So `cell >> 9` is again a cell: what appears when the box is opened. A box inside a box is empty.

The functions take and give arrays of any shape. Where all they get are numbers of Python or numpy, they give numpy's.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes

COLOUR, STATE, INSIDE = 4, 7, 9  # the lowest bit of each part; the object begins at bit 0
SHOWN = (1 << INSIDE) - 1  # all bits that are seen from outside
NAMED = (1 << STATE) - 1  # object and colour, in the form of a level's `target`


def pack(kind: Any, colour: Any = 0, state: Any = 0, inside: Any = 0) -> Any:
    """u16[...]: a cell of these parts. `inside` is itself a cell, without state and contents."""
    bits = (_u16(kind), _u16(colour) << COLOUR, _u16(state) << STATE, _u16(inside) << INSIDE)
    return bits[0] | bits[1] | bits[2] | bits[3]


def _u16(x: Any) -> Any:
    return x.astype(jnp.uint16) if isinstance(x, jax.Array) else np.asarray(x, np.uint16)


def kind(cell: Any) -> Any:
    """u16[...], the object: EMPTY, WALL, DOOR, ... of `cells.codes`."""
    return cell & 15


def colour(cell: Any) -> Any:
    """u16[...], the colour of the object."""
    return (cell >> COLOUR) & 7


def state(cell: Any) -> Any:
    """u16[...]: OPEN, CLOSED or LOCKED for a door, else 0."""
    return (cell >> STATE) & 3


def inside(cell: Any) -> Any:
    """u16[...]: what a box holds, itself a cell; 0 if nothing."""
    return cell >> INSIDE


def named(cell: Any) -> Any:
    """u16[...]: object and colour alone, in the form of a level's `target`."""
    return cell & NAMED


def seen(cell: Any) -> Any:
    """u8[..., 3]: MiniGrid's (object, colour, state). What a box holds is not seen."""
    if not isinstance(cell, jax.Array):
        return np.stack([kind(cell), colour(cell), state(cell)], axis=-1).astype(np.uint8)
    # The three parts are moved into the three lower bytes of a word, which are then read as they lie. XLA's loops over
    # channels took up to three times as long.
    wide = cell.astype(jnp.uint32)
    parts = (wide & 15) | ((wide >> COLOUR & 7) << 8) | ((wide >> STATE & 3) << 16)
    return jax.lax.bitcast_convert_type(parts, jnp.uint8)[..., :3]


def key(colour: Any) -> Any:
    """u16[...], a key."""
    return pack(codes.KEY, colour)


def ball(colour: Any) -> Any:
    """u16[...], a ball."""
    return pack(codes.BALL, colour)


def box(colour: Any, inside: Any = 0) -> Any:
    """u16[...], a box that holds `inside`, a cell; 0: it is empty."""
    return pack(codes.BOX, colour, 0, inside)


def door(colour: Any, state: Any = codes.CLOSED) -> Any:
    """u16[...], a door: OPEN, CLOSED or LOCKED."""
    return pack(codes.DOOR, colour, state)


EMPTY = np.uint16(codes.EMPTY)  # 1
WALL = np.uint16(pack(codes.WALL, codes.GREY))  # 82
GOAL = np.uint16(pack(codes.GOAL, codes.GREEN))  # 24
LAVA = np.uint16(codes.LAVA)  # 9
NOTHING = np.uint16(0)  # empty hands, an empty box


def key_in(cell: Any) -> jax.Array:
    """u16[...]: the key that lies there, in a box or not; 0 where there is none."""
    content = inside(cell)
    in_box = jnp.where(kind(content) == codes.KEY, content, NOTHING)
    return jnp.where(kind(cell) == codes.KEY, cell, in_box)


def key_colours(cells: jax.Array) -> jax.Array:
    """u16[]: a bit for each colour of which there is a key among the cells u16[h, w], in a box or not."""
    keys = key_in(cells)
    bits = jnp.where(keys != NOTHING, jnp.left_shift(jnp.uint16(1), colour(keys)), jnp.uint16(0))
    return jax.lax.reduce(bits, np.uint16(0), jax.lax.bitwise_or, (0, 1))


def is_item(cell: Any) -> Any:
    """bool[...]: whether it can be picked up. Keys, balls and boxes can."""
    return (kind(cell) >= codes.KEY) & (kind(cell) <= codes.BOX)


def is_shut(cell: Any) -> Any:
    """bool[...]: whether it is a door that is closed or locked."""
    return (kind(cell) == codes.DOOR) & (state(cell) != codes.OPEN)


def is_clear(cell: Any) -> Any:
    """bool[...]: whether one can see through it. Only walls and shut doors are opaque."""
    return (kind(cell) != codes.WALL) & ~is_shut(cell)


def is_open(cell: Any) -> Any:
    """bool[...]: whether the agent can move there: empty, floor, goal, lava, or an open door."""
    k = kind(cell)
    free = (k == codes.EMPTY) | (k == codes.FLOOR) | (k == codes.GOAL) | (k == codes.LAVA)
    return free | ((k == codes.DOOR) & (state(cell) == codes.OPEN))

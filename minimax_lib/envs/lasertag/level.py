"""The free parameters of a game of LaserTag."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.cells.codes import STEPS

DRAWN = -1  # a start that `reset` draws


class Level(struct.PyTreeNode):
    """Everything that varies between games. Positions are [x, y] = [column, row]; outside of the grid is wall.

    The two starts are different free cells. At least two cells are spawns, so that one is free whoever is tagged.
    With `LaserTag.random_starts`, starts may be -1: then each game draws its own from the spawns.
    """

    walls: jax.Array  # bool[h, w], indexed [y, x]
    starts: jax.Array  # i32[2, 2], of agent 0 and of agent 1
    facings: jax.Array  # i32[2], 0 right, 1 down, 2 left, 3 up
    spawns: jax.Array  # bool[h, w], free cells where a tagged agent may return


def make_level(walls: Any, starts: Any, facings: Any, spawns: Any) -> Level:
    """The level of these parts, each with the right dtype."""
    return Level(
        walls=jnp.asarray(walls, bool),
        starts=jnp.asarray(starts, jnp.int32),
        facings=jnp.asarray(facings, jnp.int32),
        spawns=jnp.asarray(spawns, bool),
    )


def padded(level: Level, height: int, width: int) -> Level:
    """The same level in a grid of `height` x `width`, with walls below and to the right; ValueError if it is too large.

    Agents see no difference, since everything outside of a grid looks like a wall.
    """
    h, w = level.walls.shape
    if h > height or w > width:
        raise ValueError(f"size=({height}, {width}) is too small for a level of {h} x {w} cells")
    edges = ((0, height - h), (0, width - w))
    return level.replace(
        walls=jnp.pad(level.walls, edges, constant_values=True),
        spawns=jnp.pad(level.spawns, edges, constant_values=False),
    )


def at(pos: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """bool[h, w]: the cell at `pos` (i32[2], [x, y]); no cell if it is outside of the grid."""
    height, width = shape
    columns, rows = jnp.arange(width, dtype=jnp.int32), jnp.arange(height, dtype=jnp.int32)
    return (columns == pos[0])[None, :] & (rows == pos[1])[:, None]


def is_valid(level: Level) -> jax.Array:
    """bool[]: the starts are drawn, or are two different free cells; at least two free cells are spawns; facings are
    from 0 to 3."""
    zero, one = (jnp.any(at(start, level.walls.shape) & ~level.walls) for start in level.starts)
    given = zero & one & jnp.any(level.starts[0] != level.starts[1])
    drawn = jnp.all(level.starts == DRAWN)
    faces = jnp.all((level.facings >= 0) & (level.facings < len(STEPS)))
    has_spawns = ~jnp.any(level.spawns & level.walls) & (jnp.sum(level.spawns, dtype=jnp.int32) >= 2)
    return (given | drawn) & has_spawns & faces

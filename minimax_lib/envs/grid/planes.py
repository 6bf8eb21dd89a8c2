"""What a search over actions walks on: strings of bits, one for each direction that the agent may face.

A search is breadth first, and an iteration is one action. Several searches, or several stages of one, run side by side.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.bits import shift
from minimax_lib.envs.cells.flood import bit_at
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import REACH, Level


class Cells(NamedTuple):
    """The cells of a level, by what they mean for solving it. bool[h, w] each."""

    ends: jax.Array  # to enter it solves the level; to pick up the target, or to open it, counts as entering its cell
    free: jax.Array  # one action enters it
    found: jax.Array  # likewise, if the hands are empty: the target
    shut: jax.Array  # two actions enter it: a closed door, a box with a goal
    boxed: jax.Array  # likewise, if the hands are empty: a box with the target
    locked: jax.Array  # a locked door


def cells_of_level(level: Level) -> Cells:
    """What the cells of the level mean. Objects are free nowhere, but for the target."""
    grid, target = level.grid, level.target.astype(jnp.uint16)
    kind, is_item, inside = cells.kind(grid), cells.is_item(grid), cells.inside(grid)
    locked = (kind == codes.DOOR) & (cells.state(grid) == codes.LOCKED)
    is_asked = (target != cells.NOTHING) & (level.task != REACH)
    found, boxed = is_asked & (cells.named(grid) == target), is_asked & (inside == target)
    goal_inside = cells.kind(inside) == codes.GOAL
    return Cells(
        ends=found | boxed | goal_inside | (kind == codes.GOAL),
        free=(cells.is_open(grid) & (kind != codes.LAVA)) | (found & ~is_item & ~locked),
        found=found & is_item,
        shut=(cells.is_shut(grid) & ~locked) | goal_inside,
        boxed=boxed,
        locked=locked,
    )


def start_of(level: Level) -> jax.Array:
    """u32[4, n]: the agent's cell, in the direction that it faces."""
    towards = jnp.arange(4, dtype=jnp.int32) == level.agent_dir
    return jnp.where(towards[:, None], bit_at(level.agent_pos, level.grid.shape)[None], jnp.uint32(0))


def spread(reached: jax.Array, before: jax.Array, free: jax.Array, shut: jax.Array, width: int) -> jax.Array:
    """u32[s, 4, n]: what is reached after one more action, a turn or a step.

    `reached` and `before` (u32[s, 4, n]) are now and one action earlier; `free` and `shut` (u32[s, n]) are `Cells`.
    """
    turned = jnp.roll(reached, 1, axis=1) | jnp.roll(reached, -1, axis=1)
    # A shut door is opened first. So it is entered from where the agent was one action earlier.
    ahead = (_ahead(reached, width) & free[:, None]) | (_ahead(before, width) & shut[:, None])
    return reached | turned | ahead


def _ahead(reached: jax.Array, width: int) -> jax.Array:
    """u32[s, 4, n]: the cells in front."""
    move = jax.vmap(shift, (0, None))
    return jnp.stack([move(reached[:, i], by) for i, by in enumerate(_moves(width))], axis=1)


def facing(front: jax.Array, width: int) -> jax.Array:
    """u32[4, n]: where the cell in front is one of `front` (u32[n])."""
    return jnp.stack([shift(front, -by) for by in _moves(width)])


def _moves(width: int) -> tuple[int, ...]:
    """How far a step moves a bit, by direction."""
    return (1, width + 1, -1, -width - 1)

"""How many actions a level takes at least."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.bits import shift
from minimax_lib.envs.cells.flood import bit_at, bits_of
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import FETCH, REACH, Level
from minimax_lib.loops import steps_at_once


def solution_length(level: Level) -> jax.Array:
    """i32[]: the fewest actions that solve the level, turns included; -1 where they are not known.

    It is exact where no way is shorter over an object that lies there or through a locked door. So it is exact for
    MultiRoom, the crossings and Fetch. It is -1 where objects or locks do matter, as in DoorKey and ObstructedMaze, and
    where the level cannot be solved. (Not NaN: metrics are finite.) The time limit does not matter.

    Two searches, breadth first, run side by side. In one, objects and locks are walls, so that nothing is shorter than
    what the agent can do. In the other, each costs one more action, so that nothing takes longer. Where both give the
    same number, it is the answer.
    """
    ends, free, shut = entered(level)
    shape = level.grid.shape
    return _search(bit_at(level.agent_pos, shape), level.agent_dir, ends, free, shut, shape[1])


def entered(level: Level) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(cells where the search ends u32[n], cells that one action enters u32[2, n], and two actions u32[2, n]).

    To pick up the target or to open the target door counts as entering its cell, for it is one action too. The pairs
    are for both searches: the one where objects and locks are walls comes first.
    """
    grid, target = level.grid, level.target.astype(jnp.uint16)
    kind, is_item = cells.kind(grid), cells.is_item(grid)
    is_box, locked = kind == codes.BOX, (kind == codes.DOOR) & (cells.state(grid) == codes.LOCKED)
    sought = (target != cells.NOTHING) & (level.task != REACH)
    found, in_box = sought & (cells.named(grid) == target), sought & (cells.inside(grid) == target)
    in_box |= cells.kind(cells.inside(grid)) == codes.GOAL

    free = (cells.is_open(grid) & (kind != codes.LAVA)) | (found & ~locked)
    shut = (cells.is_shut(grid) & ~locked) | in_box
    # In FETCH, to pick up anything but the target is a failure. To open a box is none.
    removable = (is_item & (is_box | (level.task != FETCH))) | locked
    ends = found | in_box | (kind == codes.GOAL)
    pairs = jnp.stack([free, free | found]), jnp.stack([shut, shut | removable])
    return bits_of(ends), jax.vmap(bits_of)(pairs[0]), jax.vmap(bits_of)(pairs[1])


def _search(
    start: jax.Array, facing: jax.Array, ends: jax.Array, free: jax.Array, shut: jax.Array, width: int
) -> jax.Array:
    """i32[]: the actions from `start` to a cell of `ends` where both searches agree, else -1."""
    moves = (1, width + 1, -1, -width - 1)  # in the string of bits, by direction

    def ahead(reached: jax.Array) -> jax.Array:
        """u32[2, 4, n]: the cells in front."""
        move = jax.vmap(shift, (0, None))
        return jnp.stack([move(reached[:, i], by) for i, by in enumerate(moves)], axis=1)

    def goes_on(loop: tuple) -> jax.Array:
        _, _, _, arrived, stuck = loop
        return ~arrived[1] & ~stuck

    def go_on(loop: tuple) -> tuple:
        for _ in range(steps_at_once(8)):
            reached, before, length, arrived, stuck = loop
            turned = jnp.roll(reached, 1, axis=1) | jnp.roll(reached, -1, axis=1)
            # A shut door is opened first. So it is entered from where the agent was one action earlier.
            wider = reached | turned | (ahead(reached) & free[:, None]) | (ahead(before) & shut[:, None])
            ended = arrived[1] | stuck
            now = jnp.any(wider & ends[None, None] != 0, axis=(1, 2))
            # Both must arrive in the same step, so the first search does not go on without the second.
            loop = wider, reached, length + ~ended, arrived | (now & ~ended), stuck | jnp.all(wider == before)
        return loop

    towards = (jnp.arange(4, dtype=jnp.int32) == facing)[None, :, None]
    reached = jnp.where(towards, start[None, None], jnp.zeros((), jnp.uint32)) | jnp.zeros((2, 1, 1), jnp.uint32)
    loop = (reached, jnp.zeros_like(reached), jnp.zeros((), jnp.int32), jnp.zeros(2, bool), jnp.zeros((), bool))
    _, _, length, arrived, _ = jax.lax.while_loop(goes_on, go_on, loop)
    return jnp.where(arrived[0], length, -1)

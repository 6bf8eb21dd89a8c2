"""How many actions a level takes at least."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.flood import bits_of
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import FETCH, Level
from minimax_lib.envs.grid.one_lock import length_with_lock
from minimax_lib.envs.grid.planes import Cells, cells_of_level, spread, start_of
from minimax_lib.loops import steps_at_once


def solution_length(level: Level) -> jax.Array:
    """i32[]: the fewest actions that solve the level, turns included; -1 where they are not known.

    It is exact where no way is shorter over an object that lies there or through a locked door. So it is exact for
    MultiRoom, the crossings and Fetch. With one lock on the way, as in DoorKey and the Unlock family, it is an estimate
    (`one_lock.length_with_lock`). It is -1 with several locks, with other objects in the way, and where the level
    cannot be solved. (Not NaN: metrics are finite.) The time limit does not matter.
    """
    here = cells_of_level(level)
    exact = _without_objects(level, here)
    return jnp.where(exact >= 0, exact, length_with_lock(level, here))


def _without_objects(level: Level, here: Cells) -> jax.Array:
    """i32[]: the fewest actions where objects and locks make no difference, -1 elsewhere.

    Two searches run side by side. In one, objects and locks are walls, so that nothing is shorter than what the agent
    can do. In the other, each costs one more action, so that nothing takes longer. Where both give the same number, it
    is the answer.
    """
    width = level.grid.shape[1]
    is_item, is_box = cells.is_item(level.grid), cells.kind(level.grid) == codes.BOX
    # In FETCH, to pick up anything but the target is a failure. To open a box is none.
    removable = (is_item & (is_box | (level.task != FETCH))) | here.locked
    free, shut = here.free | here.found, here.shut | here.boxed
    pairs = jnp.stack([free, free | (here.found | (here.ends & here.locked))]), jnp.stack([shut, shut | removable])
    free, shut = jax.vmap(bits_of)(pairs[0]), jax.vmap(bits_of)(pairs[1])
    ends = bits_of(here.ends)

    def goes_on(loop: tuple) -> jax.Array:
        _, _, _, arrived, stuck = loop
        return ~arrived[1] & ~stuck

    def go_on(loop: tuple) -> tuple:
        for _ in range(steps_at_once(8)):
            reached, before, length, arrived, stuck = loop
            wider = spread(reached, before, free, shut, width)
            ended = arrived[1] | stuck
            now = jnp.any(wider & ends[None, None] != 0, axis=(1, 2))
            # Both must arrive in the same step, so the first search does not go on without the second.
            loop = wider, reached, length + ~ended, arrived | (now & ~ended), stuck | jnp.all(wider == before)
        return loop

    reached = jnp.stack([start_of(level)] * 2)
    loop = (reached, jnp.zeros_like(reached), jnp.zeros((), jnp.int32), jnp.zeros(2, bool), jnp.zeros((), bool))
    _, _, length, arrived, _ = jax.lax.while_loop(goes_on, go_on, loop)
    return jnp.where(arrived[0], length, -1)

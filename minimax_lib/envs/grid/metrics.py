"""Facts about a level: what is in it, how far it is to what the task is about, and whether it can be solved."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.flood import beside, bit_at, bits_of, moves_between
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.level import REACH, Level
from minimax_lib.envs.grid.solution import solution_length
from minimax_lib.loops import steps_at_once

N_COLOURS = len(codes.COLOURS)


def level_metrics(level: Level) -> dict[str, jax.Array]:
    """f32[] each:

    * `difficulty`: the label that the family gives
    * `n_doors`, `n_locked`, `n_objects`: doors, those of them that are locked, and keys, balls and boxes outside boxes
    * `n_rooms`: doors + 1, which is the number of rooms in a chain of them
    * `path_length`: moves to what the task is about (`path_length`)
    * `solvable`: 0 or 1 (`solvable`)
    * `solution_length`: the fewest actions that solve it, -1 where they are not known (`solution.solution_length`)
    """
    is_door = cells.kind(level.grid) == codes.DOOR
    n_doors = is_door.sum(dtype=jnp.float32)
    return {
        "difficulty": level.difficulty.astype(jnp.float32),
        "n_rooms": n_doors + 1,
        "n_doors": n_doors,
        "n_locked": (is_door & (cells.state(level.grid) == codes.LOCKED)).sum(dtype=jnp.float32),
        "n_objects": cells.is_item(level.grid).sum(dtype=jnp.float32),
        "path_length": path_length(level)[0].astype(jnp.float32),
        "solvable": solvable(level).astype(jnp.float32),
        "solution_length": solution_length(level).astype(jnp.float32),
    }


def sought(level: Level) -> jax.Array:
    """bool[h, w]: the cells that solve the task. These are goals, and the target itself; boxes that hold one too."""
    # A step onto a goal is a success in every task.
    goal = (cells.kind(level.grid) == codes.GOAL) | (cells.kind(cells.inside(level.grid)) == codes.GOAL)
    target = level.target.astype(jnp.uint16)
    found = (cells.named(level.grid) == target) | (cells.inside(level.grid) == target)
    return goal | (found & (target != cells.NOTHING) & (level.task != REACH))


def path_length(level: Level) -> tuple[jax.Array, jax.Array]:
    """(moves from the agent to the nearest cell that is `sought` i32[], whether there is a way bool[]).

    A move goes to one of four neighbours. Doors and objects do not stop it, only walls and lava do. 0: there is no way.
    """
    kind = cells.kind(level.grid)
    free = bits_of((kind != codes.WALL) & (kind != codes.LAVA))
    start = bit_at(level.agent_pos, level.grid.shape)
    return moves_between(start, bits_of(sought(level)), free, level.grid.shape[1])


def solvable(level: Level) -> jax.Array:
    """bool[]: whether the agent can get to a cell that is `sought`.

    It can go wherever no wall, no lava and no locked door is. It can also go through a locked door if it can get to a
    key of its colour, in a box or not. Objects do not stop it, because it can carry them away. This is exact for the
    published families. It is too hopeful where no cell is left to drop an object, as in a corridor one cell wide. And
    in the task FETCH it is too hopeful where an object is in the way: to pick up a wrong one is a failure.
    """
    grid, width = level.grid, level.grid.shape[1]
    kind = cells.kind(grid)
    locked = (kind == codes.DOOR) & (cells.state(grid) == codes.LOCKED)
    free = bits_of((kind != codes.WALL) & (kind != codes.LAVA) & ~locked)
    doors = jnp.stack([bits_of(locked & (cells.colour(grid) == i)) for i in range(N_COLOURS)])
    keys = jnp.stack([bits_of(_holds(grid, cells.key(i))) for i in range(N_COLOURS)])
    goal = bits_of(sought(level))

    def goes_on(loop: tuple) -> jax.Array:
        _, arrived, stuck = loop
        return ~arrived & ~stuck

    def go_on(loop: tuple) -> tuple:
        # The keys that are reached are looked up in every step. So the flood does not start again for a new key.
        for _ in range(steps_at_once(8)):
            reached, arrived, stuck = loop
            has_key = jnp.any(keys & reached[None, :] != 0, axis=1)
            unlocked = jnp.where(has_key[:, None], doors, np.uint32(0))
            open_cells = free | jax.lax.reduce(unlocked, np.uint32(0), jax.lax.bitwise_or, (0,))
            wider = (reached | beside(reached, width)) & open_cells
            # A key in a cell that has just been reached opens its door only in the next step.
            loop = wider, arrived | jnp.any(wider & goal != 0), stuck | jnp.all(wider == reached)
        return loop

    start = bit_at(level.agent_pos, grid.shape)
    loop = (start, jnp.any(start & goal != 0), jnp.zeros((), bool))
    return jax.lax.while_loop(goes_on, go_on, loop)[1]


def _holds(grid: jax.Array, item: np.uint16) -> jax.Array:
    """bool[h, w]: the cells that are this item, or a box with it."""
    return (cells.named(grid) == item) | (cells.inside(grid) == item)

"""MiniGrid's LockedRoom: a hall with six rooms, one of them locked."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.sampling import walled
from minimax_lib.envs.grid.level import Level, make_level

SIZE = 19
LEFT, RIGHT = 7, 11  # columns of the walls of the hall
DOORS = tuple((x, y) for y in (3, 9, 15) for x in (LEFT, RIGHT))
CORNERS = tuple((x, y) for y in (1, 7, 13) for x in (1, RIGHT + 1))  # the upper left cell inside each room
INSIDE = (6, 5)  # columns and rows inside a room


@dataclasses.dataclass(frozen=True)
class LockedRoom:
    """The goal is in the locked room, its key in another one. All doors differ in colour. Task: reach."""

    height: int = dataclasses.field(default=SIZE, init=False)
    width: int = dataclasses.field(default=SIZE, init=False)
    max_steps: int = dataclasses.field(default=10 * SIZE, init=False)

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_rooms, k_colours, k_goal, k_key, k_agent, k_dir = jax.random.split(key, 6)
        # The first room of a random order is locked, and the second one has the key.
        locked, with_key = jax.random.permutation(k_rooms, len(DOORS))[:2]
        colours = jax.random.permutation(k_colours, len(codes.COLOURS))
        state = jnp.where(np.arange(len(DOORS)) == locked, codes.LOCKED, codes.CLOSED)
        x, y = np.array(DOORS).T
        grid = jnp.asarray(_hall()).at[y, x].set(cells.door(colours, state))
        goal, thing = _inside(k_goal, locked), _inside(k_key, with_key)
        grid = grid.at[goal[1], goal[0]].set(cells.GOAL)
        grid = grid.at[thing[1], thing[0]].set(cells.key(colours[locked]))
        agent = jax.random.randint(k_agent, (2,), jnp.array([LEFT + 1, 1]), jnp.array([RIGHT, SIZE - 1]))
        return make_level(grid, agent, jax.random.randint(k_dir, (), 0, 4), self.max_steps)


def _hall() -> np.ndarray:
    """u16[h, w]: the walls."""
    grid = walled(SIZE, SIZE)
    grid[:, [LEFT, RIGHT]] = cells.WALL
    grid[::6, :LEFT] = cells.WALL
    grid[::6, RIGHT:] = cells.WALL
    return grid


def _inside(key: jax.Array, room: jax.Array) -> jax.Array:
    """i32[2]: a random cell inside the room."""
    return jnp.array(CORNERS, jnp.int32)[room] + jax.random.randint(key, (2,), 0, jnp.array(INSIDE))

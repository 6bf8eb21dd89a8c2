"""MiniGrid's DoorKey."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.settings import check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.base import SquareFamily
from minimax_lib.envs.grid.generators.sampling import draw_place, walled
from minimax_lib.envs.grid.level import Level, make_level


@dataclasses.dataclass(frozen=True)
class DoorKey(SquareFamily):
    """A wall divides the room. In it is a locked door; the key is on the agent's side, the goal on the other.

    Task: reach. MiniGrid's sizes are 5, 6, 8 and 16.
    """

    size: int = 8
    """Rows and columns of cells, with the border."""

    def __post_init__(self) -> None:
        check_side("size", self.size, 5)

    @property
    def max_steps(self) -> int:
        return 10 * self.size**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_wall, k_door, k_agent, k_key, k_dir = jax.random.split(key, 5)
        n = self.size
        wall = jax.random.randint(k_wall, (), 2, n - 2)
        y, x = np.mgrid[:n, :n]
        grid = jnp.where(x == wall, cells.WALL, walled(n, n)).at[n - 2, n - 2].set(cells.GOAL)
        is_left = (grid == cells.EMPTY) & (x < wall)
        agent = draw_place(k_agent, is_left)
        thing = draw_place(k_key, is_left & ((x != agent[0]) | (y != agent[1])))
        # As in MiniGrid, the door is never in the last row.
        door = jax.random.randint(k_door, (), 1, n - 2)
        grid = grid.at[door, wall].set(cells.door(codes.YELLOW, codes.LOCKED))
        grid = grid.at[thing[1], thing[0]].set(cells.key(codes.YELLOW))
        return make_level(grid, agent, jax.random.randint(k_dir, (), 0, 4), self.max_steps)

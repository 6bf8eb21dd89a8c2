"""MiniGrid's LavaGap, LavaCrossing and SimpleCrossing: from one corner of a room to the opposite one."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.crossing import crossing_lines, n_lines
from minimax_lib.envs.cells.settings import check_int, check_side
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.generators.base import SquareFamily
from minimax_lib.envs.grid.generators.sampling import walled
from minimax_lib.envs.grid.level import Level, make_level


@dataclasses.dataclass(frozen=True)
class LavaGap(SquareFamily):
    """A column of lava with one gap. Task: reach. MiniGrid's sizes are 5, 6 and 7."""

    size: int = 7
    """Rows and columns of cells, with the border."""

    def __post_init__(self) -> None:
        check_side("size", self.size, 5)

    @property
    def max_steps(self) -> int:
        return 4 * self.size**2

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_column, k_gap = jax.random.split(key)
        inner = self.size - 2
        lava = np.arange(inner) == jax.random.randint(k_column, (), 1, inner - 1)
        gap = np.arange(inner) == jax.random.randint(k_gap, (), 0, inner)
        return corner_to_corner(lava[None, :] & ~gap[:, None], cells.LAVA, self.max_steps)


@dataclasses.dataclass(frozen=True)
class LavaCrossing(SquareFamily):
    """Columns and rows of lava, each with one gap. Task: reach. MiniGrid has 1 to 3 in size 9, and 5 in size 11."""

    size: int = 9
    """Rows and columns of cells, with the border. It must be odd."""
    n_crossings: int = 1
    """Columns and rows of lava together."""

    def __post_init__(self) -> None:
        check_side("size", self.size, 5)
        if self.size % 2 == 0:
            raise ValueError(f"size={self.size} is even: it must be odd, such as {self.size + 1}")
        check_int("n_crossings", self.n_crossings, 1, n_lines(self.size - 2))

    @property
    def max_steps(self) -> int:
        return 4 * self.size**2

    @property
    def obstacle(self) -> np.uint16:
        """The cell that the lines are made of."""
        return cells.LAVA

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        lines = crossing_lines(key, self.size - 2, self.n_crossings)
        return corner_to_corner(lines, self.obstacle, self.max_steps)


@dataclasses.dataclass(frozen=True)
class SimpleCrossing(LavaCrossing):
    """Walls across the room, each with one gap. Task: reach. MiniGrid has 1 to 3 in size 9, and 5 in size 11."""

    n_crossings: int = 1
    """Walls across."""

    @property
    def obstacle(self) -> np.uint16:
        """The cell that the lines are made of."""
        return cells.WALL


def corner_to_corner(lines: jax.Array, obstacle: np.uint16, max_steps: int) -> Level:
    """The level with `obstacle` where `lines` (bool[n, n], without the border) are."""
    inner = lines.shape[0]
    room = jnp.where(lines, obstacle, cells.EMPTY).at[-1, -1].set(cells.GOAL)
    grid = jnp.asarray(walled(inner + 2, inner + 2)).at[1:-1, 1:-1].set(room)
    return make_level(grid, agent_pos=(1, 1), agent_dir=0, max_steps=max_steps)

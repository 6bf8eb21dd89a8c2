"""A room with nothing in it but the agent and the goal."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.settings import check_int, check_side
from minimax_lib.envs.grid.cells import EMPTY, GOAL, WALL
from minimax_lib.envs.grid.level import Level, make_level


@dataclasses.dataclass(frozen=True)
class EmptyRoom:
    """Agent and goal are uniform over pairs of different cells of the room, and so is the direction. Task: reach."""

    height: int = 8
    """Rows of cells, with the border."""
    width: int = 8
    """Columns of cells, with the border."""
    max_steps: int = 256
    """Steps after which an episode is cut off."""

    def __post_init__(self) -> None:
        check_side("height", self.height, 3)
        check_side("width", self.width, 3)
        check_int("max_steps", self.max_steps, 1)
        if (self.height - 2) * (self.width - 2) < 2:
            raise ValueError(
                f"height={self.height}, width={self.width}: agent and goal need at least 2 cells inside the border"
            )

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        k_goal, k_agent, k_dir = jax.random.split(key, 3)
        rows, columns = self.height - 2, self.width - 2
        goal = jax.random.randint(k_goal, (), 0, rows * columns)
        # One of the other cells: those from the goal's on are counted without it.
        agent = jax.random.randint(k_agent, (), 0, rows * columns - 1)
        agent += agent >= goal
        room = np.pad(np.full((rows, columns), EMPTY), 1, constant_values=WALL)
        return make_level(
            grid=jnp.asarray(room).at[1 + goal // columns, 1 + goal % columns].set(GOAL),
            agent_pos=jnp.stack([1 + agent % columns, 1 + agent // columns]),
            agent_dir=jax.random.randint(k_dir, (), 0, 4),
            max_steps=self.max_steps,
        )

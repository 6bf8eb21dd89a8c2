"""A maze world of one's own, which docs/tutorials.md explains: parallel walls, each with one door.

python train.py --config docs/examples/doors.yaml    # a few minutes
"""

import dataclasses

import jax
import jax.numpy as jnp

import minimax_lib
from minimax_lib.envs.family import Editing
from minimax_lib.envs.maze import AMaze, ood
from minimax_lib.envs.maze.mutate import mutate
from minimax_lib.envs.maze.sampling import place_agent_and_goal


@dataclasses.dataclass(frozen=True)
class Doors(AMaze):
    """Mazes of walls from side to side, each with one door at a random place."""

    spacing: int = 3
    """Rows from one wall to the next."""

    def draw_level(self, key):
        k_doors, k_agent, k_goal, k_dir = jax.random.split(key, 4)
        is_wall = jnp.arange(self.height) % self.spacing == self.spacing - 1  # bool[height]
        doors = jax.random.randint(k_doors, (self.height, 1), 0, self.width)
        walls = is_wall[:, None] & (jnp.arange(self.width)[None] != doors)
        return place_agent_and_goal(k_agent, k_goal, k_dir, walls)


minimax_lib.register_env("Doors", Doors, held_out=ood.MazeSuite, groups=ood.GROUPS, editing=Editing(mutate))

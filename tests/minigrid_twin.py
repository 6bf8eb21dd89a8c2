"""The real MiniGrid on one of our levels, to compare with step by step."""

import jax
import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Wall
from minigrid.minigrid_env import MiniGridEnv

from minimax_lib.envs.maze import AMaze, Level


class MiniGridTwin(MiniGridEnv):
    """A `MiniGridEnv` whose grid is always `level`, with `env`'s settings."""

    def __init__(self, env: AMaze, level: Level):
        self.level = jax.tree.map(np.asarray, level)
        height, width = self.level.wall_map.shape
        super().__init__(
            mission_space=MissionSpace(mission_func=lambda: "reach the goal"),
            width=width + 2,
            height=height + 2,
            max_steps=env.max_steps,
            see_through_walls=env.see_through_walls,
            agent_view_size=env.view_size,
        )

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for y, x in np.argwhere(self.level.wall_map):
            self.grid.set(int(x) + 1, int(y) + 1, Wall())
        self.put_obj(Goal(), *(int(i) + 1 for i in self.level.goal_pos))
        self.agent_pos = tuple(int(i) + 1 for i in self.level.agent_pos)
        self.agent_dir = int(self.level.agent_dir)

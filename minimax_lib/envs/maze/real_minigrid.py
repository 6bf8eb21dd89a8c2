"""The PyPI package `minigrid` itself on levels of the maze. Import it only where minigrid is installed."""

from typing import Any

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Wall

from minimax_lib.envs.cells.real_minigrid import MiniGridOnLevels
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.level import Level


class RealMaze(MiniGridOnLevels):
    """The real MiniGrid in the size of `env`, inside a border wall, with its view and its time limit.

    `reset(options={"level": level})` says which level is played, from then on. In a vector environment, all rows get
    the same options: with `{"levels": levels}` [B, ...], each takes that of its own `row`.
    """

    def __init__(self, env: AMaze, row: int = 0, **options: Any):
        super().__init__(
            row,
            mission_space=MissionSpace(mission),
            width=env.width + 2,
            height=env.height + 2,
            max_steps=env.max_steps,
            see_through_walls=env.see_through_walls,
            agent_view_size=env.view_size,
            **options,
        )

    def shape_of(self, level: Level) -> tuple[int, ...]:
        return level.wall_map.shape

    def wanted_shape(self) -> tuple[int, ...]:
        return self.height - 2, self.width - 2

    def _gen_grid(self, width: int, height: int) -> None:
        level = self.level
        self.grid = Grid(width, height)
        self.grid.wall_rect(0, 0, width, height)
        for y, x in np.argwhere(level.wall_map):
            self.grid.set(int(x) + 1, int(y) + 1, Wall())
        # Positions of a level are counted inside the border.
        self.put_obj(Goal(), *(int(i) + 1 for i in level.goal_pos))
        x, y = level.agent_pos
        self.agent_pos = (int(x) + 1, int(y) + 1)
        self.agent_dir = int(level.agent_dir)
        self.mission = mission()


def mission() -> str:
    """What the agent is told."""
    return "reach the goal"

"""Everything that belongs to the maze: its held-out suite, its teacher, and how its levels are edited."""

import dataclasses

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.mutate import mutate
from minimax_lib.envs.maze.ood import GROUPS, MazeSuite
from minimax_lib.envs.maze.teacher import MazeDesign


def empty_maze(env: AMaze) -> AMaze:
    """ACCEL's published start: mazes without walls (Parker-Holder et al. 2022)."""
    return dataclasses.replace(env, n_walls=0)


FAMILY = Family(
    cls=AMaze,
    name="AMaze",
    held_out=MazeSuite,
    groups=GROUPS,
    teacher=MazeDesign,
    editing=Editing(mutate=mutate, base=empty_maze),
)

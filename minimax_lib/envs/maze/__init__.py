"""The maze of the UED literature."""

from minimax_lib.envs.maze import ood
from minimax_lib.envs.maze.amaze import AMaze, EnvState
from minimax_lib.envs.maze.convert import from_text, to_text
from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.teacher import MazeDesign, MazeTeacher

__all__ = ["AMaze", "EnvState", "Level", "MazeDesign", "MazeTeacher", "from_text", "ood", "to_text"]

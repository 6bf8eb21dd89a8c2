"""MiniGrid's rooms with doors, keys, balls and boxes."""

from minimax_lib.envs.grid.convert import from_minigrid, from_text, to_minigrid, to_text
from minimax_lib.envs.grid.dynamics import EnvState
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import Level

__all__ = ["EnvState", "GridWorld", "Level", "from_minigrid", "from_text", "to_minigrid", "to_text"]

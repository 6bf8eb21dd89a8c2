"""The walker with two legs on rough ground, after Gymnasium's BipedalWalker and dcd (Parker-Holder et al. 2022)."""

from minimax_lib.envs.walker.level import Level, make_level
from minimax_lib.envs.walker.walker import BipedalWalker, EnvState

__all__ = ["BipedalWalker", "EnvState", "Level", "make_level"]

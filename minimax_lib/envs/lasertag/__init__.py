"""Laser tag for two, after Lanctot et al. (2017) and MAESTRO (Samvelyan et al. 2023)."""

from minimax_lib.envs.lasertag.dynamics import EnvState
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import Level

__all__ = ["EnvState", "LaserTag", "Level"]

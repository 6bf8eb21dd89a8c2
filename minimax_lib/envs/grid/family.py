"""Everything that belongs to the object world: its environment and its held-out suite."""

from minimax_lib.envs.family import Family
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.suite import GROUPS, GridSuite

FAMILY = Family(cls=GridWorld, name="GridWorld", held_out=GridSuite, groups=GROUPS)

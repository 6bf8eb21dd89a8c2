"""Everything that belongs to the object world: its held-out suite, its teacher, and how its levels are edited."""

import dataclasses
from typing import Any

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.generators.multi_room import MultiRoom
from minimax_lib.envs.grid.generators.obstructed_maze import KINDS, Mazes, ObstructedMaze
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import identity
from minimax_lib.envs.grid.mutate import KeepSolvable, mutate
from minimax_lib.envs.grid.suite import GROUPS, GridSuite, OneDifficulty, fits
from minimax_lib.envs.grid.teacher import GridDesign


def simplest_family(family: Any) -> Any:
    """What ACCEL starts from. Its frame is that of `family`, and its time limit is no longer.

    MultiRoom: a single room. ObstructedMaze and its gamuts: the first kind, two rooms with a locked door and its key.
    All others: an empty room, in which the agent has to reach the goal.
    """
    if isinstance(family, MultiRoom):
        return OneDifficulty(family, 0)
    if isinstance(family, Mazes):
        return ObstructedMaze(kind=KINDS[0], key_order=family.key_order, side=family.side)
    return EmptyRoom(family.height, family.width, family.max_steps)


def simplest(env: GridWorld) -> GridWorld:
    """`env` with the simplest levels of its family."""
    return dataclasses.replace(env, family=simplest_family(env.family))


def editing(env: GridWorld) -> Editing:
    """How levels of `env` are edited."""
    return Editing(KeepSolvable(mutate) if env.keep_solvable else mutate, identity, simplest)


FAMILY = Family(
    cls=GridWorld,
    name="GridWorld",
    held_out=GridSuite,
    groups=GROUPS,
    fits=fits,
    teacher=GridDesign,
    editing=editing,
)

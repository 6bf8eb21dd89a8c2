"""Everything that belongs to the object world: its held-out suite, its teacher, and how its levels are edited."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.grid.generators.empty_room import EmptyRoom
from minimax_lib.envs.grid.generators.multi_room import MultiRoom
from minimax_lib.envs.grid.generators.obstructed_maze import KINDS, Mazes, ObstructedMaze
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.envs.grid.level import Level, identity
from minimax_lib.envs.grid.mutate import KeepSolvable, mutate
from minimax_lib.envs.grid.suite import GROUPS, GridSuite, fits
from minimax_lib.envs.grid.teacher import GridDesign


@dataclasses.dataclass(frozen=True)
class SingleRooms:
    """The levels of `family` with one room. Their time limit is that of all its levels."""

    family: MultiRoom

    @property
    def height(self) -> int:
        return self.family.height

    @property
    def width(self) -> int:
        return self.family.width

    @property
    def max_steps(self) -> int:
        return self.family.max_steps

    def sample_level(self, key: jax.Array) -> Level:
        """A random level."""
        return self.family.sample_of(key, jnp.zeros((), jnp.int32))


def simplest_family(family: Any) -> Any:
    """What ACCEL starts from. Its frame is that of `family`, and its time limit is no longer.

    MultiRoom: a single room. ObstructedMaze and its gamuts: the first kind, two rooms with a locked door and its key.
    All others: an empty room, in which the agent has to reach the goal.
    """
    if isinstance(family, MultiRoom):
        return SingleRooms(family)
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

"""Everything that belongs to LaserTag: its held-out suite, its teacher, and how its levels are edited."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from minimax_lib.envs.family import Editing, Family, whole_level
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.lasertag.level import DRAWN, Level
from minimax_lib.envs.lasertag.mutate import mutate
from minimax_lib.envs.lasertag.rules import RANDOM
from minimax_lib.envs.lasertag.suite import GROUPS, LaserTagSuite, fits
from minimax_lib.envs.lasertag.teacher import LaserTagDesign


def empty_rooms(env: LaserTag) -> Any:
    """What ACCEL starts from: square rooms of random size without walls, in the same grid."""
    return dataclasses.replace(env, layout=RANDOM, min_walls=0.0, max_walls=0.0)


def without_unused_spawns(level: Level) -> Level:
    """The level as a game without returns sees it: spawns matter only where they are starts too."""
    return level.replace(spawns=level.spawns & jnp.any(level.starts == DRAWN))


def editing(env: LaserTag) -> Editing:
    """How levels of `env` are edited."""
    return Editing(mutate, without_unused_spawns if env.first_tag_ends else whole_level, empty_rooms)


FAMILY = Family(
    cls=LaserTag,  # type: ignore[arg-type]  # it has several agents
    name="LaserTag",
    held_out=LaserTagSuite,
    groups=GROUPS,
    fits=fits,
    teacher=LaserTagDesign,
    editing=editing,
)

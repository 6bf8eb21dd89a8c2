"""Everything that belongs to the walker: its held-out worlds, its teacher, and how its levels are edited."""

import dataclasses
from functools import partial

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.walker.level import PRESETS
from minimax_lib.envs.walker.mutate import mutate
from minimax_lib.envs.walker.suite import GROUPS, WalkerSuite
from minimax_lib.envs.walker.teacher import WalkerDesign
from minimax_lib.envs.walker.walker import BipedalWalker

SIMPLEST = {"full": "easy", "poet": "poet_easy"}  # what ACCEL starts from


def simple_worlds(env: BipedalWalker) -> BipedalWalker:
    """`env` with the simplest levels: almost flat, with obstacles that can hardly be felt."""
    return dataclasses.replace(env, levels=SIMPLEST.get(env.levels, env.levels))  # type: ignore[arg-type]


def editing(env: BipedalWalker) -> Editing:
    """How levels of `env` are edited: those numbers that differ between its random levels, within the full range."""
    name = next((full for full, easy in SIMPLEST.items() if easy == env.levels), env.levels)
    return Editing(mutate=partial(mutate, PRESETS[name]), base=simple_worlds)


FAMILY = Family(
    cls=BipedalWalker,
    name="BipedalWalker",
    held_out=WalkerSuite,
    groups=GROUPS,
    teacher=WalkerDesign,
    editing=editing,
)

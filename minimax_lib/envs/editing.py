"""How the levels of an environment are mutated and compared: what level-editing curricula need to know of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.mutate import mutate as mutate_maze


def whole_level(level: Level) -> Any:
    """The default identity: two levels are the same where all their leaves are."""
    return level


def unchanged(env: Environment) -> Environment:
    """The default base: the environment's own random levels."""
    return env


@dataclasses.dataclass(frozen=True)
class Editing:
    """`mutate(key, level, n_edits)` gives a child; two levels are equal where `identity(level)`, a pytree, is;
    `base(env)` is an environment whose random levels are the simplest, from which ACCEL's complexity grows."""

    mutate: Callable[[jax.Array, Level, int], Level]
    identity: Callable[[Level], Any] = whole_level
    base: Callable[[Any], Environment] = unchanged


def empty_maze(env: AMaze) -> AMaze:
    """ACCEL's published start: mazes without walls (Parker-Holder et al. 2022)."""
    return dataclasses.replace(env, n_walls=0)


EDITING: dict[type, Editing] = {AMaze: Editing(mutate=mutate_maze, base=empty_maze)}


def register_editing(env_class: type, editing: Editing) -> None:
    """Says how the levels of `env_class` are edited."""
    if EDITING.get(env_class, editing) != editing:
        raise ValueError(f"how levels of {env_class.__name__} are edited is registered already")
    EDITING[env_class] = editing


def editing_of(env: Environment) -> Editing:
    """How the levels of `env` are edited; ValueError where nobody has registered it."""
    if type(env) not in EDITING:
        known = ", ".join(cls.__name__ for cls in EDITING)
        raise ValueError(f"no mutation is registered for {type(env).__name__} (register_editing): choose from {known}")
    return EDITING[type(env)]


def identity_of(env: Environment) -> Callable[[Level], Any]:
    """What makes two levels of `env` equal; all of the level where nothing else is registered."""
    return EDITING[type(env)].identity if type(env) in EDITING else whole_level

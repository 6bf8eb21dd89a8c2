"""All that belongs to one kind of environment, in one record."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.held_out import NO_SUITE, TrainingDistribution

EnvironmentMaker = Callable[..., Environment]
HeldOutMaker = Callable[..., HeldOut]
TaskGroups = Mapping[str, Sequence[str]]


def whole_level(level: Level) -> Any:
    """The default identity: two levels are the same where all their leaves are."""
    return level


def unchanged(env: Environment) -> Environment:
    """The default base: the environment's own random levels."""
    return env


@dataclasses.dataclass(frozen=True)
class Editing:
    """How levels are mutated and compared: what level-editing curricula need to know of an environment.

    `mutate(key, level, n_edits)` gives a child; two levels are equal where `identity(level)`, a pytree, is;
    `base(env)` is an environment whose random levels are the simplest, from which ACCEL's complexity grows.
    """

    mutate: Callable[[jax.Array, Level, int], Level]
    identity: Callable[[Level], Any] = whole_level
    base: Callable[[Any], Environment] = unchanged


EditingMaker = Callable[[Any], Editing]


@dataclasses.dataclass(frozen=True)
class Family:
    """An environment and what goes with it. Each environment's own record is in its own folder."""

    cls: EnvironmentMaker
    """Makes the environment; a dataclass, whose fields are its settings."""
    name: str = ""
    """What it is called in files and on the command line; empty: it cannot be chosen there."""
    held_out: HeldOutMaker = TrainingDistribution
    """`held_out(env, names, **options)` builds held-out tasks."""
    groups: TaskGroups = dataclasses.field(default_factory=lambda: NO_SUITE)
    """Names for several held-out tasks: "validation" is played during training, "benchmark" after it; and "all"."""
    teacher: Any = None
    """Settings whose `build(env)` returns the MDP in which levels are designed (`TeacherEnvironment`)."""
    editing: Editing | EditingMaker | None = None
    """How levels are mutated and compared, where they can be; a function of the environment if its settings matter."""

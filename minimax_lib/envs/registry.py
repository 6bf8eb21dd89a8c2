"""The table of environments, and of the held-out tasks that belong to them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minimax_lib.envs.base import Environment, HeldOut
from minimax_lib.envs.held_out import NO_SUITE, TrainingDistribution
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.ood import GROUPS, MazeSuite
from minimax_lib.envs.maze.teacher import MazeDesign
from minimax_lib.envs.ued import UEDEnvironment
from minimax_lib.registry import Registry, unknown_name

EnvironmentMaker = Callable[..., Environment]
HeldOutMaker = Callable[..., HeldOut]
TaskGroups = Mapping[str, Sequence[str]]

ENVS: Registry[EnvironmentMaker] = Registry("environment", {"AMaze": AMaze})
TEACHERS: Registry[Any] = Registry("environment with a teacher", {"AMaze": MazeDesign})
_HELD_OUT: dict[EnvironmentMaker, HeldOutMaker] = {AMaze: MazeSuite}
_GROUPS: dict[EnvironmentMaker, TaskGroups] = {AMaze: GROUPS}


def register_env(
    name: str,
    cls: EnvironmentMaker,
    held_out: HeldOutMaker | None = None,
    groups: TaskGroups = NO_SUITE,
    teacher: Any = None,
) -> None:
    """Adds an environment. `held_out(env, names, **options)` builds its held-out tasks, where it has any.

    `teacher` is a frozen dataclass of settings whose `build(env)` returns the MDP in which its levels are designed
    (`TeacherEnvironment`), where there is one.

    `groups` are names for several of them: "validation" is played during training, "benchmark" after it, and there
    should be "all". Without them each is the training distribution alone.
    """
    ENVS.register(name, cls)
    _GROUPS[cls] = NO_SUITE | dict(groups)
    if held_out is not None:
        _HELD_OUT[cls] = held_out
    if teacher is not None:
        TEACHERS.register(name, teacher)


def make_env(name: str, **settings: Any) -> Environment:
    """The environment registered under `name`, with `settings` for its fields."""
    cls = ENVS[name]
    _check_options(f"setting of {name}", cls, settings)
    return cls(**settings)


def make_ued_env(name: str, design: Mapping[str, Any] | None = None, **settings: Any) -> UEDEnvironment:
    """The environment registered under `name` with its teacher, whose settings are in `design`."""
    env = make_env(name, **settings)
    teacher = TEACHERS[name]
    _check_options(f"setting of the teacher of {name}", teacher, dict(design or {}))
    return UEDEnvironment(env, teacher(**(design or {})).build(env))


def make_held_out(env: Environment, names: Sequence[str], **options: Any) -> HeldOut:
    """The held-out tasks called `names`, as one batch for `env`, each once.

    Every environment has the task "TrainingDistribution", and the groups of tasks "validation", "benchmark" and "all".
    """
    if not names:
        raise ValueError("no held-out task is named: give at least one")
    maker = _HELD_OUT.get(type(env), TrainingDistribution)
    _check_options("option of held-out tasks", maker, options)
    groups = _GROUPS.get(type(env), NO_SUITE)
    tasks = dict.fromkeys(task for name in names for task in groups.get(name, [name]))
    return maker(env, tuple(tasks), **options)


def _check_options(kind: str, maker: Callable, options: dict[str, Any]) -> None:
    """Refuses an option that the dataclass `maker` has no field for; what else `maker` is checks its own."""
    if dataclasses.is_dataclass(maker):
        known = [field.name for field in dataclasses.fields(maker)]
        for option in options:
            if option not in known:
                raise unknown_name(kind, option, known)

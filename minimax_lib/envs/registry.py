"""The table of environments, and what is asked of it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.family import (
    Editing,
    EditingMaker,
    EnvironmentMaker,
    Family,
    HeldOutMaker,
    TaskGroups,
    whole_level,
)
from minimax_lib.envs.foreign.craftax_family import FAMILY as CRAFTAX
from minimax_lib.envs.foreign.gymnax_family import FAMILY as GYMNAX
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.envs.maze.family import FAMILY as MAZE
from minimax_lib.envs.pendulum.family import FAMILY as PENDULUM
from minimax_lib.envs.ued import UEDEnvironment
from minimax_lib.envs.wrappers import WrappedTasks, Wrapper, unwrapped
from minimax_lib.registry import Registry, View, unknown_name

FAMILIES: dict[EnvironmentMaker, Family] = {family.cls: family for family in (MAZE, PENDULUM, GYMNAX, CRAFTAX)}
ENVS: Registry[EnvironmentMaker] = View(
    "environment", lambda: {family.name: family.cls for family in FAMILIES.values() if family.name}
)
TEACHERS: Registry[Any] = View(
    "environment with a teacher", lambda: {f.name: f.teacher for f in FAMILIES.values() if f.name and f.teacher}
)


def register_env(
    name: str,
    cls: EnvironmentMaker,
    held_out: HeldOutMaker | None = None,
    groups: TaskGroups | None = None,
    teacher: Any = None,
    editing: Editing | EditingMaker | None = None,
) -> None:
    """Adds an environment; the arguments are the members of its `Family`.

    `groups` need not name all three groups: those that are missing are the training distribution alone. A wrapper's
    class has the tasks, the teacher and the editing of what it wraps, and is registered with its name alone.
    """
    if isinstance(cls, type) and issubclass(cls, Wrapper) and (held_out or groups or teacher or editing):
        raise ValueError(
            f"environment {name!r} is a wrapper: its tasks, teacher and editing are those of what it wraps, "
            "so that it is registered with nothing but its name and class"
        )
    if name in ENVS and ENVS[name] is not cls:
        raise ValueError(f"environment {name!r} is registered already, as {ENVS[name]!r}")
    known = FAMILIES.get(cls, Family(cls))
    if known.name not in ("", name):
        raise ValueError(f"environment {cls!r} is registered already, as {known.name!r}")
    FAMILIES[cls] = Family(
        cls,
        name,
        held_out or known.held_out,
        {**known.groups, **(groups or {})},
        teacher or known.teacher,
        editing or known.editing,  # it may have been said before, by `register_editing`
    )


def register_editing(env_class: type, editing: Editing | EditingMaker) -> None:
    """Says how the levels of `env_class` are edited; with a function of the environment, if its settings matter."""
    family = FAMILIES.get(env_class, Family(env_class))
    if family.editing not in (None, editing):
        raise ValueError(f"how levels of {env_class.__name__} are edited is registered already")
    FAMILIES[env_class] = dataclasses.replace(family, editing=editing)


def family_of(env: Environment) -> Family:
    """What belongs to `env`, or to the environment that it wraps; the defaults where nothing is registered."""
    inner = unwrapped(env)
    return FAMILIES.get(type(inner), Family(type(inner)))


def editing_of(env: Environment) -> Editing:
    """How the levels of `env` are edited; ValueError where nobody has registered it."""
    editing = _editing_of(env)
    if editing is None:
        known = ", ".join(cls.__name__ for cls, family in FAMILIES.items() if family.editing)  # type: ignore[attr-defined]
        name = type(unwrapped(env)).__name__
        raise ValueError(f"no mutation is registered for {name} (register_editing): choose from {known}")
    return editing


def identity_of(env: Environment) -> Callable[[Level], Any]:
    """What makes two levels of `env` equal; all of the level where nothing else is registered."""
    editing = _editing_of(env)
    return editing.identity if editing else whole_level


def _editing_of(env: Environment) -> Editing | None:
    editing = family_of(env).editing
    return editing if editing is None or isinstance(editing, Editing) else editing(unwrapped(env))


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
    if isinstance(env, Wrapper):
        return WrappedTasks(env, make_held_out(env.env, names, **options))
    family = family_of(env)
    _check_options("option of held-out tasks", family.held_out, options, but=("env", "names"))
    tasks = tuple(dict.fromkeys(task for name in names for task in family.groups.get(name, [name])))
    listed = {task: None for group in family.groups.values() for task in (*group, TRAINING_DISTRIBUTION)}
    make = functools.partial(family.held_out, env, tasks, **options)
    unlisted = [task for task in tasks if task not in listed]
    return _asked(make, unlisted, [*family.groups, *listed]) if unlisted else make()


def _asked(make: Callable[[], HeldOut], unlisted: list[str], known: list[str]) -> HeldOut:
    """The held-out tasks that `make` gives; ValueError where it does not know the `unlisted`, which are in no group."""
    # Many refuse by themselves. Others look a task up when they draw its levels, and that would be while it compiles.
    try:
        suite = make()
        jax.eval_shape(lambda key: suite.sample(key, 1), jax.eval_shape(jax.random.key, 0))
    except KeyError as error:
        task = error.args[0] if error.args and error.args[0] in unlisted else unlisted[0]
        raise unknown_name("held-out task", task, known) from None
    for task in unlisted:
        if task not in suite.names:
            raise unknown_name("held-out task", task, known)
    return suite


def _check_options(kind: str, maker: Callable, options: dict[str, Any], but: Sequence[str] = ()) -> None:
    """Refuses an option that the dataclass `maker` has no field for, `but` for some; else `maker` checks its own."""
    if dataclasses.is_dataclass(maker):
        known = [field.name for field in dataclasses.fields(maker) if field.name not in but]
        for option in options:
            if option not in known:
                raise unknown_name(kind, option, known)

"""The table of environments, and what is asked of it."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from minimax_lib.envs.against import AgainstRandom
from minimax_lib.envs.base import Environment, HeldOut, Level, check_derives
from minimax_lib.envs.family import (
    Editing,
    EditingMaker,
    EnvironmentMaker,
    Family,
    HeldOutMaker,
    TaskGroups,
    fits_always,
    own_tasks,
    tasks_called,
    whole_level,
)
from minimax_lib.envs.foreign.craftax_family import FAMILY as CRAFTAX
from minimax_lib.envs.foreign.craftax_tasks import FAMILY as CRAFTAX_TASKS
from minimax_lib.envs.foreign.gymnax_family import FAMILY as GYMNAX
from minimax_lib.envs.given import check_source
from minimax_lib.envs.grid.family import FAMILY as GRID
from minimax_lib.envs.held_out import (
    TRAINING_DISTRIBUTION,
    NamedTasks,
    TrainingDistribution,
    WithTraining,
    as_names,
    is_of_training,
)
from minimax_lib.envs.lasertag.family import FAMILY as LASERTAG
from minimax_lib.envs.maze.family import FAMILY as MAZE
from minimax_lib.envs.nmmo.family import FAMILY as NMMO
from minimax_lib.envs.pendulum.family import FAMILY as PENDULUM
from minimax_lib.envs.ued import UEDEnvironment, describe
from minimax_lib.envs.walker.family import FAMILY as WALKER
from minimax_lib.envs.wrappers import WrappedTasks, Wrapper, has_own_levels, unwrapped
from minimax_lib.messages import shown
from minimax_lib.registry import Registry, RegistryView, check_name, unknown_name


@dataclasses.dataclass(frozen=True)
class OwnTeacher:
    """The teacher that is registered with the environment."""

    def build(self, env: Environment) -> Any:
        """The teacher of the levels of `env`; ValueError where none is registered."""
        settings = teacher_of(env)
        if settings is None:
            known = ", ".join(name for name in TEACHERS.names() if name != AUTO)
            raise ValueError(
                f"no teacher is registered for {type(unwrapped(env)).__name__} (register_env(..., teacher=...)): "
                f"choose another method, or an environment that has one: {known}"
            )
        return settings.build(env)


AUTO = "auto"  # the name of `OwnTeacher`
FAMILIES: dict[EnvironmentMaker, Family] = {
    family.cls: family for family in (MAZE, GRID, PENDULUM, WALKER, LASERTAG, NMMO, GYMNAX, CRAFTAX, CRAFTAX_TASKS)
}
ENVS: Registry[EnvironmentMaker] = RegistryView(
    "environment", lambda: {family.name: family.cls for family in FAMILIES.values() if family.name}
)
TEACHERS: Registry[Any] = RegistryView(
    "environment with a teacher",
    lambda: {AUTO: OwnTeacher} | {f.name: f.teacher for f in FAMILIES.values() if f.name and f.teacher},
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

    `groups` need not name all three groups: one that is missing has all held-out tasks. A wrapper's class has
    the held-out tasks, the teacher and the editing of what it wraps, so it is registered with its name alone.
    """
    check_name(ENVS.kind, name)
    if isinstance(cls, type) and issubclass(cls, Wrapper) and (held_out or groups or teacher or editing):
        raise ValueError(
            f"environment {name!r} is a wrapper: its held-out tasks, teacher and editing are those of what it wraps, "
            "so that it is registered with nothing but its name and class"
        )
    if name in ENVS and ENVS[name] is not cls:
        raise ValueError(f"environment {name!r} is registered already, as {ENVS[name]!r}")
    if name == AUTO:
        raise ValueError(f"an environment cannot be called {AUTO!r}: --runner.teacher.design {AUTO} means any of them")
    known = FAMILIES.get(cls, Family(cls))
    if known.name not in ("", name):
        raise ValueError(f"environment {cls!r} is registered already, as {known.name!r}")
    _check_parts(name, cls, held_out, groups, teacher, editing)
    # Other held-out tasks have other groups. And of a family without a name, the groups are only the defaults.
    told = known.groups if known.name and not held_out else {}
    FAMILIES[cls] = Family(
        cls,
        name,
        held_out or known.held_out,
        {**told, **(groups or {})},
        teacher or known.teacher,
        editing or known.editing,  # it may have been said before, by `register_editing`
        fits=fits_always if held_out else known.fits,
    )


def _check_parts(name: str, cls: Any, held_out: Any, groups: Any, teacher: Any, editing: Any) -> None:
    """ValueError in one line for a part of a family that is of the wrong kind."""
    what = f"environment {name!r} has"
    if not callable(cls):
        raise ValueError(f"{what} cls={shown(cls)}: it must be a class, whose fields are the settings")
    if isinstance(cls, type):
        check_derives(cls)
    if held_out is not None and not callable(held_out):
        raise ValueError(f"{what} held_out={shown(held_out)}: it must be a class, called as held_out(env, names)")
    if groups is not None and not (
        isinstance(groups, Mapping) and all(isinstance(g, tuple | list) for g in groups.values())
    ):
        raise ValueError(f"{what} groups={shown(groups)}: it must be a dict of lists of held-out tasks")
    is_settings = isinstance(teacher, type) and dataclasses.is_dataclass(teacher) and hasattr(teacher, "build")
    if teacher is not None and not is_settings:
        raise ValueError(
            f"{what} teacher={shown(teacher)}: it must be a dataclass of settings with a method build(env)"
        )
    for field in dataclasses.fields(teacher) if is_settings else ():
        if field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{what} a teacher whose setting {field.name!r} has no default: give it one")
    if editing is not None:
        _check_editing(what, editing)


def _check_editing(what: str, editing: Any) -> None:
    """ValueError in one line where levels cannot be edited so."""
    if not (isinstance(editing, Editing) or callable(editing)):
        raise ValueError(f"{what} editing={shown(editing)}: it must be an Editing, or a function of the environment")
    for field in dataclasses.fields(editing) if isinstance(editing, Editing) else ():
        part = getattr(editing, field.name)
        if not callable(part):
            raise ValueError(f"{what} an Editing with {field.name}={shown(part)}: it must be a function")


def register_editing(env_class: type, editing: Editing | EditingMaker) -> None:
    """Says how the levels of `env_class` are edited; with a function of the environment, if its settings matter."""
    if not isinstance(env_class, type):
        raise ValueError(f"editing is registered for {shown(env_class)}: it must be the class of an environment")
    _check_editing(f"environment {env_class.__name__!r} has", editing)
    family = FAMILIES.get(env_class, Family(env_class))
    if family.editing not in (None, editing):
        raise ValueError(f"how levels of {env_class.__name__} are edited is registered already")
    FAMILIES[env_class] = dataclasses.replace(family, editing=editing)


def family_of(env: Environment) -> Family:
    """What belongs to `env`, or to the environment that it wraps; the defaults where nothing is registered."""
    inner = unwrapped(env)
    return FAMILIES.get(type(inner), Family(type(inner)))


def teacher_of(env: Environment) -> Any:
    """The settings of the teacher that is registered with `env`, all at their defaults; None where there is none."""
    teacher = None if has_own_levels(env) else family_of(env).teacher
    return None if teacher is None else teacher()


def editing_of(env: Any) -> Editing:
    """How the levels of `env` are edited; ValueError where that is not registered."""
    editing = _editing_of(env)
    if editing is None:
        known = ", ".join(cls.__name__ for cls, family in FAMILIES.items() if family.editing)  # type: ignore[attr-defined]
        name = type(env if has_own_levels(env) else unwrapped(env)).__name__
        raise ValueError(f"no mutation is registered for {name} (register_editing): choose from {known}")
    return editing


def identity_of(env: Environment) -> Callable[[Level], Any]:
    """What makes two levels of `env` equal; all of the level where nothing else is registered."""
    editing = _editing_of(env)
    return editing.identity if editing else whole_level


def _editing_of(env: Any) -> Editing | None:
    editing = None if has_own_levels(env) else family_of(env).editing
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


def make_held_out(env: Environment, names: str | Sequence[str], **options: Any) -> HeldOut:
    """The held-out tasks called `names` (a text is one name), as one batch for `env`, each once.

    If those of a game for two have no players for the other seat, a random one sits there (`AgainstRandom`). Every
    environment has the held-out task "TrainingDistribution", and the groups "validation", "benchmark" and "all". The
    first two have only those that agents of `env` can play. "TrainingList4000" is the list of 4000 levels that a run
    may be trained on, as a held-out task for each difficulty.
    """
    if isinstance(env, type) or not hasattr(env, "sample_level"):
        raise ValueError(f"env is {shown(env)}: it must be an environment, such as make_env('AMaze')")
    if not names:
        raise ValueError("no held-out task is named: give at least one")
    names = as_names(names)
    if isinstance(env, Wrapper):
        return WrappedTasks(env, make_held_out(env.env, names, **options))
    suite = _made_held_out(env, names, options)
    # A suite may bring its own players for the other seat. If not, there is one that every game has.
    is_game = suite.env.multi_agent and suite.env.n_agents == 2
    return AgainstRandom(suite) if is_game else suite


def _made_held_out(env: Environment, names: Sequence[str], options: dict[str, Any]) -> HeldOut:
    """The held-out tasks as the suite of the environment gives them."""
    family = family_of(env)
    _check_options("option of held-out tasks", family.held_out, options, but=("env", "names"))
    tasks = tuple(dict.fromkeys(task for name in names for task in tasks_called(family, env, name)))
    listed = {task: None for group in family.groups.values() for task in (*group, TRAINING_DISTRIBUTION)}
    listed |= dict.fromkeys(own_tasks(family.held_out))
    unlisted = [task for task in tasks if task not in listed and not is_of_training(task)]
    if unlisted and isinstance(family.held_out, type) and issubclass(family.held_out, NamedTasks):
        raise unknown_name("held-out task", unlisted[0], [*family.groups, *listed])

    def suite_of(tasks: tuple[str, ...]) -> HeldOut:
        make = functools.partial(family.held_out, env, tasks, **options)
        return _asked(make, unlisted, [*family.groups, *listed]) if unlisted else make()

    # A suite may know "TrainingDistribution" itself. It needs that only if its `env` plays levels of another
    # shape than the environment of training.
    if family.held_out is TrainingDistribution or hasattr(family.held_out, "draws_training"):
        return suite_of(tasks)
    # A suite is asked for its own held-out tasks alone: it need not know the training distribution.
    own = tuple(task for task in tasks if not is_of_training(task))
    if not own:
        return TrainingDistribution(env.single() if env.single else env, tasks)  # as beside others
    suite = suite_of(own)
    if set(suite.names) != set(own):
        name = type(suite).__name__
        raise ValueError(f"{name}.names is {', '.join(suite.names)}: it was asked for {', '.join(own)}")
    return _with_training(env, suite, tasks)


def _with_training(env: Environment, suite: HeldOut, tasks: tuple[str, ...]) -> HeldOut:
    """The `tasks`, of which `suite` draws all but the training distribution; ValueError where levels do not fit."""
    key = jax.eval_shape(jax.random.key, 0)
    # A suite may be played in another world. Only beside levels of the training must its levels be like those.
    world = env if set(tasks) - set(suite.names) else suite.env
    played = describe(jax.eval_shape(world.sample_level, key))
    drawn = jax.eval_shape(lambda key: suite.sample(key, 1), key)
    shapes = {leaf.shape[:2] for leaf in jax.tree.leaves(drawn)}
    name = type(suite).__name__
    if shapes != {(len(suite.names), 1)}:
        raise ValueError(
            f"{name}.sample(key, 1) gives arrays that begin with {sorted(shapes)}: for {len(suite.names)} held-out "
            f"tasks they must begin with {(len(suite.names), 1)}"
        )
    found = describe(jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), drawn))
    if found != played:
        raise ValueError(f"{name} draws levels {found}, but {type(world).__name__} plays levels {played}")
    names = [f"a level of the held-out task {name!r}" for name in suite.names]
    check_source(suite.env, suite, lambda key: jax.tree.map(lambda x: x[:, 0], suite.sample(key, 1)), names)
    return WithTraining(env, suite, tasks)


def _asked(make: Callable[[], HeldOut], unlisted: list[str], known: list[str]) -> HeldOut:
    """The held-out tasks that `make` gives; ValueError where it does not know the `unlisted`, which are in no group."""
    # Many refuse at once. Others look a name up when they draw its levels, and that would be while it compiles.
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

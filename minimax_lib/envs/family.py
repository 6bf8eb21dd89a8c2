"""All that belongs to one kind of environment, in one record."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.held_out import GROUPS, TRAINING_DISTRIBUTION, NamedTasks, TrainingDistribution
from minimax_lib.envs.task_names import is_list
from minimax_lib.envs.training_list import OF_RUN, list_called, tasks_on_list

EnvironmentMaker = Callable[..., Environment]
HeldOutMaker = Callable[..., HeldOut]
TaskGroups = Mapping[str, Sequence[str]]
CHOSEN_FOR_ALL = ("validation", "benchmark")


def whole_level(level: Level) -> Any:
    """The default identity: two levels are the same where all their leaves are."""
    return level


def unchanged(env: Environment) -> Environment:
    """The default base: the environment's own random levels."""
    return env


@dataclasses.dataclass(frozen=True)
class Editing:
    """How levels are mutated and compared: what ACCEL and the level buffer need to know of an environment.

    Check your own with `minimax_lib.testing.envs.check_editing`.
    """

    mutate: Callable[[jax.Array, Level, int], Level]
    """`mutate(key, level, n_edits)` gives a child of the level."""
    identity: Callable[[Level], Any] = whole_level
    """Two levels are equal where `identity(level)`, any pytree, is."""
    base: Callable[[Any], Environment] = unchanged
    """`base(env)` is an environment whose random levels are the simplest: what ACCEL starts from."""


EditingMaker = Callable[[Any], Editing]


def fits_always(env: Environment, task: str) -> bool:
    """The default: every held-out task can be played, whatever the settings of the environment are."""
    return True


@dataclasses.dataclass(frozen=True)
class Family:
    """An environment and what goes with it. Each environment's own record is in its own folder."""

    cls: EnvironmentMaker
    """Makes the environment; a dataclass, whose fields are its settings."""
    name: str = ""
    """What it is called in files and on the command line; empty: it cannot be chosen there."""
    held_out: HeldOutMaker = TrainingDistribution
    """`held_out(env, names, **options)` builds held-out tasks."""
    groups: TaskGroups = dataclasses.field(default_factory=dict)
    """Names for several held-out tasks: "validation" is played during training, "benchmark" after it; and "all".
    A group that is missing has all of them."""
    teacher: Any = None
    """Settings whose `build(env)` returns the MDP in which levels are designed (`TeacherEnvironment`)."""
    editing: Editing | EditingMaker | None = None
    """How levels are mutated and compared, where they can be; a function of the environment if its settings matter."""
    fits: Callable[[Any, str], bool] = fits_always
    """`fits(env, task)`: whether agents of this environment can play the held-out task. If not, "validation" and
    "benchmark" leave it out. By name or in another group, it is refused."""

    def __post_init__(self) -> None:
        own = own_tasks(self.held_out)
        listed = dict.fromkeys((*own, *(task for group in self.groups.values() for task in group)))
        # Without its own tasks, an environment is evaluated on fresh levels.
        named = tuple(task for task in listed if task != TRAINING_DISTRIBUTION) or (TRAINING_DISTRIBUTION,)
        everything = tuple(dict.fromkeys((*named, TRAINING_DISTRIBUTION)))
        missing = dict.fromkeys(GROUPS, named) | {"all": everything}
        object.__setattr__(self, "groups", missing | {name: tuple(group) for name, group in self.groups.items()})


def tasks_called(family: Family, env: Environment, name: str) -> tuple[str, ...]:
    """The held-out tasks that `name` stands for in `env`: those of the group of that name, or the one so called."""
    if name == OF_RUN:
        raise ValueError(
            f"the held-out task {name!r} is the list of levels of a run: here, name its length, "
            f"such as {list_called(4000)}"
        )
    if is_list(name):
        return tasks_on_list(env, name)
    # A path is known by its dot or slash: no file or folder can take the place of a held-out task by chance.
    if env.levels_in is not None and ("." in name or "/" in name) and Path(name).exists():
        return tuple(env.levels_in(Path(name)))
    tasks = tuple(family.groups.get(name, (name,)))
    # These two are played where nobody has chosen anything else.
    return tuple(task for task in tasks if family.fits(env, task)) if name in CHOSEN_FOR_ALL else tasks


def own_tasks(held_out: HeldOutMaker) -> tuple[str, ...]:
    """The held-out tasks that a class of suites has if none are asked for; none where it does not say."""
    if isinstance(held_out, type) and issubclass(held_out, NamedTasks):
        return held_out.known
    fields = dataclasses.fields(held_out) if dataclasses.is_dataclass(held_out) else ()
    default = next((field.default for field in fields if field.name == "names"), ())
    return default if isinstance(default, tuple) else ()

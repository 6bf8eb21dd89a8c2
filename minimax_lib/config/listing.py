"""What --list prints: the names that there are to choose from, with a line about each."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minimax_lib.config.help import wrapped
from minimax_lib.config.shipped import shipped, shipped_agents, shipped_sweeps, summary, summary_of_agent
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.envs.base import Environment
from minimax_lib.envs.family import TaskGroups
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.envs.registry import ENVS, FAMILIES, family_of
from minimax_lib.models.registry import MODELS
from minimax_lib.registry import Registry, unknown_name

Names = Iterator[tuple[str, str]]  # a name, and a line about it


def configs() -> Names:
    for name, path in shipped().items():
        yield name, summary(path)


def sweeps() -> Names:
    for name, path in shipped_sweeps().items():
        yield name, summary(path)


def agents() -> Names:
    for name, folder in shipped_agents().items():
        yield name, summary_of_agent(folder)


def of_registry(registry: Registry[Any]) -> Callable[[], Names]:
    """The names in `registry`, each with the first line of its docstring."""

    def names() -> Names:
        for name in registry.names():
            yield name, first_line(registry[name])

    return names


def scores() -> Names:
    for name in SCORES.names():
        score: Score = SCORES[name]
        yield name, score.meaning or first_line(score.function)


def tasks() -> Names:
    for name in ENVS.names():
        groups = FAMILIES[ENVS[name]].groups
        known = tasks_of(groups)
        yield name, ", ".join(known)
        for group in named_groups(groups):
            members = groups[group]
            yield f"  {group}", "all of these" if set(members) == set(known) else ", ".join(members)


def named_groups(groups: TaskGroups) -> list[str]:
    """The groups, without those that are a task by its own name: it is one that no other group has."""
    return [group for group, members in groups.items() if tuple(members) != (group,)]


def tasks_of(groups: TaskGroups) -> list[str]:
    """The tasks that are in `groups`, each once, and the one that every environment has."""
    return list(dict.fromkeys([*(task for members in groups.values() for task in members), TRAINING_DISTRIBUTION]))


KINDS: dict[str, tuple[str, Callable[[], Names]]] = {
    "configs": ("configurations: --config NAME", configs),
    "sweeps": ("sweeps: minimax-sweep NAME", sweeps),
    "agents": ("trained agents: --run NAME, load_run(NAME)", agents),
    "environments": ("environments: --env NAME", of_registry(ENVS)),
    "methods": ("methods: --runner NAME", of_registry(RUNNERS)),
    "generators": ("where plr and accel get new levels: --runner.generator NAME", of_registry(GENERATORS)),
    "models": ("models: --model NAME", of_registry(MODELS)),
    "scores": ("scores of levels: --runner.score NAME", scores),
    "tasks": ("held-out tasks and groups of them, by environment: --eval.tasks NAME ...", tasks),
}


def listing(kinds: Sequence[str]) -> list[str]:
    """The lines about `kinds`, or about all; ValueError for an unknown one."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("list", kind, KINDS)
    lines: list[str] = []
    for kind in kinds or KINDS:
        heading, names = KINDS[kind]
        rows = list(names())
        column = max((len(name) for name, _ in rows), default=0) + 4
        lines += ["", heading] if lines else [heading]
        lines += [wrapped(f"{name:{column - 2}}{about}", "  ", " " * column) for name, about in rows]
    return lines


def first_line(thing: Any) -> str:
    """The first paragraph of the docstring of a class or function, in one line; empty if it has none."""
    text = inspect.getdoc(thing) or ""
    # `dataclass` writes its own docstring where there is none: the signature, which explains nothing.
    if inspect.isclass(thing) and text.startswith(f"{thing.__name__}("):
        return ""
    return " ".join(text.partition("\n\n")[0].split())


def note_on_tasks(env: Environment) -> str:
    """The held-out tasks of `env`, as a sentence."""
    groups = family_of(env).groups
    return f"Groups: {', '.join(named_groups(groups))}. Tasks: {', '.join(tasks_of(groups))}."

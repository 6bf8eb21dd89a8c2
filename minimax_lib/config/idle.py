"""Settings that have no effect beside others, and the refusal of them: a user who sets one expects an effect."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minimax_lib.agents.ppo import PPO
from minimax_lib.config.files import RUN_CONFIG
from minimax_lib.config.runs import is_of_run
from minimax_lib.config.tree import NAME, Tree, defaults_of, flat, registry_of, setting_hints
from minimax_lib.curricula.games.joint import SelfPlayMethod
from minimax_lib.curricula.level_buffer import ReplaySettings
from minimax_lib.curricula.levels.accel import ACCELSettings
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.grid.gridworld import GridWorld
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.messages import shown
from minimax_lib.opponents.settings import PFSPSettings, SelfPlaySettings
from minimax_lib.tasks.frontier import Frontier
from minimax_lib.tasks.preference import Preference
from minimax_lib.tasks.registry import (
    BatchedDRSettings,
    ConstantSettings,
    LearningProgressSettings,
    OmniSettings,
    SequentialSettings,
    SFLSettings,
    StratifiedSettings,
    TSCLSettings,
    UniformSettings,
    task_settings,
)

UNTEMPERED = ("greedy", "eps_greedy", "constant")  # transforms that no temperature changes
WITHOUT_EPS = ("rank", "power", "greedy", "softmax", "match", "match_rank", "constant")
WITHOUT_SCORES = (
    BatchedDRSettings,
    ConstantSettings,
    LearningProgressSettings,
    SFLSettings,
    SequentialSettings,
    StratifiedSettings,
    TSCLSettings,
    UniformSettings,
    task_settings(Frontier),
)


class Idle(NamedTuple):
    """Settings of a group that have no effect where others of the group have one of these values.

    A class among the values stands for all settings of that class.
    """

    group: type
    names: tuple[str, ...]
    where: Mapping[str, tuple[Any, ...]]


IDLE = (
    Idle(PPO, ("advantages_over",), {"normalize_advantages": (False,)}),
    Idle(Evaluation, ("n_episodes",), {"every": (0,)}),
    Idle(GridWorld, ("view_size", "see_through_walls"), {"observation": ("full",)}),
    Idle(PLRSettings, ("replay_prob", "schedule"), {"parallel": (True,)}),
    Idle(PLRSettings, ("capacity",), {"generator": (FiniteList,)}),
    # The curriculum that takes the generator's levels says whether the student learns from them.
    Idle(PLRSettings, ("generator.robust",), {"generator": (PLRSettings,)}),
    Idle(ReplaySettings, ("replay_prob",), {"schedule": ("proportionate",)}),
    Idle(ReplaySettings, ("temperature",), {"prioritisation": ("greedy",)}),
    Idle(ACCELSettings, ("n_parents",), {"selection": ("batch",)}),
    Idle(SelfPlayMethod, ("n_opponents",), {"opponents": (SelfPlaySettings,), "scripted": (0.0,)}),
    Idle(TasksMethod, ("max_score_coef", "tail"), {"core": WITHOUT_SCORES, "levels": WITHOUT_SCORES}),
    Idle(Preference, ("temperature",), {"transform": UNTEMPERED}),
    Idle(Preference, ("staleness_transform", "staleness_temperature"), {"staleness": (0.0,)}),
    Idle(Preference, ("staleness_temperature",), {"staleness_transform": UNTEMPERED}),
    Idle(Preference, ("eps",), {"transform": WITHOUT_EPS, "staleness_transform": WITHOUT_EPS}),
    Idle(SFLSettings, ("k", "q"), {"sampling": ("dist",)}),
    Idle(PFSPSettings, ("exponent",), {"weighting": ("var",)}),
    Idle(OmniSettings, ("missing", "boring"), {"interesting": ("",)}),
)


def refuse_idle(config: Any, files: Sequence[tuple[Path, Tree]], flags: Tree) -> None:
    """ValueError for a setting of `files` or `flags` that has no effect in `config`, which came of them.

    A setting of a file is not refused where it is the default, where a later file or a flag has taken its effect away,
    or where the file is that of a run, which has every setting. A run that is resumed may repeat all its settings.
    """
    if config.resume and (config.run_folder / RUN_CONFIG).exists():
        return
    said = [flat(tree) for _, tree in files] + [flat(flags)]
    for name, value, usual, reasons in idle_in(config):
        last = max((i for i, tree in enumerate(said) if name in tree), default=None)
        if last is None or any(_is_said(reason, later) for reason in reasons for later in said[last + 1 :]):
            continue
        if last < len(files) and (config.resume or is_of_run(files[last][0]) or value == usual):
            continue
        value = shown(said[last][name])
        raise ValueError(f"{name} is {value}: leave it out, as it has no effect with {beside(reasons)}")


def refuse_idle_in_all(configs: Iterable[Any], names: Sequence[str], key: str) -> None:
    """ValueError for one of `names`, settings under `key` of a file, that has no effect in any of `configs`."""
    idle: dict[str, dict[str, Any]] = {}
    for i, config in enumerate(configs):
        found = {name: reasons for name, _, _, reasons in idle_in(config) if name in names}
        idle = {name: reasons for name, reasons in found.items() if not i or name in idle}
        if not idle:
            return
    for name, reasons in idle.items():
        raise ValueError(f"{key}.{name}: leave it out, as it has no effect with {beside(reasons)}")


def beside(reasons: Mapping[str, Any]) -> str:
    """The settings that take the effect of others away, as a phrase."""
    return " and ".join(f"{name} {shown(value)}" for name, value in reasons.items())


def _is_said(name: str, tree: Mapping[str, Any]) -> bool:
    """Whether `tree`, by dotted names, sets `name` or chooses one of the groups that it is in."""
    parts = name.split(".")
    groups = {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
    return any(said in groups or said.removesuffix(f".{NAME}") in groups for said in tree)


def idle_in(settings: Any, path: str = "") -> Iterator[tuple[str, Any, Any, dict[str, Any]]]:
    """(dotted name, value, default, the settings that take its effect away with their values) of what has no effect."""
    for row in IDLE:
        if isinstance(settings, row.group) and all(_has(settings, name, row.where[name]) for name in row.where):
            reasons = {f"{path}{name}": _name_of(settings, name) for name in row.where}
            for name in row.names:
                *way, last = name.split(".")
                group = settings
                for part in way:
                    group = getattr(group, part)
                yield f"{path}{name}", getattr(group, last), defaults_of(type(group)).get(last), reasons
    for name in setting_hints(type(settings)):
        value = getattr(settings, name)
        if dataclasses.is_dataclass(value):
            yield from idle_in(value, f"{path}{name}.")


def _has(settings: Any, name: str, values: tuple[Any, ...]) -> bool:
    value = getattr(settings, name)
    return any(isinstance(value, other) if isinstance(other, type) else value == other for other in values)


def _name_of(settings: Any, name: str) -> Any:
    """The value of a setting; of a group that is chosen by name, the name."""
    value, registry = getattr(settings, name), registry_of(setting_hints(type(settings)).get(name))
    return registry.name_of(type(value)) if registry else value

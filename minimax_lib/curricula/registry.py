"""Curricula by name."""

import dataclasses
from typing import Any

from minimax_lib.curricula.games.joint import SelfPlayMethod
from minimax_lib.curricula.games.maestro import MaestroMethod
from minimax_lib.curricula.levels.accel import ACCEL, ACCELSettings
from minimax_lib.curricula.levels.cenie import CENIE
from minimax_lib.curricula.levels.designed import PAIRED
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.episode_replay import EpisodePLR
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.levels.ncc import NCCMethod
from minimax_lib.curricula.levels.plr import PLR, PLRSettings
from minimax_lib.curricula.levels.sfl import SFLMethod, SFLSettings
from minimax_lib.curricula.levels.traced import TRACED
from minimax_lib.curricula.settings import CurriculumSettings, RolloutSettings, with_rollouts
from minimax_lib.curricula.tasks.boxes import BoxMethod
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.registry import Registry

RUNNERS: Registry[Any] = Registry(
    "runner",
    {
        "dr": DR,
        "plr": PLR,
        "accel": ACCEL,
        "traced": TRACED,
        "cenie": CENIE,
        "sfl": SFLMethod,
        "ncc": NCCMethod,
        "paired": PAIRED,
        "tasks": TasksMethod,
        "episode_plr": EpisodePLR,
        "selfplay": SelfPlayMethod,
        "maestro": MaestroMethod,
        "box": BoxMethod,
    },
    # Variants are settings of these. Each variant has its own shipped configuration.
    elsewhere={
        "domain_randomization": "dr",
        "robust_plr": "plr",
        "parallel_plr": "plr",
        "parallel_accel": "accel",
        "repaired": "plr",
        "population_paired": "paired",
        "minimax_adversary": "paired",
        "tscl": "tasks",
        "listed_plr": "tasks",
        "level_replay": "tasks",
        "unbounded_plr": "episode_plr",
        "self_play": "selfplay",
        "fsp": "selfplay",
        "pfsp": "selfplay",
        "annealing": "box",
        "expanding_box": "box",
    },
)

# These take a generator themselves, so that they cannot be part of the literal table that they are defined after.
for _name, _settings in {"plr": PLRSettings, "accel": ACCELSettings, "sfl": SFLSettings}.items():
    GENERATORS.register(_name, _settings)


def register_curriculum(name: str, settings: type[CurriculumSettings]) -> Any:
    """Adds a curriculum: a frozen dataclass of settings whose `build(env, agent, n_rows)` returns a `Curriculum`.

    It becomes a choice of `--runner`, with the settings of a rollout (`n_parallel`, `n_steps`) beside its own, and of
    every setting that takes a curriculum (`--runner.generator`). Returns the class that `--runner` builds.
    """
    if not (dataclasses.is_dataclass(settings) and callable(getattr(settings, "build", None))):
        raise ValueError(
            f"curriculum {name!r} is registered with {settings!r}: it must be a dataclass of settings with a method "
            "build(env, agent, n_rows)"
        )
    runner = RUNNERS.register(name, with_rollouts(settings))
    if not issubclass(settings, RolloutSettings):  # else it has its own rows, and cannot stand inside another
        GENERATORS.register(name, settings)
    return runner


register_runner = register_generator = register_curriculum

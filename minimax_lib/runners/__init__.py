"""Runners: a curriculum, students and an environment as pure `init` and `step`, for many seeds and devices.

The names below are imported when they are first used. Two of them belong to packages that import this one.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minimax_lib.runners.build import ACCELRunner as ACCELRunner
    from minimax_lib.runners.build import DRRunner as DRRunner
    from minimax_lib.runners.build import PAIREDRunner as PAIREDRunner
    from minimax_lib.runners.build import PLRRunner as PLRRunner

HOMES = {
    "DRRunner": "runners.build",
    "PLRRunner": "runners.build",
    "ACCELRunner": "runners.build",
    "PAIREDRunner": "runners.build",
    "EvalRunner": "evaluation.held_out",
    "ExperimentRunner": "experiment.run",
}

__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(importlib.import_module(f"minimax_lib.{HOMES[name]}"), name)
    raise AttributeError(f"module 'minimax_lib.runners' has no attribute {name!r}")

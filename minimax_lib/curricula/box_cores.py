"""Where the settings of curricula over a box stood before `minimax_lib.tasks.box_registry`."""

from minimax_lib.tasks.box_registry import (
    BOX_CURRICULA,
    AnnealingSettings,
    Bounds,
    BoxCurriculumSettings,
    ExpandingBoxSettings,
    Interval,
    Placing,
    UniformBoxSettings,
    Values,
    read_values,
)

__all__ = [
    "BOX_CURRICULA",
    "AnnealingSettings",
    "Bounds",
    "BoxCurriculumSettings",
    "ExpandingBoxSettings",
    "Interval",
    "Placing",
    "UniformBoxSettings",
    "Values",
    "read_values",
]

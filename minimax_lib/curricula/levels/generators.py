"""Curricula that a curriculum with a level buffer may take its new levels from, by name."""

from typing import Any

from minimax_lib.curricula.levels.designed import Teacher
from minimax_lib.curricula.levels.dr import RandomLevels, SimplestLevels
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.registry import Registry

# These settings do not say how many levels make a batch. The curriculum that uses them does.
GENERATORS: Registry[Any] = Registry(
    "generator",
    {"random": RandomLevels, "simplest": SimplestLevels, "finite": FiniteList, "teacher": Teacher},
    elsewhere={"dr": "random", "domain_randomization": "random", "robust_plr": "plr", "paired": "teacher"},
)

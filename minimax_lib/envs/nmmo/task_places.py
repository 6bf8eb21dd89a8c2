"""The tiles and the players that tasks name."""

from typing import Any

import numpy as np

from minimax_lib.envs.nmmo.goals import OWN
from minimax_lib.envs.nmmo.predicates import SEIZES, TILE_ROW
from minimax_lib.envs.nmmo.resources import PATCH
from minimax_lib.envs.nmmo.task_specs import warn_of_change
from minimax_lib.envs.nmmo.tasks import TaskList, numbers_of, tile_of


def places_of(tiles: np.ndarray) -> np.ndarray:
    """i32[Z, 2], row and column of tiles that are one number each (i32[Z])."""
    return np.stack([tiles // TILE_ROW, tiles % TILE_ROW], axis=1)


def check_tasks(tasks: TaskList, env: Any) -> None:
    """ValueError in one line where a task names a player or a tile that `env` (an `NMMO`) does not have."""
    warn_of_change(env.task_set)
    check_tiles(tasks, env)
    if tasks.needs_teams and not env.n_teams:
        raise ValueError(f"task_set={env.task_set}: it has tasks of teams: set n_teams, such as 4")
    for number, leaves in enumerate(tasks.leaves):
        subject = tasks.specs[number].subject
        named = [subject if isinstance(subject, int) else 1]
        for leaf in leaves:
            if leaf.predicate in OWN:
                continue  # what it means by a target is its own affair
            arguments = dict(leaf.arguments)
            for name in ("target", "target_protect", "target_destroy"):
                value = arguments.get(name, ())
                named += value if isinstance(value, tuple) else [value] if isinstance(value, int) else []
        if max(named) > env.n_players:
            raise ValueError(f"task {tasks.name(number)}: player {max(named)}: there are {env.n_players}")


def check_tiles(tasks: TaskList, env: Any) -> None:
    """ValueError in one line where a task is about a tile that no player of `env` can reach, or that is no hill."""
    for leaf in [leaf for leaves in tasks.leaves for leaf in leaves if leaf.predicate in (*SEIZES, "OccupyTile")]:
        tile = tile_of(leaf.predicate, numbers_of(leaf, tasks.middle))
        assert tile is not None  # these predicates name one
        # A tile to be seized is one number. As such, one outside of the map can look like one inside.
        given = dict(leaf.arguments)
        row, column = (given.get(name, place) for name, place in zip(("row", "col"), tile, strict=True))
        margin, verb = (PATCH, "seizes") if leaf.predicate in SEIZES else (0, "is about")
        low, high = env.square.border + margin, env.square.border + env.centre - margin
        if not (low <= row <= high and low <= column <= high):
            raise ValueError(f"a task {verb} row {row}, column {column}: both must be between {low} and {high}")

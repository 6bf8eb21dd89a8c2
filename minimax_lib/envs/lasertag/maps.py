"""The maps of the literature and our own, by name, as levels."""

import functools
import json
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.lasertag.level import DRAWN, Level, at, make_level, padded
from minimax_lib.registry import unknown_name

SOUTH = 1
LANCTOT = ("small2", "small3", "small4")  # Lanctot et al. (2017)


@functools.cache
def _texts() -> dict[str, tuple[str, ...]]:
    """The rows of each map: # a wall, S a spawn, . any other free cell."""
    file = Path(__file__).with_name("maps.json")
    maps = json.loads(file.read_text(encoding="utf-8"))["maps"]
    return {name: tuple(spec["rows"]) for name, spec in maps.items()}


def known_maps() -> tuple[str, ...]:
    """The names of all maps."""
    return tuple(_texts())


def map_size(name: str) -> tuple[int, int]:
    """(height, width) of the map; ValueError for a name that is none."""
    rows = rows_of(name)
    return len(rows), len(rows[0])


def rows_of(name: str) -> tuple[str, ...]:
    """The map as text; ValueError for a name that is none."""
    if name not in _texts():
        raise unknown_name("map", name, _texts())
    return _texts()[name]


def common_size(names: Sequence[str]) -> tuple[int, int]:
    """(height, width) of the smallest grid that all of these maps fit in."""
    heights, widths = zip(*map(map_size, names), strict=True)
    return max(heights), max(widths)


def load(name: str | Sequence[str], size: tuple[int, int] | None = None) -> Level:
    """The level of that name; for several names their levels stacked [n, ...], padded to `size` or a common size.

    Their starts are -1 (see `Level`), and both agents face south, as in OpenSpiel. `started` draws starts and facings.
    """
    if isinstance(name, str):
        level = from_rows(rows_of(name))
        return level if size is None else padded(level, *size)
    size = size or common_size(name)
    return jax.tree.map(lambda *levels: jnp.stack(levels), *(load(each, size) for each in name))


def from_rows(rows: Sequence[str]) -> Level:
    """The level of a map as text, without starts."""
    cells = np.array([list(row) for row in rows])
    return make_level(cells == "#", np.full((2, 2), DRAWN), np.full(2, SOUTH), cells == "S")


def started(key: jax.Array, level: Level) -> Level:
    """The level with its two agents on two different random spawns, each facing anywhere."""
    k_zero, k_one, k_facings = jax.random.split(key, 3)
    y, x, _ = draw_cell(k_zero, level.spawns)
    zero = jnp.stack([x, y])
    y, x, _ = draw_cell(k_one, level.spawns & ~at(zero, level.spawns.shape))
    return level.replace(starts=jnp.stack([zero, jnp.stack([x, y])]), facings=jax.random.randint(k_facings, (2,), 0, 4))

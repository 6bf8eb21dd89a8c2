"""Pictures of games of LaserTag, drawn on the host. Agent 0 is red and agent 1 is blue."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.cells.codes import STEPS, UPWARDS
from minimax_lib.envs.cells.drawing import (
    FLOOR,
    WALL,
    covered,
    framed,
    lit,
    mosaic,
    seen_cells,
    side_by_side,
    trail,
    with_agent,
)
from minimax_lib.envs.drawing import arranged
from minimax_lib.envs.lasertag import view as planes
from minimax_lib.envs.lasertag.dynamics import EnvState
from minimax_lib.envs.lasertag.level import Level

AGENTS = ((255, 60, 60), (70, 150, 255))
TRAILS = ((150, 60, 60), (50, 85, 150))
BEAM = (255, 240, 120)
FREE, WALLED = range(2)  # kinds of cells


def draw_level(level: Level, cell: int = 20) -> np.ndarray:
    """u8[(h + 2) * cell, (w + 2) * cell, 3]: the walls inside a border, and the agents where they start, if that is
    known."""
    level = jax.tree.map(np.asarray, level)
    picture = _draw_walls(np.asarray(level.walls), cell)
    return _with_agents(picture, np.asarray(level.starts), np.asarray(level.facings), cell)


def draw_levels(levels: Level, captions: Sequence[str] = (), columns: int = 6, cell: int = 20) -> np.ndarray:
    """u8[H, W, 3]: levels [n, ...] row by row, `columns` in a row, each above its caption.

    If there are fewer `captions` than levels, they belong to the first ones. Walls that pad a level below and to the
    right are cut off.
    """
    levels = jax.tree.map(np.asarray, levels)
    n = len(levels.walls)
    tiles = [draw_level(without_padding(jax.tree.map(lambda x, i=i: x[i], levels)), cell) for i in range(n)]
    return arranged(tiles, [*captions, *[""] * (n - len(captions))], min(columns, n), gap=cell)


def draw_episodes(states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: R games, `columns` in a row. `states` [T, R, ...] belong to them where `running` (bool[T, R]).

    Each picture shows the last moment of a game, with the beams of that moment, and the ways of both agents to it.
    """
    states, running = jax.tree.map(np.asarray, states), np.asarray(running)
    tiles = [_draw_game(jax.tree.map(lambda x, i=i: x[running[:, i], i], states)) for i in range(running.shape[1])]
    return arranged(tiles, [*captions, *[""] * (len(tiles) - len(captions))], min(columns, len(tiles)), gap=20)


def draw_state(state: EnvState, image: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[H, W, 3]: the game at one moment, with the cells that agent 0 sees lit, and beside it agent 0's view.

    `image` is what it sees in `state` (bool[h, w, planes], as in its observation).
    """
    now: Any = jax.tree.map(np.asarray, state)
    return side_by_side(_draw_moment(now, image, cell), draw_view(image, cell), cell)


def draw_view(image: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[h * cell, w * cell, 3]: what an agent sees (bool[h, w, planes]). The other one has no facing there."""
    picture = mosaic(_tiles(cell), np.where(image[..., planes.WALL], WALLED, FREE))
    for y, x in np.argwhere(image[..., planes.OTHER]):
        picture[y * cell + 3 : (y + 1) * cell - 2, x * cell + 3 : (x + 1) * cell - 2] = AGENTS[1]
    ((y, x),) = np.argwhere(image[..., planes.SELF])
    return with_agent(picture, np.array([x, y]), UPWARDS, cell, AGENTS[0])


def _draw_game(states: Any, cell: int = 20) -> np.ndarray:
    """u8[h * cell, w * cell, 3]: a game of which `states` are [T, ...]."""
    last = jax.tree.map(lambda x: x[-1], states)
    walls = np.asarray(without_padding(last.level).walls)
    picture = _draw_walls(walls, cell)
    shape = tuple(side + 2 for side in walls.shape)
    for agent in range(2):
        for path in _without_jumps(states.position[:, agent] + 1):
            picture = covered(picture, trail(path, shape, cell, TRAILS[agent]))
    picture = _with_beams(picture, last, cell)
    return _with_agents(picture, last.position, last.facing, cell)


def _draw_moment(state: Any, image: np.ndarray, cell: int) -> np.ndarray:
    """u8[h * cell, w * cell, 3]: the whole map, with the cells that agent 0 sees lit."""
    picture = _with_beams(_draw_walls(np.asarray(without_padding(state.level).walls), cell), state, cell)
    picture = lit(picture, seen_from(image, state.position[0], int(state.facing[0])) + 1, cell)
    return _with_agents(picture, state.position, state.facing, cell)


def seen_from(image: np.ndarray, position: np.ndarray, facing: int) -> np.ndarray:
    """i32[n, 2]: [x, y] of the cells that an agent sees which stands at `position`; `image` is its observation."""
    ((row, _),) = np.argwhere(image[..., planes.SELF])
    back = image.shape[0] - 1 - row
    # The cells are those that it would see if it looked from the last row of its view.
    return seen_cells(np.ones(image.shape[:2], bool), position - back * STEPS[facing], facing)


def _with_agents(picture: np.ndarray, positions: np.ndarray, facings: np.ndarray, cell: int) -> np.ndarray:
    for agent in range(2):
        if (positions[agent] >= 0).all():
            picture = with_agent(picture, positions[agent] + 1, int(facings[agent]), cell, AGENTS[agent])
    return picture


def _with_beams(picture: np.ndarray, state: Any, cell: int) -> np.ndarray:
    """The picture with the beams of those who have just fired."""
    height, width = state.level.walls.shape
    for agent in np.flatnonzero(state.fired):
        step = STEPS[state.facing[agent]]
        x, y = state.position[agent] + step
        while 0 <= x < width and 0 <= y < height and not state.level.walls[y, x]:
            middle, half = (np.array([x, y]) + 1) * cell + cell // 2, np.where(step == 0, cell // 10, cell // 2)
            (left, top), (right, bottom) = middle - half, middle + half
            picture[top:bottom, left:right] = BEAM
            if (state.position[1 - agent] == (x, y)).all():
                break
            x, y = np.array([x, y]) + step
    return picture


def _without_jumps(path: np.ndarray) -> list[np.ndarray]:
    """The path in pieces: a tagged agent that returns does not walk there."""
    jumps = np.flatnonzero(np.abs(np.diff(path, axis=0)).sum(axis=1) > 1)
    return np.split(path, jumps + 1)


def _draw_walls(walls: np.ndarray, cell: int) -> np.ndarray:
    return mosaic(_tiles(cell), np.pad(np.where(walls, WALLED, FREE), 1, constant_values=WALLED))


@functools.lru_cache
def _tiles(cell: int) -> np.ndarray:
    """u8[2, cell, cell, 3], the picture of a cell of each kind."""
    plain = [np.full((cell, cell, 3), colour, np.uint8) for colour in (FLOOR, WALL)]
    return np.stack([framed(plain[FREE]), plain[WALLED]])


def without_padding(level: Level) -> Level:
    """The level without the last rows and columns that hold only walls."""
    free = ~np.asarray(level.walls)
    height, width = (int(np.flatnonzero(free.any(axis=axis))[-1]) + 1 for axis in (1, 0))
    return level.replace(walls=level.walls[:height, :width], spawns=level.spawns[:height, :width])

"""Pictures of mazes, drawn on the host."""

import functools
from collections.abc import Sequence

import jax
import numpy as np

from minimax_lib.envs.cells.codes import UPWARDS
from minimax_lib.envs.cells.drawing import (
    AGENT,
    FLOOR,
    GOAL,
    TRAIL,
    UNSEEN,
    WALL,
    covered,
    framed,
    lit,
    mosaic,
    save,
    seen_cells,
    side_by_side,
    trail,
    with_agent,
)
from minimax_lib.envs.drawing import PAPER, arranged
from minimax_lib.envs.maze import level as codes
from minimax_lib.envs.maze.amaze import EnvState
from minimax_lib.envs.maze.level import Level

# Callers find colours and `save` here too.
__all__ = [
    "AGENT",
    "FLOOR",
    "GOAL",
    "PAPER",
    "TRAIL",
    "UNSEEN",
    "WALL",
    "draw_episodes",
    "draw_level",
    "draw_levels",
    "draw_state",
    "draw_view",
    "save",
    "without_padding",
]

FREE, WALLED, GOALS, HIDDEN = range(4)  # kinds of cells


def draw_level(level: Level, path: np.ndarray | None = None, cell: int = 20) -> np.ndarray:
    """u8[(h + 2) * cell, (w + 2) * cell, 3]: the level inside its border wall, `cell` pixels a cell.

    `path` (i32[T, 2], the agent's positions [x, y]) is drawn as a line. Rows with a negative entry are left out.
    """
    level = jax.tree.map(np.asarray, level)
    kinds = np.pad(np.where(level.wall_map, WALLED, FREE), 1, constant_values=WALLED)
    x, y = level.goal_pos + 1
    kinds[y, x] = GOALS
    picture = mosaic(_tiles(cell), kinds)
    # Later shapes cover earlier ones: first the goal, then the path, and the agent on top.
    if path is not None:
        picture = covered(picture, trail(_inside_border(path), kinds.shape, cell))
    return with_agent(picture, np.asarray(level.agent_pos) + 1, int(level.agent_dir), cell)


def draw_levels(
    levels: Level,
    captions: Sequence[str] = (),
    paths: Sequence[np.ndarray] = (),
    columns: int = 6,
    cell: int = 20,
) -> np.ndarray:
    """u8[H, W, 3]: levels [n, ...] row by row, `columns` in a row, each above its caption.

    If there are fewer `captions` or `paths` than levels, they belong to the first ones. Walls that pad a level below
    and to the right are cut off.
    """
    n = np.asarray(levels.agent_dir).shape[0]
    one = [without_padding(jax.tree.map(lambda x, i=i: np.asarray(x)[i], levels)) for i in range(n)]
    tiles = [draw_level(level, paths[i] if i < len(paths) else None, cell) for i, level in enumerate(one)]
    texts = [captions[i] if i < len(captions) else "" for i in range(n)]
    return arranged(tiles, texts, min(columns, n), gap=cell)


def draw_episodes(states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: `draw_levels` of R episodes. `states` [T, R, ...] belong to them where `running` (bool[T, R])."""
    # Episodes differ in length. `draw_level` leaves out negative positions.
    paths = np.where(running[..., None], states.agent_pos, -1).swapaxes(0, 1)
    return draw_levels(jax.tree.map(lambda x: x[0], states.level), captions, list(paths), columns)


def draw_state(state: EnvState, image: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[H, W, 3]: the maze at one moment, with the cells that the agent sees lit, and beside it the agent's view.

    `image` is what the agent sees in `state` (u8[v, v, 3], as in its observation). In the view it looks upwards, from
    the middle of the last row. Cells that it does not see are dark there.
    """
    state = jax.tree.map(np.asarray, state)
    position, seen = np.asarray(state.agent_pos), np.asarray(image)[..., 0]
    level = Level(state.level.wall_map, state.agent_pos, state.agent_dir, state.level.goal_pos)
    whole = draw_level(without_padding(level), cell=cell)
    whole = lit(whole, seen_cells(seen != codes.UNSEEN[0], position, int(state.agent_dir)) + 1, cell)
    return side_by_side(whole, draw_view(seen, cell), cell)


def draw_view(seen: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[v * cell, v * cell, 3]: what the agent sees, from MiniGrid's object codes (u8[v, v])."""
    kinds = np.full(seen.shape, FREE)
    for code, kind in ((codes.WALL, WALLED), (codes.GOAL, GOALS), (codes.UNSEEN, HIDDEN)):
        kinds[seen == code[0]] = kind
    own = np.array([seen.shape[1] // 2, seen.shape[0] - 1])
    return with_agent(mosaic(_tiles(cell), kinds), own, UPWARDS, cell)


@functools.lru_cache
def _tiles(cell: int) -> np.ndarray:
    """u8[4, cell, cell, 3], the picture of a cell of each kind."""
    plain = [np.full((cell, cell, 3), colour, np.uint8) for colour in (FLOOR, WALL, GOAL, UNSEEN)]
    return np.stack([tile if kind == WALLED else framed(tile) for kind, tile in enumerate(plain)])


def _inside_border(path: np.ndarray) -> np.ndarray:
    """i32[T, 2]: the positions of `path` in a picture with the border. Negative ones stay negative."""
    path = np.asarray(path)
    return np.where(path >= 0, path + 1, path)


def without_padding(level: Level) -> Level:
    """The level without the last rows and columns that hold only walls."""
    # Padding cannot be told from a maze's own walls on its last lines. They may go too: the border looks the same.
    free = ~level.wall_map
    height, width = (int(np.flatnonzero(free.any(axis=axis))[-1]) + 1 for axis in (1, 0))
    return Level(level.wall_map[:height, :width], level.agent_pos, level.agent_dir, level.goal_pos)

"""Pictures of the object world in MiniGrid's look, drawn on the host."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.codes import UPWARDS
from minimax_lib.envs.cells.drawing import covered, lit, mosaic, seen_cells, side_by_side, trail, with_agent
from minimax_lib.envs.cells.objects import tile
from minimax_lib.envs.drawing import arranged
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid.dynamics import EnvState
from minimax_lib.envs.grid.level import Level


def draw_level(level: Level, path: np.ndarray | None = None, cell: int = 20) -> np.ndarray:
    """u8[H * cell, W * cell, 3]: the level, `cell` pixels a cell. What is inside a box is drawn small, in its middle.

    `path` (i32[T, 2], the agent's positions [x, y]) is drawn as a line. Rows with a negative entry are left out.
    """
    picture = _draw_grid(np.asarray(level.grid), cell)
    if path is not None:
        picture = covered(picture, trail(np.asarray(path), np.shape(level.grid), cell))
    return with_agent(picture, np.asarray(level.agent_pos), int(level.agent_dir), cell)


def draw_levels(
    levels: Level,
    captions: Sequence[str] = (),
    paths: Sequence[np.ndarray] = (),
    columns: int = 6,
    cell: int = 20,
) -> np.ndarray:
    """u8[H, W, 3]: levels [n, ...] row by row, `columns` in a row, each above its caption.

    If there are fewer `captions` or `paths` than levels, they belong to the first ones.
    """
    levels = jax.tree.map(np.asarray, levels)
    n = levels.agent_dir.shape[0]
    one = [jax.tree.map(lambda x, i=i: x[i], levels) for i in range(n)]
    tiles = [draw_level(level, paths[i] if i < len(paths) else None, cell) for i, level in enumerate(one)]
    texts = [captions[i] if i < len(captions) else "" for i in range(n)]
    return arranged(tiles, texts, min(columns, n), gap=cell)


def draw_episodes(states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: `draw_levels` of R episodes. `states` [T, R, ...] belong to them where `running` (bool[T, R])."""
    # Episodes differ in length. `draw_level` leaves out negative positions.
    paths = np.where(running[..., None], states.agent_pos, -1).swapaxes(0, 1)
    return draw_levels(jax.tree.map(lambda x: x[0], states.level), captions, list(paths), columns)


def draw_state(state: EnvState, image: np.ndarray | None, cell: int = 20) -> np.ndarray:
    """u8[H, W, 3]: the world at one moment, with the cells that the agent sees lit, and beside it the agent's view.

    `image` is what the agent sees in `state` (u8[v, v, 3], as in its observation). None: it sees the full frame. Then
    what it carries is drawn beside the world.
    """
    now: Any = jax.tree.map(np.asarray, state)
    # What is in a box stays out of a film: the agent does not know it either.
    whole = _draw_grid(now.grid & cells.SHOWN, cell)
    if image is not None:
        whole = lit(whole, seen_cells(image[..., 0] != codes.UNSEEN, now.agent_pos, int(now.agent_dir)), cell)
    whole = with_agent(whole, now.agent_pos, int(now.agent_dir), cell)
    hands = cells.EMPTY if now.carrying == cells.NOTHING else now.carrying
    beside = tile(*_parts(hands), cell) if image is None else draw_view(image, cell)
    return side_by_side(whole, beside, cell)


def draw_view(image: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[v * cell, v * cell, 3]: what the agent sees (u8[v, v, 3]). It stands over what it carries."""
    image = np.asarray(image)
    own = np.array([image.shape[1] // 2, image.shape[0] - 1])
    return with_agent(_draw_grid(cells.pack(*np.moveaxis(image, -1, 0)), cell), own, UPWARDS, cell)


def _parts(cell: np.ndarray | np.integer) -> tuple[int, int, int]:
    return int(cells.kind(cell)), int(cells.colour(cell)), int(cells.state(cell))


def _draw_grid(grid: np.ndarray, cell: int) -> np.ndarray:
    """u8[h * cell, w * cell, 3]: the cells u16[h, w]."""
    kinds, places = np.unique(grid, return_inverse=True)
    tiles = np.stack([_with_content(tile(*_parts(kind), cell), cells.inside(kind), cell) for kind in kinds])
    return mosaic(tiles, places.reshape(grid.shape))


def _with_content(picture: np.ndarray, content: np.integer, cell: int) -> np.ndarray:
    """The picture of a box with what is inside of it."""
    if content == cells.NOTHING:
        return picture
    picture, small = picture.copy(), tile(*_parts(content), max(2, cell // 2))
    edge = (cell - len(small)) // 2
    picture[edge : edge + len(small), edge : edge + len(small)] = small
    return picture

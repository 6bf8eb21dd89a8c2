"""Pictures of levels in MiniGrid's colours, drawn on the host with numpy and pillow."""

import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw

from minimax_lib.envs.drawing import PAPER, arranged
from minimax_lib.envs.maze import level as codes
from minimax_lib.envs.maze.amaze import EnvState
from minimax_lib.envs.maze.level import Level

FLOOR, WALL, LINE = (0, 0, 0), (100, 100, 100), (45, 45, 45)
GOAL, AGENT, TRAIL = (0, 200, 0), (255, 0, 0), (255, 190, 60)
UNSEEN = (70, 25, 25)
FREE, WALLED, GOALS, HIDDEN = range(4)  # kinds of cells
LIGHT = 0.3  # how much lighter a cell is that the agent sees, as in MiniGrid
UPWARDS = 3  # the facing
FINE = 4  # shapes are drawn so many times too large and then shrunk, since pillow draws hard edges
STEPS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])  # [dx, dy] of each direction


def draw_level(level: Level, path: np.ndarray | None = None, cell: int = 20) -> np.ndarray:
    """u8[(h + 2) * cell, (w + 2) * cell, 3]: the level inside its border wall, `cell` pixels a cell.

    `path` (i32[T, 2], the agent's positions [x, y]) is drawn as a line. Rows with a negative entry are left out.
    """
    level = jax.tree.map(np.asarray, level)
    kinds = np.pad(np.where(level.wall_map, WALLED, FREE), 1, constant_values=WALLED)
    x, y = level.goal_pos + 1
    kinds[y, x] = GOALS
    picture = _mosaic(kinds, cell)
    # Later shapes cover earlier ones: first the goal, then the path, and the agent on top.
    if path is not None:
        picture = _covered(picture, _trail(np.asarray(path), kinds.shape, cell))
    return _with_agent(picture, np.asarray(level.agent_pos) + 1, int(level.agent_dir), cell)


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
    whole = draw_level(without_padding(level), cell=cell).astype(np.float32)
    for x, y in seen_cells(seen != codes.UNSEEN[0], position, int(state.agent_dir)) + 1:
        if 0 <= y < whole.shape[0] // cell and 0 <= x < whole.shape[1] // cell:
            patch = whole[y * cell : (y + 1) * cell, x * cell : (x + 1) * cell]
            patch += LIGHT * (255 - patch)
    return _side_by_side(whole.astype(np.uint8), draw_view(seen, cell), cell)


def draw_view(seen: np.ndarray, cell: int = 20) -> np.ndarray:
    """u8[v * cell, v * cell, 3]: what the agent sees, from MiniGrid's object codes (u8[v, v])."""
    kinds = np.full(seen.shape, FREE)
    for code, kind in ((codes.WALL, WALLED), (codes.GOAL, GOALS), (codes.UNSEEN, HIDDEN)):
        kinds[seen == code[0]] = kind
    own = np.array([seen.shape[1] // 2, seen.shape[0] - 1])
    return _with_agent(_mosaic(kinds, cell), own, UPWARDS, cell)


def seen_cells(seen: np.ndarray, position: np.ndarray, facing: int) -> np.ndarray:
    """i32[n, 2]: [x, y] in the maze of the cells of the view that are `seen` (bool[v, v])."""
    row, column = np.nonzero(seen)
    ahead, aside = seen.shape[0] - 1 - row, column - seen.shape[1] // 2
    return position + ahead[:, None] * STEPS[facing] + aside[:, None] * STEPS[(facing + 1) % 4]


def save(picture: np.ndarray, file: str | Path) -> Path:
    """The file, after the picture was written to it as a PNG. Missing folders are made."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(file)
    return file


@functools.lru_cache
def _tiles(cell: int) -> np.ndarray:
    """u8[4, cell, cell, 3], the picture of a cell of each kind. A thin line is between all cells that are no walls."""
    tiles = np.stack([np.full((cell, cell, 3), colour, np.uint8) for colour in (FLOOR, WALL, GOAL, UNSEEN)])
    tiles[[FREE, GOALS, HIDDEN], 0] = LINE
    tiles[[FREE, GOALS, HIDDEN], :, 0] = LINE
    return tiles


def _mosaic(kinds: np.ndarray, cell: int) -> np.ndarray:
    """u8[h * cell, w * cell, 3], from the kinds of cells (int[h, w])."""
    height, width = kinds.shape
    return _tiles(cell)[kinds].swapaxes(1, 2).reshape(height * cell, width * cell, 3)


def _covered(picture: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The picture below another one that is transparent in parts (u8[H, W, 4])."""
    share = above[..., 3:].astype(np.float32) / 255
    return np.rint(picture * (1 - share) + above[..., :3] * share).astype(np.uint8)


def _with_agent(picture: np.ndarray, position: np.ndarray, facing: int, cell: int) -> np.ndarray:
    """The picture with the agent at `position`, in cells of the picture."""
    x, y = position * cell
    picture[y : y + cell, x : x + cell] = _covered(picture[y : y + cell, x : x + cell], _arrow(facing, cell))
    return picture


@functools.lru_cache
def _arrow(facing: int, cell: int) -> np.ndarray:
    """u8[cell, cell, 4]: a triangle that points where the agent looks."""
    unit = cell * FINE
    ahead, side = STEPS[facing], STEPS[(facing + 1) % 4]
    corners = unit * (0.5 + np.array([0.38 * ahead, -0.32 * ahead + 0.34 * side, -0.32 * ahead - 0.34 * side]))
    image = Image.new("RGBA", (unit, unit), (*AGENT, 0))
    ImageDraw.Draw(image).polygon([tuple(corner) for corner in corners], fill=AGENT)
    return np.asarray(image.resize((cell, cell), Image.Resampling.BOX))


def _trail(path: np.ndarray, shape: tuple[int, ...], cell: int) -> np.ndarray:
    """u8[h * cell, w * cell, 4]: a line through the cells of `path`, in a maze of `shape` with its border."""
    unit = cell * FINE
    image = Image.new("RGBA", (shape[1] * unit, shape[0] * unit), (*TRAIL, 0))
    draw = ImageDraw.Draw(image)
    points = [tuple(point) for point in (path[(path >= 0).all(axis=1)] + 1.5) * unit]
    # A single point is no way: an episode has only been opened.
    if len(points) > 1:
        draw.line(points, fill=TRAIL, width=max(1, unit // 6), joint="curve")
        for x, y in (points[0], points[-1]):
            r = unit / 7
            draw.ellipse((x - r, y - r, x + r, y + r), fill=TRAIL)
    return np.asarray(image.resize((shape[1] * cell, shape[0] * cell), Image.Resampling.BOX))


def _side_by_side(left: np.ndarray, right: np.ndarray, gap: int) -> np.ndarray:
    """Two pictures on paper, the lower one centred beside the higher one."""
    height = max(left.shape[0], right.shape[0])
    paper = np.full((height, left.shape[1] + gap + right.shape[1], 3), PAPER, np.uint8)
    for picture, x in ((left, 0), (right, left.shape[1] + gap)):
        top = (height - picture.shape[0]) // 2
        paper[top : top + picture.shape[0], x : x + picture.shape[1]] = picture
    return paper


def without_padding(level: Level) -> Level:
    """The level without the last rows and columns that hold only walls."""
    # Padding cannot be told from a maze's own walls on its last lines. They may go too: the border looks the same.
    free = ~level.wall_map
    height, width = (int(np.flatnonzero(free.any(axis=axis))[-1]) + 1 for axis in (1, 0))
    return Level(level.wall_map[:height, :width], level.agent_pos, level.agent_dir, level.goal_pos)

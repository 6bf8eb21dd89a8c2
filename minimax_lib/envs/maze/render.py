"""Pictures of levels, in MiniGrid's colours. On the host, with numpy and pillow."""

from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from minimax_lib.envs.maze.amaze import EnvState
from minimax_lib.envs.maze.level import Level

FLOOR, WALL, LINE = (0, 0, 0), (100, 100, 100), (45, 45, 45)
GOAL, AGENT, TRAIL = (0, 200, 0), (255, 0, 0), (255, 190, 60)
PAPER, INK = (255, 255, 255), (40, 40, 40)
FINE = 4  # shapes are drawn this many times too large, and shrunk: pillow draws hard edges
STEPS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])  # [dx, dy] of each facing


def draw_level(level: Level, path: np.ndarray | None = None, cell: int = 20) -> np.ndarray:
    """u8[(h + 2) * cell, (w + 2) * cell, 3]: the level inside its border wall, `cell` pixels a cell.

    `path` (i32[T, 2], [x, y] as the agent went) is drawn as a line; rows with a negative entry are left out.
    """
    level = jax.tree.map(np.asarray, level)
    unit = cell * FINE
    walls = np.pad(level.wall_map, 1, constant_values=True)
    image = Image.fromarray(_grid(walls, unit))
    draw = ImageDraw.Draw(image)
    # In this order, later shapes cover earlier ones: the goal, the way over it, the agent on top.
    _square(draw, np.asarray(level.goal_pos), unit)
    if path is not None:
        _trail(draw, np.asarray(path), unit)
    _arrow(draw, np.asarray(level.agent_pos), int(level.agent_dir), unit)
    return np.asarray(image.resize((walls.shape[1] * cell, walls.shape[0] * cell), Image.Resampling.BOX))


def draw_levels(
    levels: Level,
    captions: Sequence[str] = (),
    paths: Sequence[np.ndarray] = (),
    columns: int = 6,
    cell: int = 20,
) -> np.ndarray:
    """u8[H, W, 3]: levels [n, ...] row by row, `columns` a row, each above its caption.

    `captions` and `paths` belong to the first of the levels. Walls that pad a level below and to the right are cut off.
    """
    n = np.asarray(levels.agent_dir).shape[0]
    one = [_cut(jax.tree.map(lambda x, i=i: np.asarray(x)[i], levels)) for i in range(n)]
    tiles = [draw_level(level, paths[i] if i < len(paths) else None, cell) for i, level in enumerate(one)]
    texts = [captions[i] if i < len(captions) else "" for i in range(n)]
    return _arrange(tiles, texts, min(columns, n), gap=cell)


def draw_episodes(states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: `draw_levels` of R episodes. `states` [T, R, ...] belong to them where `running` (bool[T, R])."""
    # Episodes are of different lengths. `draw_level` leaves out what is negative.
    paths = np.where(running[..., None], states.agent_pos, -1).swapaxes(0, 1)
    return draw_levels(jax.tree.map(lambda x: x[0], states.level), captions, list(paths), columns)


def save(picture: np.ndarray, file: str | Path) -> Path:
    """Writes the picture as a PNG, with the folders that it needs."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(file)
    return file


def _grid(walls: np.ndarray, unit: int) -> np.ndarray:
    """u8[H, W, 3]: walls and floor, with a thin line between floor cells."""
    colours = np.where(walls[..., None], np.array(WALL, np.uint8), np.array(FLOOR, np.uint8))
    pixels = colours.repeat(unit, axis=0).repeat(unit, axis=1)
    floor = ~walls.repeat(unit, axis=0).repeat(unit, axis=1)
    y, x = np.indices(floor.shape) % unit
    pixels[floor & ((y < FINE) | (x < FINE))] = LINE
    return pixels


def _centre(position: np.ndarray, unit: int) -> np.ndarray:
    return (position + 1.5) * unit  # one cell of border, and half of its own


def _square(draw: ImageDraw.ImageDraw, position: np.ndarray, unit: int) -> None:
    x, y = (position + 1) * unit
    draw.rectangle((x + FINE, y + FINE, x + unit - 1, y + unit - 1), fill=GOAL)


def _trail(draw: ImageDraw.ImageDraw, path: np.ndarray, unit: int) -> None:
    points = [tuple(point) for point in _centre(path[(path >= 0).all(axis=1)], unit)]
    if len(points) > 1:
        draw.line(points, fill=TRAIL, width=max(1, unit // 6), joint="curve")
    for x, y in points[:1] + points[-1:]:
        r = unit / 7
        draw.ellipse((x - r, y - r, x + r, y + r), fill=TRAIL)


def _arrow(draw: ImageDraw.ImageDraw, position: np.ndarray, facing: int, unit: int) -> None:
    """A triangle that points where the agent looks."""
    centre, ahead, side = _centre(position, unit), STEPS[facing], STEPS[(facing + 1) % 4]
    corners = centre + unit * np.array([0.38 * ahead, -0.32 * ahead + 0.34 * side, -0.32 * ahead - 0.34 * side])
    draw.polygon([tuple(corner) for corner in corners], fill=AGENT)


def _cut(level: Level) -> Level:
    """The level without the rows and columns at the end that are walls and nothing else."""
    # Nothing tells padding from a maze's own walls on its last lines. These may go too: the border looks the same.
    free = ~level.wall_map
    height, width = (int(np.flatnonzero(free.any(axis=axis))[-1]) + 1 for axis in (1, 0))
    return Level(level.wall_map[:height, :width], level.agent_pos, level.agent_dir, level.goal_pos)


def _arrange(tiles: list[np.ndarray], texts: list[str], columns: int, gap: int) -> np.ndarray:
    """The tiles on paper, in columns of equal width, each centred above its text."""
    font = ImageFont.load_default(size=max(11, 3 * gap // 4))
    width = max(max(tile.shape[1] for tile in tiles), *(int(font.getlength(text)) for text in texts))
    rows = [range(i, min(i + columns, len(tiles))) for i in range(0, len(tiles), columns)]
    heights = [max(tiles[i].shape[0] for i in row) for row in rows]
    below = 2 * gap if any(texts) else gap
    paper = Image.new("RGB", (columns * (width + gap) + gap, sum(heights) + len(rows) * below + gap), PAPER)
    draw, bottom = ImageDraw.Draw(paper), gap
    for row, height in zip(rows, heights, strict=True):
        bottom += height
        for column, i in enumerate(row):
            x = gap + column * (width + gap) + width // 2
            paper.paste(Image.fromarray(tiles[i]), (x - tiles[i].shape[1] // 2, bottom - tiles[i].shape[0]))
            draw.text((x, bottom + gap // 4), texts[i], fill=INK, font=font, anchor="ma")
        bottom += below
    return np.asarray(paper)

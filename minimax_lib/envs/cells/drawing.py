"""Pictures of worlds made of cells, in MiniGrid's colours, drawn on the host with numpy and pillow."""

import functools
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from minimax_lib.envs.cells.codes import STEPS
from minimax_lib.envs.drawing import PAPER

FLOOR, WALL, LINE = (0, 0, 0), (100, 100, 100), (45, 45, 45)
GOAL, AGENT, TRAIL = (0, 200, 0), (255, 0, 0), (255, 190, 60)
UNSEEN = (70, 25, 25)
LIGHT = 0.3  # how much lighter a cell is that the agent sees, as in MiniGrid
FINE = 4  # shapes are drawn so many times too large and then shrunk, since pillow draws hard edges


def mosaic(tiles: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """u8[h * cell, w * cell, 3]: `tiles` (u8[n, cell, cell, 3]) put together as `kinds` (int[h, w]) says."""
    height, width = kinds.shape
    cell = tiles.shape[1]
    return tiles[kinds].swapaxes(1, 2).reshape(height * cell, width * cell, 3)


def framed(tile: np.ndarray) -> np.ndarray:
    """The picture of a cell with a thin line above and to the left, as all cells have that are not walls."""
    tile = tile.copy()
    tile[0] = tile[:, 0] = LINE
    return tile


def lit(picture: np.ndarray, places: np.ndarray, cell: int) -> np.ndarray:
    """The picture with the cells at `places` (i32[n, 2], [x, y]) lighter. Those outside of it are left out."""
    lighter = picture.astype(np.float32)
    for x, y in places:
        if 0 <= y < picture.shape[0] // cell and 0 <= x < picture.shape[1] // cell:
            patch = lighter[y * cell : (y + 1) * cell, x * cell : (x + 1) * cell]
            patch += LIGHT * (255 - patch)
    return lighter.astype(np.uint8)


def seen_cells(seen: np.ndarray, position: np.ndarray, facing: int) -> np.ndarray:
    """i32[n, 2]: [x, y] in the world of the cells of the view that are `seen` (bool[v, v])."""
    row, column = np.nonzero(seen)
    ahead, aside = seen.shape[0] - 1 - row, column - seen.shape[1] // 2
    return position + ahead[:, None] * STEPS[facing] + aside[:, None] * STEPS[(facing + 1) % 4]


def covered(picture: np.ndarray, above: np.ndarray) -> np.ndarray:
    """The picture below another one that is transparent in parts (u8[H, W, 4])."""
    share = above[..., 3:].astype(np.float32) / 255
    return np.rint(picture * (1 - share) + above[..., :3] * share).astype(np.uint8)


def with_agent(
    picture: np.ndarray, position: np.ndarray, facing: int, cell: int, ink: tuple[int, ...] = AGENT
) -> np.ndarray:
    """The picture with the agent at `position`, in cells of the picture."""
    x, y = position * cell
    picture[y : y + cell, x : x + cell] = covered(picture[y : y + cell, x : x + cell], arrow(facing, cell, ink))
    return picture


@functools.lru_cache
def arrow(facing: int, cell: int, ink: tuple[int, ...] = AGENT) -> np.ndarray:
    """u8[cell, cell, 4]: a triangle that points where the agent looks."""
    unit = cell * FINE
    ahead, side = STEPS[facing], STEPS[(facing + 1) % 4]
    corners = unit * (0.5 + np.array([0.38 * ahead, -0.32 * ahead + 0.34 * side, -0.32 * ahead - 0.34 * side]))
    image = Image.new("RGBA", (unit, unit), (*ink, 0))
    ImageDraw.Draw(image).polygon([tuple(corner) for corner in corners], fill=ink)
    return np.asarray(image.resize((cell, cell), Image.Resampling.BOX))


def trail(path: np.ndarray, shape: tuple[int, ...], cell: int, ink: tuple[int, ...] = TRAIL) -> np.ndarray:
    """u8[h * cell, w * cell, 4]: a line through the cells of `path` (i32[T, 2], [x, y]), in a grid of `shape`.

    Rows with a negative entry are left out.
    """
    unit = cell * FINE
    image = Image.new("RGBA", (shape[1] * unit, shape[0] * unit), (*ink, 0))
    draw = ImageDraw.Draw(image)
    points = [tuple(point) for point in (path[(path >= 0).all(axis=1)] + 0.5) * unit]
    # A single point is no way: an episode has only been opened.
    if len(points) > 1:
        draw.line(points, fill=ink, width=max(1, unit // 6), joint="curve")
        for x, y in (points[0], points[-1]):
            r = unit / 7
            draw.ellipse((x - r, y - r, x + r, y + r), fill=ink)
    return np.asarray(image.resize((shape[1] * cell, shape[0] * cell), Image.Resampling.BOX))


def side_by_side(left: np.ndarray, right: np.ndarray, gap: int) -> np.ndarray:
    """Two pictures on paper, the lower one centred beside the higher one."""
    height = max(left.shape[0], right.shape[0])
    paper = np.full((height, left.shape[1] + gap + right.shape[1], 3), PAPER, np.uint8)
    for picture, x in ((left, 0), (right, left.shape[1] + gap)):
        top = (height - picture.shape[0]) // 2
        paper[top : top + picture.shape[0], x : x + picture.shape[1]] = picture
    return paper


def save(picture: np.ndarray, file: str | Path) -> Path:
    """The file, after the picture was written to it as a PNG. Missing folders are made."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(file)
    return file

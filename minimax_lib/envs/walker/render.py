"""Pictures of the walker: its whole way, or one moment. Drawn on the host with pillow."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from PIL import Image, ImageDraw

from minimax_lib.envs.drawing import arranged
from minimax_lib.envs.walker.body import BOXES, HULL, Body, centres, hull_position
from minimax_lib.envs.walker.level import Level
from minimax_lib.envs.walker.terrain import FAR, HEIGHT, N_POINTS, STEP, Terrain, draw_shares, make_terrain

WIDE, HIGH, PER_METRE = 320, 200, 18  # pixels of a moment
WAY_WIDE, WAY_HIGH = 480, 96  # pixels of a whole way
FINE = 3  # how many times too large it is drawn, since pillow draws hard edges
EVERY = 50  # steps from one walker of a way to the next: a second
SKY, GROUND, GRASS, BLOCK, EDGE = "#e6eaf8", "#8fae7a", "#4f7a3f", "#b9b9b9", "#777777"
BODY, LEFT, RIGHT, FLAG = (102, 84, 184), (190, 120, 150), (140, 80, 115), "#d9480f"
PALE = (214, 210, 232)


@functools.cache
def _programs() -> tuple[Callable[[Level], Terrain], Callable[[Body], Any]]:
    """(terrains of levels [n], (centres, hull's position) of bodies [n]), compiled."""

    def parts(body: Body) -> Any:
        return centres(body), hull_position(body)

    return jax.jit(jax.vmap(lambda level: make_terrain(level, draw_shares(level.seed)))), jax.jit(jax.vmap(parts))


def _shapes(body: Body) -> list[list[np.ndarray]]:
    """For each of the bodies [n], its five polygons f64[k, 2], in m: second leg, hull, first leg, as seen from it."""
    middle, hull = (np.asarray(x) for x in _programs()[1](body))
    angle = np.asarray(body.angle)
    found = []
    for i in range(len(angle)):
        polygons = [_placed(HULL, angle[i, 0], hull[i])]
        polygons += [_placed(BOXES[k], angle[i, k + 1], middle[i, k + 1]) for k in range(4)]
        found.append([polygons[k] for k in (3, 4, 0, 1, 2)])
    return found


def _placed(corners: np.ndarray, angle: float, place: np.ndarray) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return corners @ np.array([[c, s], [-s, c]]) + place


class Drawing:
    """A picture of a part of the world, whose lower left corner is at `corner` (m)."""

    def __init__(self, size: tuple[int, int], corner: np.ndarray, scale: np.ndarray):
        self.size, self.corner, self.scale = size, corner, scale * FINE
        self.image = Image.new("RGB", (size[0] * FINE, size[1] * FINE), SKY)
        self.draw = ImageDraw.Draw(self.image)

    def pixels(self, points: np.ndarray) -> list[tuple[float, float]]:
        """Where points f[n, 2] (m) are in the picture."""
        found = (np.asarray(points, np.float64) - self.corner) * self.scale
        return [(float(x), float(self.image.height - y)) for x, y in found]

    def terrain(self, terrain: Terrain) -> None:
        """Draws the ground, its blocks and the flag at the start."""
        line = np.stack([np.asarray(terrain.x), np.asarray(terrain.y)], axis=1)
        low = float(self.corner[1]) - 10
        self.draw.polygon(self.pixels(np.concatenate([line, [[line[-1, 0], low], [line[0, 0], low]]])), fill=GROUND)
        for left, right, top, before, behind in np.asarray(terrain.blocks):
            if left < FAR:
                box = [(left, before), (left, top), (right, top), (right, behind)]
                self.draw.polygon(self.pixels(np.array(box)), fill=BLOCK, outline=EDGE)
        self.draw.line(self.pixels(line), fill=GRASS, width=FINE)
        foot, pole = np.array([3 * STEP, HEIGHT]), np.array([(0, 0), (0, 1.7), (0, 1.2), (0.8, 1.45)])
        self.draw.line(self.pixels(foot + pole[:2]), fill=EDGE, width=FINE)
        self.draw.polygon(self.pixels(foot + pole[1:]), fill=FLAG)

    def walker(self, polygons: list[np.ndarray], strength: float = 1.0) -> None:
        """Draws a walker, from pale (0) to its full colours (1)."""
        for polygon, colour in zip(polygons, (RIGHT, RIGHT, BODY, LEFT, LEFT), strict=True):
            mixed = tuple(round(strength * c + (1 - strength) * p) for c, p in zip(colour, PALE, strict=True))
            self.draw.polygon(self.pixels(polygon), fill=mixed)

    def done(self) -> np.ndarray:
        """u8[H, W, 3]."""
        return np.asarray(self.image.resize(self.size, Image.Resampling.BOX))


def draw_state(state: Any) -> np.ndarray:
    """u8[HIGH, WIDE, 3]: the walker and the ground around it, at one moment."""
    one = jax.tree.map(lambda x: np.asarray(x)[None], (state.level, state.body))
    terrain = jax.tree.map(lambda x: np.asarray(x)[0], _programs()[0](one[0]))
    polygons = _shapes(one[1])[0]
    x, y = polygons[2].mean(axis=0)
    corner = np.array([x - 0.3 * WIDE / PER_METRE, y - 0.5 * HIGH / PER_METRE])
    canvas = Drawing((WIDE, HIGH), corner, np.array([PER_METRE, PER_METRE]))
    canvas.terrain(terrain)
    canvas.walker(polygons)
    return canvas.done()


def draw_episodes(states: Any, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: the whole way of each episode, with the walker at every second, `columns` ways in a row.

    `states` [T, R, ...] belong to the R episodes where `running` (bool[T, R]) is true. Steep worlds are drawn lower
    than they are.
    """
    n = running.shape[1]
    terrains = _programs()[0](jax.tree.map(lambda x: np.asarray(x)[0], states.level))
    tiles = []
    for i in range(n):
        steps = np.flatnonzero(running[:, i])
        shown = np.unique([*steps[::EVERY], steps[-1]]) if len(steps) else np.zeros(1, int)
        bodies = jax.tree.map(lambda x, i=i, shown=shown: np.asarray(x)[shown, i], states.body)
        tiles.append(_way(jax.tree.map(lambda x, i=i: np.asarray(x)[i], terrains), bodies))
    texts = [captions[i] if i < len(captions) else "" for i in range(n)]
    return arranged(tiles, texts, min(columns, n), gap=12)


def _way(terrain: Terrain, bodies: Body) -> np.ndarray:
    """u8[WAY_HIGH, WAY_WIDE, 3]: the whole terrain, and the walkers [n] on it."""
    across = WAY_WIDE / (N_POINTS * STEP)
    low, high = float(np.min(terrain.y)) - 1, float(np.max(terrain.y)) + 5
    up = min(across, WAY_HIGH / (high - low))
    canvas = Drawing((WAY_WIDE, WAY_HIGH), np.array([0.0, low]), np.array([across, up]))
    canvas.terrain(terrain)
    walkers = _shapes(bodies)
    for i, polygons in enumerate(walkers):
        canvas.walker(polygons, 0.35 + 0.65 * (i + 1) / len(walkers))
    return canvas.done()

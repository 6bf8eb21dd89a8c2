"""Pictures of MiniGrid's objects."""

import functools

import numpy as np
from PIL import Image, ImageDraw

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.drawing import FINE, FLOOR, GOAL, UNSEEN, WALL, framed

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (112, 39, 195), (255, 255, 0), (100, 100, 100))
LAVA = (255, 128, 0)

Colour = tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def tile(kind: int, colour: int, state: int, cell: int) -> np.ndarray:
    """u8[cell, cell, 3]: the picture of a cell, in MiniGrid's shapes."""
    plain = {codes.UNSEEN: UNSEEN, codes.WALL: WALL if colour == codes.GREY else COLOURS[colour]}
    plain |= {codes.GOAL: GOAL if colour == codes.GREEN else COLOURS[colour]}
    if kind in plain:
        flat = np.full((cell, cell, 3), plain[kind], np.uint8)
        return flat if kind == codes.WALL else framed(flat)
    image = Image.new("RGB", (cell * FINE, cell * FINE), FLOOR)
    draw = ImageDraw.Draw(image)
    if kind == codes.DOOR:
        _door(draw, cell * FINE, COLOURS[colour], state)
    elif kind in SHAPES:
        SHAPES[kind](draw, cell * FINE, COLOURS[colour])
    return framed(np.asarray(image.resize((cell, cell), Image.Resampling.BOX)))


def _box(
    draw: ImageDraw.ImageDraw, unit: int, left: float, right: float, top: float, bottom: float, ink: Colour
) -> None:
    """A filled rectangle; its edges are shares of the cell."""
    draw.rectangle((left * unit, top * unit, right * unit - 1, bottom * unit - 1), fill=ink)


def _disc(draw: ImageDraw.ImageDraw, unit: int, x: float, y: float, radius: float, ink: Colour) -> None:
    draw.ellipse([unit * edge for edge in (x - radius, y - radius, x + radius, y + radius)], fill=ink)


def _floor(draw: ImageDraw.ImageDraw, unit: int, ink: Colour) -> None:
    _box(draw, unit, 0, 1, 0, 1, tuple(part // 2 for part in ink))


def _door(draw: ImageDraw.ImageDraw, unit: int, ink: Colour, state: int) -> None:
    if state == codes.OPEN:
        _box(draw, unit, 0.84, 1, 0, 1, ink)
        _box(draw, unit, 0.9, 0.96, 0.05, 0.95, FLOOR)
    elif state == codes.LOCKED:
        _box(draw, unit, 0, 1, 0, 1, ink)
        _box(draw, unit, 0.08, 0.92, 0.08, 0.92, tuple(int(0.45 * part) for part in ink))
        _box(draw, unit, 0.52, 0.75, 0.47, 0.56, ink)  # the slot of the key
    else:
        for edge, colour in ((0, ink), (0.05, FLOOR), (0.1, ink), (0.17, FLOOR)):
            _box(draw, unit, edge, 1 - edge, edge, 1 - edge, colour)
        _disc(draw, unit, 0.74, 0.5, 0.08, ink)


def _key(draw: ImageDraw.ImageDraw, unit: int, ink: Colour) -> None:
    _box(draw, unit, 0.5, 0.63, 0.31, 0.88, ink)
    _box(draw, unit, 0.38, 0.5, 0.59, 0.66, ink)
    _box(draw, unit, 0.38, 0.5, 0.81, 0.88, ink)
    _disc(draw, unit, 0.56, 0.28, 0.19, ink)
    _disc(draw, unit, 0.56, 0.28, 0.064, FLOOR)


def _ball(draw: ImageDraw.ImageDraw, unit: int, ink: Colour) -> None:
    _disc(draw, unit, 0.5, 0.5, 0.31, ink)


def _chest(draw: ImageDraw.ImageDraw, unit: int, ink: Colour) -> None:
    _box(draw, unit, 0.12, 0.88, 0.12, 0.88, ink)
    _box(draw, unit, 0.2, 0.8, 0.2, 0.8, FLOOR)
    _box(draw, unit, 0.16, 0.84, 0.46, 0.54, ink)


def _lava(draw: ImageDraw.ImageDraw, unit: int, ink: Colour) -> None:
    _box(draw, unit, 0, 1, 0, 1, LAVA)
    for i in range(3):
        low, high = (0.3 + 0.2 * i) * unit, (0.4 + 0.2 * i) * unit
        wave = [(x * unit, y) for x, y in ((0.1, low), (0.3, high), (0.5, low), (0.7, high), (0.9, low))]
        draw.line(wave, fill=FLOOR, width=max(1, unit // 16), joint="curve")


SHAPES = {codes.FLOOR: _floor, codes.KEY: _key, codes.BALL: _ball, codes.BOX: _chest, codes.LAVA: _lava}

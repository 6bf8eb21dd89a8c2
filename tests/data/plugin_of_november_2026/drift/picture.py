"""A picture of episodes: the boat's way, from the square to the buoy."""

import numpy as np
from PIL import Image, ImageDraw

from drift.world import REACH

SIDE, GAP, TEXT = 130, 10, 28  # pixels: of the water, round it, and of the caption below it


def draw_episodes(states, running, captions, columns):
    """u8[H, W, 3]: one panel an episode; `states` [T, R, ...] count where `running` (bool[T, R]) is set."""
    n = running.shape[1]
    rows, width, height = -(-n // columns), SIDE + GAP, SIDE + GAP + TEXT
    paper = Image.new("RGB", (columns * width + GAP, rows * height + GAP), "white")
    draw = ImageDraw.Draw(paper)
    for i in range(n):
        corner = np.array([GAP + i % columns * width, GAP + i // columns * height])
        way = corner + SIDE * np.asarray(states.position)[running[:, i], i]
        buoy = corner + SIDE * np.asarray(states.level.buoy)[0, i]
        draw.rectangle([*corner, *(corner + SIDE)], fill="#d8ecf8")
        draw.ellipse([*(buoy - REACH * SIDE), *(buoy + REACH * SIDE)], fill="#e8a33d")
        draw.rectangle([*(way[0] - 3), *(way[0] + 3)], fill="#444444")
        draw.line([tuple(point) for point in way], fill="#1f4e9c", width=2)
        draw.text((corner[0], corner[1] + SIDE + 2), captions[i].replace(": ", "\n"), fill="#222222")
    return np.asarray(paper)

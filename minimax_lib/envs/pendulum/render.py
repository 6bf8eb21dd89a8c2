"""Pictures of a pendulum's episodes: the angle over time. Host side, with pillow."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from minimax_lib.envs.pendulum.pendulum import PendulumState

WIDTH, HEIGHT, GAP, LINE_OF_TEXT = 240, 120, 12, 22  # pixels; of one panel, round it, and below it
PAPER, FRAME, BAND, MIDDLE, CURVE, INK = "white", "#bbbbbb", "#dff0d8", "#8bc27a", "#1f4e9c", "#222222"


def draw_episodes(
    states: PendulumState,
    running: np.ndarray,
    captions: Sequence[str],
    columns: int,
    tolerance: float,
    max_steps: int,
) -> np.ndarray:
    """u8[H, W, 3]: a panel an episode, `columns` a row, each above its caption.

    `states` [T, R, ...] belong to the R episodes where `running` (bool[T, R]). Upright is in the middle of a panel, in
    a band as wide as the tolerance; at the top and bottom edges the pole hangs. The width is `max_steps`.
    """
    n = running.shape[1]
    columns = min(columns, n)
    rows = -(-n // columns)
    tile = (WIDTH + GAP, HEIGHT + GAP + LINE_OF_TEXT)
    paper = Image.new("RGB", (columns * tile[0] + GAP, rows * tile[1] + GAP), PAPER)
    draw, font = ImageDraw.Draw(paper), ImageFont.load_default(size=11)
    for i in range(n):
        left, top = GAP + (i % columns) * tile[0], GAP + (i // columns) * tile[1]
        panel(draw, left, top, np.asarray(states.angle)[running[:, i], i], tolerance, max_steps)
        caption = captions[i] if i < len(captions) else ""
        draw.text((left + WIDTH // 2, top + HEIGHT + 3), caption, fill=INK, font=font, anchor="ma")
    return np.asarray(paper)


def panel(draw: ImageDraw.ImageDraw, left: int, top: int, angles: np.ndarray, tolerance: float, max_steps: int) -> None:
    """Draws one episode, whose corner is at (left, top)."""
    middle, per_radian = top + HEIGHT / 2, HEIGHT / 2 / np.pi
    band = tolerance * per_radian
    draw.rectangle((left, middle - band, left + WIDTH, middle + band), fill=BAND)
    draw.line((left, middle, left + WIDTH, middle), fill=MIDDLE)
    draw.rectangle((left, top, left + WIDTH, top + HEIGHT), outline=FRAME)
    x = left + np.arange(len(angles)) * (WIDTH / max_steps)
    y = middle - angles * per_radian
    # Where the pole turns through the bottom, the angle leaps from one edge to the other: the curve is cut there.
    for piece in np.split(np.arange(len(angles)), np.flatnonzero(np.abs(np.diff(angles)) > np.pi) + 1):
        points = [(float(x[i]), float(y[i])) for i in piece]
        if len(points) > 1:
            draw.line(points, fill=CURVE, width=2)
        else:
            draw.point(points, fill=CURVE)

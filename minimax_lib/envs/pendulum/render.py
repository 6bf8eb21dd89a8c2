"""Pictures of a pendulum: its angle over time, or one moment of it. Drawn on the host with pillow."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from minimax_lib.envs.drawing import arranged
from minimax_lib.envs.pendulum.pendulum import PendulumState
from minimax_lib.envs.pendulum.physics import Physics

WIDTH, HEIGHT, GAP, LINE_OF_TEXT = 240, 120, 12, 22  # in pixels: size of a panel, gap around it, text below
SIDE, FINE = 200, 3  # pixels of a moment; how many times too large it is drawn, since pillow draws hard edges
LONGEST, REACH, ROD = 1.5, 0.42, 8  # m of a pole, drawn as so large a share of the side and so many pixels wide
PAPER, FRAME, BAND, MIDDLE, CURVE, INK = "white", "#bbbbbb", "#dff0d8", "#8bc27a", "#1f4e9c", "#222222"


def draw_state(state: PendulumState, tolerance: float) -> np.ndarray:
    """u8[SIDE, SIDE, 3]: the pole at one moment, green while it is upright, and below it the level in words.

    The pole is as long, and its end as large, as the level says. The sector at the top is what counts as upright.
    """
    angle, level = float(state.angle), state.level
    side = SIDE * FINE
    image = Image.new("RGB", (side, side), PAPER)
    draw, middle, reach = ImageDraw.Draw(image), np.array([side / 2, side * 0.46]), REACH * side
    box = (*(middle - reach), *(middle + reach))
    band = np.degrees(tolerance)
    draw.pieslice(box, -90 - band, -90 + band, fill=BAND)
    draw.ellipse(box, outline=FRAME, width=FINE)
    # As in Gymnasium: a positive angle leans to the left.
    length = reach * min(float(level.length) / LONGEST, 1.0)
    end = middle + length * np.array([-np.sin(angle), -np.cos(angle)])
    colour = MIDDLE if abs(angle) <= tolerance else CURVE
    draw.line((*middle, *end), fill=colour, width=ROD * FINE)
    bob = ROD * FINE * float(np.sqrt(max(float(level.mass), 0.05)))
    for place, radius in ((end, bob), (middle, ROD * FINE / 2)):
        draw.ellipse((*(place - radius), *(place + radius)), fill=colour if radius == bob else INK)
    image = image.resize((SIDE, SIDE), Image.Resampling.BOX)
    font = ImageFont.load_default(size=11)
    ImageDraw.Draw(image).text((SIDE // 2, SIDE - 18), told(level), fill=INK, font=font, anchor="ma")
    return np.asarray(image)


def told(level: Physics) -> str:
    """The physics in words."""
    return (
        f"{float(level.mass):.2g} kg, {float(level.length):.2g} m, g {float(level.gravity):.2g}, "
        f"{float(level.torque):.2g} Nm"
    )


def draw_levels(levels: Physics, tolerance: float, captions: Sequence[str], columns: int) -> np.ndarray:
    """u8[H, W, 3]: poles that hang still, for each of `levels` [n, ...]."""
    n = len(np.asarray(levels.mass))
    states = [_hanging(jax.tree.map(lambda x, i=i: np.asarray(x)[i], levels)) for i in range(n)]
    texts = [captions[i] if i < len(captions) else "" for i in range(n)]
    return arranged([draw_state(state, tolerance) for state in states], texts, min(columns, n), gap=16)


def _hanging(level: Physics) -> PendulumState:
    none, still, down = (jnp.asarray(x) for x in (np.int32(0), np.float32(0), np.float32(np.pi)))
    return PendulumState(level, down, still, time=none, held=none, upright=none)


def draw_episodes(
    states: PendulumState,
    running: np.ndarray,
    captions: Sequence[str],
    columns: int,
    tolerance: float,
    max_steps: int,
) -> np.ndarray:
    """u8[H, W, 3]: one panel for each episode, `columns` in a row, each above its caption.

    Episodes of a single moment are shown as levels: a pole that hangs.

    `states` [T, R, ...] belong to the R episodes where `running` (bool[T, R]) is true. The middle of a panel means
    upright, with a band as wide as the tolerance. At the top and bottom edges the pole hangs. The width of a panel is
    `max_steps`.
    """
    if len(running) == 1:  # nothing has happened yet: what is shown is the level
        return draw_levels(jax.tree.map(lambda x: np.asarray(x)[0], states.level), tolerance, captions, columns)
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
    """Draws one episode, in a panel whose corner is at (left, top)."""
    middle, per_radian = top + HEIGHT / 2, HEIGHT / 2 / np.pi
    band = tolerance * per_radian
    draw.rectangle((left, middle - band, left + WIDTH, middle + band), fill=BAND)
    draw.line((left, middle, left + WIDTH, middle), fill=MIDDLE)
    draw.rectangle((left, top, left + WIDTH, top + HEIGHT), outline=FRAME)
    x = left + np.arange(len(angles)) * (WIDTH / max_steps)
    y = middle - angles * per_radian
    # If the pole turns through the bottom, the angle leaps from one edge to the other. The curve is cut there.
    for piece in np.split(np.arange(len(angles)), np.flatnonzero(np.abs(np.diff(angles)) > np.pi) + 1):
        points = [(float(x[i]), float(y[i])) for i in piece]
        if len(points) > 1:
            draw.line(points, fill=CURVE, width=2)
        else:
            draw.point(points, fill=CURVE)

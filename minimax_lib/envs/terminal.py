"""Episodes as coloured text, for `minimax-play`."""

from typing import NamedTuple

import numpy as np


class Cell(NamedTuple):
    """Two characters of a terminal, which together are about square."""

    text: str
    plain: str  # the same without colours
    ink: int = 15  # colours are numbers of the 256 that terminals know
    ground: int = 0


class Scene(NamedTuple):
    """One moment of an episode."""

    whole: list[list[Cell]]  # rows of the map
    view: list[list[Cell]]  # rows of what the agent sees
    place: np.ndarray  # i32[2], [row, column] of the agent in the map
    task: str = ""  # what there is to do, if it is not the same in all levels
    keys: str = ""  # what keys do, besides those for walking
    max_steps: int | None = None  # the time limit of the level; None if all levels have that of the environment


def painted(rows: list[list[Cell]], colours: bool) -> list[str]:
    """The rows as lines of text, with orders to the terminal for their colours."""
    if not colours:
        return ["".join(cell.plain for cell in row) for row in rows]
    return ["".join(f"\x1b[38;5;{c.ink};48;5;{c.ground}m{c.text}" for c in row) + "\x1b[0m" for row in rows]


def window(rows: list[list[Cell]], place: np.ndarray, height: int, width: int) -> list[list[Cell]]:
    """At most `height` rows of `width` cells, those around `place`."""
    top, left = (
        int(np.clip(at - size // 2, 0, max(0, n - size)))
        for at, size, n in zip(place, (height, width), (len(rows), len(rows[0])), strict=True)
    )
    return [row[left : left + width] for row in rows[top : top + height]]

"""Worlds made of cells as text for a terminal."""

from collections.abc import Iterable

import numpy as np

from minimax_lib.envs.terminal import Cell

RED, GREEN = 196, 34
WALL, FLOOR, LIT_WALL, LIT_FLOOR, HIDDEN = 240, 232, 246, 236, 52
ARROWS, PLAIN_ARROWS = "▶▼◀▲", ">v<^"  # by direction


def put(rows: list[list[Cell]], place: np.ndarray | tuple[int, int], cell: Cell) -> None:
    """Puts the cell at `place` ([row, column])."""
    rows[int(place[0])][int(place[1])] = cell


def lit_cells(places: Iterable[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
    """bool[h, w]: the cells at `places` ([x, y]). Those outside are left out."""
    lit = np.zeros(shape, bool)
    for x, y in places:
        if 0 <= y < shape[0] and 0 <= x < shape[1]:
            lit[y, x] = True
    return lit


def wall(is_lit: bool) -> Cell:
    return Cell("  ", "##", ground=LIT_WALL if is_lit else WALL)


def floor(is_lit: bool) -> Cell:
    return Cell("  ", " ." if is_lit else "  ", ground=LIT_FLOOR if is_lit else FLOOR)


def goal() -> Cell:
    return Cell("  ", "GG", ground=GREEN)


def hidden() -> Cell:
    return Cell("  ", "  ", ground=HIDDEN)


def agent(facing: int, ground: int, ink: int = RED) -> Cell:
    return Cell(f"{ARROWS[facing]} ", f"{PLAIN_ARROWS[facing]} ", ink=ink, ground=ground)

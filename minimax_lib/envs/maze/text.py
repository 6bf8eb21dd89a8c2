"""Mazes as text for a terminal."""

from collections.abc import Mapping

import jax
import numpy as np

from minimax_lib.envs.maze import level as codes
from minimax_lib.envs.maze.amaze import FORWARD, LEFT, RIGHT, EnvState
from minimax_lib.envs.maze.render import UPWARDS, seen_cells, without_padding
from minimax_lib.envs.terminal import Cell, Scene

KEYS: Mapping[str, int] = {"left": LEFT, "right": RIGHT, "up": FORWARD}
RED, GREEN = 196, 34
WALL, FLOOR, LIT_WALL, LIT_FLOOR, HIDDEN = 240, 232, 246, 236, 52
ARROWS, PLAIN_ARROWS = "▶▼◀▲", ">v<^"  # by direction


def scene(state: EnvState, image: np.ndarray) -> Scene:
    """The maze with the cells that the agent sees lit, and its view.

    `image` is what it sees in `state` (u8[v, v, 3], as in its observation).
    """
    seen, position, facing = np.asarray(image)[..., 0], np.asarray(state.agent_pos), int(state.agent_dir)
    level = without_padding(jax.tree.map(np.asarray, state.level))
    walls = np.pad(np.asarray(level.wall_map), 1, constant_values=True)
    height, width = walls.shape
    lit = np.zeros((height, width), bool)
    place = position[::-1] + 1
    for x, y in seen_cells(seen != codes.UNSEEN[0], position, facing) + 1:
        if 0 <= y < height and 0 <= x < width:
            lit[y, x] = True
    whole = [
        [(_wall if is_wall else _floor)(is_lit) for is_wall, is_lit in zip(row, lit_row, strict=True)]
        for row, lit_row in zip(walls, lit, strict=True)
    ]
    _put(whole, np.asarray(level.goal_pos)[::-1] + 1, _goal())
    _put(whole, place, _agent(facing, LIT_FLOOR))
    kinds = {codes.UNSEEN[0]: Cell("  ", "  ", ground=HIDDEN), codes.WALL[0]: _wall(True), codes.GOAL[0]: _goal()}
    view = [[kinds.get(code, _floor(True)) for code in row] for row in seen]
    _put(view, (len(view) - 1, len(view) // 2), _agent(UPWARDS, LIT_FLOOR))
    return Scene(whole, view, place)


def _put(rows: list[list[Cell]], place: np.ndarray | tuple[int, int], cell: Cell) -> None:
    rows[int(place[0])][int(place[1])] = cell


def _wall(lit: bool) -> Cell:
    return Cell("  ", "##", ground=LIT_WALL if lit else WALL)


def _floor(lit: bool) -> Cell:
    return Cell("  ", " ." if lit else "  ", ground=LIT_FLOOR if lit else FLOOR)


def _goal() -> Cell:
    return Cell("  ", "GG", ground=GREEN)


def _agent(facing: int, ground: int) -> Cell:
    return Cell(f"{ARROWS[facing]} ", f"{PLAIN_ARROWS[facing]} ", ink=RED, ground=ground)

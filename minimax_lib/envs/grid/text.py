"""The object world as text for a terminal."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.cells import codes
from minimax_lib.envs.cells.actions import DONE, DROP, FORWARD, LEFT, PICKUP, RIGHT, TOGGLE
from minimax_lib.envs.cells.codes import UPWARDS
from minimax_lib.envs.cells.drawing import seen_cells
from minimax_lib.envs.cells.text import FLOOR, LIT_FLOOR, agent, floor, goal, hidden, lit_cells, put, wall
from minimax_lib.envs.grid import cells
from minimax_lib.envs.grid import level as tasks
from minimax_lib.envs.grid.dynamics import EnvState
from minimax_lib.envs.grid.level import Level
from minimax_lib.envs.terminal import Cell, Scene

KEYS: Mapping[str, int] = {
    "left": LEFT, "right": RIGHT, "up": FORWARD, "p": PICKUP, "l": DROP, " ": TOGGLE, "t": TOGGLE, "x": DONE,
}  # fmt: skip
KEYS_TEXT = "p: pick up   l: lay down   t or space: toggle (open, close, unlock)   x: done"
INKS = (196, 46, 33, 129, 226, 250)  # of MiniGrid's colours
LAVA = 208
LETTERS = {codes.KEY: "K", codes.BALL: "A", codes.BOX: "B", codes.FLOOR: "F"}
SIGNS = {codes.KEY: "⚷ ", codes.BALL: "● ", codes.BOX: "▣ ", codes.FLOOR: "░░"}
DOORS = ("| ", "[]", "[#")  # open, closed, locked
COLOURS = "rgbpye"


def scene(state: EnvState, image: np.ndarray | None) -> Scene:
    """The world with the cells that the agent sees lit, and its view.

    `image` is what it sees in `state` (u8[v, v, 3], as in its observation). None: it sees the full frame. Then the view
    is what it carries.
    """
    now: Any = jax.tree.map(np.asarray, state)
    grid, place, facing = now.grid, now.agent_pos[::-1], int(now.agent_dir)
    lit = np.ones(grid.shape, bool)
    if image is not None:
        lit = lit_cells(seen_cells(image[..., 0] != codes.UNSEEN, now.agent_pos, facing), grid.shape)
    whole = _cells(cells.seen(grid), lit)
    put(whole, place, agent(facing, LIT_FLOOR))
    if image is None:
        hands = cells.EMPTY if now.carrying == cells.NOTHING else now.carrying
        view = [[_cell(cells.seen(hands), True)]]
        return Scene(whole, view, place, task_of(now.level), KEYS_TEXT, int(now.level.max_steps))
    view = _cells(np.asarray(image), np.ones(image.shape[:2], bool))
    # What it carries stands in its own cell. The arrow is there only if the hands are empty.
    own = (len(view) - 1, len(view) // 2)
    if image[own][0] == codes.EMPTY:
        put(view, own, agent(UPWARDS, LIT_FLOOR))
    return Scene(whole, view, place, task_of(now.level), KEYS_TEXT, int(now.level.max_steps))


def task_of(level: Level) -> str:
    """What there is to do in the level, and in how many steps, in words."""
    target = int(level.target)
    what = f"the {codes.COLOURS[int(cells.colour(target))]} {codes.OBJECTS[int(cells.kind(target))]}"
    words = {tasks.PICKUP: f"pick up {what}", tasks.OPEN: f"open {what}", tasks.FETCH: f"pick up {what}, nothing else,"}
    return f"{words.get(int(level.task), 'reach the goal')} within {level.max_steps} steps"


def _cells(image: np.ndarray, lit: np.ndarray) -> list[list[Cell]]:
    return [
        [_cell(code, bool(is_lit)) for code, is_lit in zip(*rows, strict=True)] for rows in zip(image, lit, strict=True)
    ]


def _cell(code: np.ndarray, is_lit: bool) -> Cell:
    """How a cell (u8[3]) is written."""
    kind, colour, state = (int(part) for part in code)
    plain = {codes.UNSEEN: hidden(), codes.WALL: wall(is_lit), codes.GOAL: goal(), codes.EMPTY: floor(is_lit)}
    if kind in plain:
        return plain[kind]
    if kind == codes.LAVA:
        return Cell("≈≈", "~~", ink=16, ground=LAVA)
    ground, letter = LIT_FLOOR if is_lit else FLOOR, COLOURS[colour]
    if kind == codes.DOOR:
        return Cell(DOORS[state], f"{'ODL'[state]}{letter}", INKS[colour], ground)
    return Cell(SIGNS[kind], f"{LETTERS[kind]}{letter}", INKS[colour], ground)

"""Games of LaserTag as text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.envs.cells.codes import UPWARDS
from minimax_lib.envs.cells.text import FLOOR, LIT_FLOOR, agent, floor, lit_cells, put, wall
from minimax_lib.envs.lasertag import view as planes
from minimax_lib.envs.lasertag.dynamics import EnvState
from minimax_lib.envs.lasertag.render import seen_from, without_padding
from minimax_lib.envs.terminal import Cell, Scene

BLUE = 39
KEYS = {
    "left": "left",
    "right": "right",
    "up": "forward",
    "down": "backward",
    "f": "fire",
    "x": "stand",
    "z": "step_left",
    "c": "step_right",
    "u": "forward_left",
    "i": "forward_right",
}


def keys(actions: Sequence[str]) -> Mapping[str, int]:
    """The action of each key, of the actions that there are."""
    return {key: actions.index(action) for key, action in KEYS.items() if action in actions}


def keys_text(actions: Sequence[str]) -> str:
    """What letters do, in words."""
    letters = [(key, action) for key, action in KEYS.items() if len(key) == 1 and action in actions]
    return "   ".join(f"{key}: {action.replace('_', ' ')}" for key, action in letters)


def scene(state: EnvState, image: np.ndarray, actions: Sequence[str]) -> Scene:
    """The map with the cells that agent 0 sees lit, and its view; agent 1 is blue.

    `image` is what agent 0 sees in `state` (bool[h, w, planes], as in its observation).
    """
    now: Any = jax.tree.map(np.asarray, state)
    walls = np.pad(without_padding(now.level).walls, 1, constant_values=True)
    lit = lit_cells(seen_from(image, now.position[0], int(now.facing[0])) + 1, walls.shape)
    whole = [
        [(wall if is_wall else floor)(is_lit) for is_wall, is_lit in zip(row, lit_row, strict=True)]
        for row, lit_row in zip(walls, lit, strict=True)
    ]
    own, other = (position[::-1] + 1 for position in now.position)
    put(whole, other, agent(int(now.facing[1]), LIT_FLOOR if lit[tuple(other)] else FLOOR, BLUE))
    put(whole, own, agent(int(now.facing[0]), LIT_FLOOR))
    return Scene(whole, _view(image), own, _score(now), keys_text(actions))


def _view(image: np.ndarray) -> list[list[Cell]]:
    """What agent 0 sees. The other one is a disc there: its facing is not seen."""
    view = [[(wall if is_wall else floor)(True) for is_wall in row] for row in image[..., planes.WALL]]
    for place in np.argwhere(image[..., planes.OTHER]):
        put(view, place, Cell("● ", "O ", ink=BLUE, ground=LIT_FLOOR))
    for place in np.argwhere(image[..., planes.SELF]):
        put(view, place, agent(UPWARDS, LIT_FLOOR))
    return view


def _score(state: Any) -> str:
    own, other = state.tags
    return f"tag the other agent: {own} to {other} so far"

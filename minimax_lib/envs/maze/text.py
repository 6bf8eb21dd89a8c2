"""Mazes as text for a terminal."""

from collections.abc import Mapping

import jax
import numpy as np

from minimax_lib.envs.cells.actions import FORWARD, LEFT, RIGHT
from minimax_lib.envs.cells.codes import UPWARDS
from minimax_lib.envs.cells.drawing import seen_cells
from minimax_lib.envs.cells.text import LIT_FLOOR, agent, floor, goal, hidden, lit_cells, put, wall
from minimax_lib.envs.maze import level as codes
from minimax_lib.envs.maze.amaze import EnvState
from minimax_lib.envs.maze.render import without_padding
from minimax_lib.envs.terminal import Scene

KEYS: Mapping[str, int] = {"left": LEFT, "right": RIGHT, "up": FORWARD}


def scene(state: EnvState, image: np.ndarray) -> Scene:
    """The maze with the cells that the agent sees lit, and its view.

    `image` is what it sees in `state` (u8[v, v, 3], as in its observation).
    """
    seen, position, facing = np.asarray(image)[..., 0], np.asarray(state.agent_pos), int(state.agent_dir)
    level = without_padding(jax.tree.map(np.asarray, state.level))
    walls = np.pad(np.asarray(level.wall_map), 1, constant_values=True)
    place = position[::-1] + 1
    lit = lit_cells(seen_cells(seen != codes.UNSEEN[0], position, facing) + 1, walls.shape)
    whole = [
        [(wall if is_wall else floor)(is_lit) for is_wall, is_lit in zip(row, lit_row, strict=True)]
        for row, lit_row in zip(walls, lit, strict=True)
    ]
    put(whole, np.asarray(level.goal_pos)[::-1] + 1, goal())
    put(whole, place, agent(facing, LIT_FLOOR))
    kinds = {codes.UNSEEN[0]: hidden(), codes.WALL[0]: wall(True), codes.GOAL[0]: goal()}
    view = [[kinds.get(code, floor(True)) for code in row] for row in seen]
    put(view, (len(view) - 1, len(view) // 2), agent(UPWARDS, LIT_FLOOR))
    return Scene(whole, view, place)

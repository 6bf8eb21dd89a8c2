"""The free parameters of a maze, and how the agent sees its cells."""

import jax
import numpy as np
from flax import struct

from minimax_lib.envs.cells import codes

# (object, colour, state) of a cell, in MiniGrid's numbers.
UNSEEN = np.array([codes.UNSEEN, 0, 0], np.uint8)
EMPTY = np.array([codes.EMPTY, 0, 0], np.uint8)
WALL = np.array([codes.WALL, codes.GREY, 0], np.uint8)
GOAL = np.array([codes.GOAL, codes.GREEN, 0], np.uint8)
AGENT = np.array([codes.AGENT, 0, 0], np.uint8)  # the state is the direction


class Level(struct.PyTreeNode):
    """Everything that varies between episodes of a maze. Positions are [x, y] = [column, row] inside the border.

    The border wall is not stored. Agent and goal stand on two different free cells.
    """

    wall_map: jax.Array  # bool[h, w], indexed [y, x]
    agent_pos: jax.Array  # i32[2]
    agent_dir: jax.Array  # i32[], 0 right, 1 down, 2 left, 3 up
    goal_pos: jax.Array  # i32[2]

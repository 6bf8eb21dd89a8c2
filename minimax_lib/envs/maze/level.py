"""The free parameters of a maze, and MiniGrid's encoding of cells."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

# (object, colour, state) of a cell, in MiniGrid's numbers.
UNSEEN = np.array([0, 0, 0], np.uint8)
EMPTY = np.array([1, 0, 0], np.uint8)
WALL = np.array([2, 5, 0], np.uint8)
GOAL = np.array([8, 1, 0], np.uint8)
AGENT = np.array([10, 0, 0], np.uint8)  # the state is the direction


class Level(struct.PyTreeNode):
    """Everything that varies between episodes of a maze. Positions are [x, y] = [column, row] inside the border.

    The border wall is not stored. Agent and goal stand on two different free cells.
    """

    wall_map: jax.Array  # bool[h, w], indexed [y, x]
    agent_pos: jax.Array  # i32[2]
    agent_dir: jax.Array  # i32[], 0 right, 1 down, 2 left, 3 up
    goal_pos: jax.Array  # i32[2]


def direction_vector(direction: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(dx, dy), i32 in the shape of `direction`: one step in this direction."""
    dx = (direction == 0).astype(jnp.int32) - (direction == 2).astype(jnp.int32)
    dy = (direction == 1).astype(jnp.int32) - (direction == 3).astype(jnp.int32)
    return dx, dy

"""The free parameters of the object world, and its tasks."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

REACH, PICKUP, OPEN, FETCH = range(4)
TASKS = ("reach", "pickup", "open", "fetch")


class Level(struct.PyTreeNode):
    """Everything that varies between episodes. Positions are [x, y] = [column, row] in the whole frame.

    The border is part of the grid: rooms may touch the frame, or leave most of it empty. The agent is not in the grid.
    """

    grid: jax.Array  # u16[H, W], indexed [y, x]; see `grid.cells`
    agent_pos: jax.Array  # i32[2]
    agent_dir: jax.Array  # i32[], 0 right, 1 down, 2 left, 3 up
    task: jax.Array  # i32[], one of `TASKS`
    target: jax.Array  # i32[], the object and colour that the task is about (`cells.named`); 0: none
    max_steps: jax.Array  # i32[], steps after which an episode is cut off
    difficulty: jax.Array  # i32[], a label for logs: never observed, and no part of a level's identity


def make_level(
    grid: Any,
    agent_pos: Any,
    agent_dir: Any,
    max_steps: Any,
    task: Any = REACH,
    target: Any = 0,
    difficulty: Any = 0,
) -> Level:
    """The level of these parts, each with the right dtype. `target` may be a cell: its object and colour."""
    return Level(
        grid=jnp.asarray(grid, jnp.uint16),
        agent_pos=jnp.asarray(agent_pos, jnp.int32),
        agent_dir=jnp.asarray(agent_dir, jnp.int32),
        task=jnp.asarray(task, jnp.int32),
        target=jnp.asarray(target, jnp.int32),
        max_steps=jnp.asarray(max_steps, jnp.int32),
        difficulty=jnp.asarray(difficulty, jnp.int32),
    )


def identity(level: Level) -> Level:
    """The level without its label: two levels are equal where all the rest is."""
    return level.replace(difficulty=jnp.zeros_like(level.difficulty))

"""ACCEL's mutation of mazes (Parker-Holder et al. 2022)."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.sampling import draw_cell

NOTHING, FLIP, MOVE_GOAL = range(3)  # the edits, equally likely


def mutate(key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits; agent and goal stay on two different free cells.

    Each edit is, uniformly, one of: nothing; flip wall and empty in a uniformly drawn cell that holds neither agent nor
    goal; move the goal to a uniformly drawn free cell (not the agent's). One that finds no such cell does nothing.
    """

    def edit(level: Level, key: jax.Array) -> tuple[Level, None]:
        k_kind, k_cell = jax.random.split(key)
        kind = jax.random.randint(k_kind, (), 0, 3)
        # The goal's own cell is left out as well, so that a goal that can move does.
        vacant = ~occupied(level)
        wanted = jnp.where(kind == FLIP, vacant, vacant & ~level.wall_map)
        y, x, found = draw_cell(k_cell, wanted)
        # All kinds are worked out and one is chosen: under vmap a branch is a choice anyway, and edits are cheap.
        flipped = level.wall_map.at[y, x].set(~level.wall_map[y, x])
        return level.replace(
            wall_map=jnp.where(found & (kind == FLIP), flipped, level.wall_map),
            goal_pos=jnp.where(found & (kind == MOVE_GOAL), jnp.stack([x, y]), level.goal_pos),
        ), None

    # One after the other: an edit must see where the one before has left walls and goal.
    return jax.lax.scan(edit, level, jax.random.split(key, n_edits))[0]


def occupied(level: Level) -> jax.Array:
    """bool[h, w]: where agent and goal stand."""
    cells = jnp.zeros(level.wall_map.shape, bool)
    for pos in (level.agent_pos, level.goal_pos):
        cells = cells.at[pos[1], pos[0]].set(True)
    return cells

"""ACCEL's mutation of mazes (Parker-Holder et al. 2022)."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.maze.level import Level

NOTHING, FLIP, MOVE_GOAL = range(3)  # the edits, equally likely


def mutate(key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits. Agent and goal stay on two different free cells.

    Each edit is one of three kinds, equally likely:

    * nothing
    * a wall becomes empty, or an empty cell a wall, in a random cell without agent and goal
    * the goal moves to a random free cell without the agent

    An edit that finds no such cell does nothing.
    """

    def edit(level: Level, key: jax.Array) -> tuple[Level, None]:
        k_kind, k_cell = jax.random.split(key)
        kind = jax.random.randint(k_kind, (), 0, 3)
        # The goal's own cell is left out, so that a goal that can move does move.
        vacant = ~occupied(level)
        wanted = jnp.where(kind == FLIP, vacant, vacant & ~level.wall_map)
        y, x, found = draw_cell(k_cell, wanted)
        # All kinds are computed and one is selected: under vmap, a branch becomes that anyway, and edits are cheap.
        flipped = level.wall_map.at[y, x].set(~level.wall_map[y, x])
        return level.replace(
            wall_map=jnp.where(found & (kind == FLIP), flipped, level.wall_map),
            goal_pos=jnp.where(found & (kind == MOVE_GOAL), jnp.stack([x, y]), level.goal_pos),
        ), None

    # One after another, because an edit must see the walls and the goal that the edit before has left.
    return jax.lax.scan(edit, level, jax.random.split(key, n_edits))[0]


def occupied(level: Level) -> jax.Array:
    """bool[h, w]: where agent and goal stand."""
    cells = jnp.zeros(level.wall_map.shape, bool)
    for pos in (level.agent_pos, level.goal_pos):
        cells = cells.at[pos[1], pos[0]].set(True)
    return cells

"""Facts about a level: how far the goal is, and whether it can be reached at all."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.maze.level import Level


def cell_mask(position: jax.Array, height: int, width: int) -> jax.Array:
    """bool[h, w], true at `position` [x, y] only."""
    here = position[0] == jnp.arange(width, dtype=jnp.int32)
    return (position[1] == jnp.arange(height, dtype=jnp.int32))[:, None] & here[None, :]


def dilate(reached: jax.Array) -> jax.Array:
    """bool[h, w]: `reached` and its four neighbours."""
    up = jnp.pad(reached[1:], ((0, 1), (0, 0)))
    down = jnp.pad(reached[:-1], ((1, 0), (0, 0)))
    left = jnp.pad(reached[:, 1:], ((0, 0), (0, 1)))
    right = jnp.pad(reached[:, :-1], ((0, 0), (1, 0)))
    return reached | up | down | left | right


def shortest_path(level: Level) -> tuple[jax.Array, jax.Array]:
    """(moves from agent to goal i32[], solvable bool[]): 4-neighbour moves over free cells; 0 where unreachable."""
    height, width = level.wall_map.shape
    free = ~level.wall_map
    goal = cell_mask(level.goal_pos, height, width)

    def grows(loop: tuple) -> jax.Array:
        _, _, arrived, stuck = loop
        return ~arrived & ~stuck

    def grow(loop: tuple) -> tuple:
        reached, length, _, _ = loop
        wider = dilate(reached) & free
        return wider, length + 1, jnp.any(wider & goal), jnp.all(wider == reached)

    start = cell_mask(level.agent_pos, height, width)
    loop = (start, jnp.zeros((), jnp.int32), jnp.any(start & goal), jnp.zeros((), bool))
    _, length, arrived, _ = jax.lax.while_loop(grows, grow, loop)
    return jnp.where(arrived, length, 0), arrived

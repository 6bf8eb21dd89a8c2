"""Random mazes."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.level import Level


def draw_walls(key: jax.Array, n_cells: int, n_draws: int, n_walls: jax.Array) -> jax.Array:
    """bool[n_cells]: the cells hit by the first `n_walls` of `n_draws` draws with replacement."""
    cells = jax.random.randint(key, (n_draws,), 0, n_cells)
    # Shapes are fixed, so all draws are made. Those after `n_walls` go to a cell that does not exist, and are dropped.
    cells = jnp.where(np.arange(n_draws) < n_walls, cells, n_cells)
    return jnp.zeros(n_cells, bool).at[cells].set(True, mode="drop")


def draw_distinct_walls(key: jax.Array, n_cells: int, n_walls: jax.Array) -> jax.Array:
    """bool[n_cells]: `n_walls` different cells. Every such set is equally likely.

    Each cell draws a number, and the lowest numbers become walls. The limit between them and the others is found bit by
    bit, which is faster than a sort.
    """
    numbers = jax.random.bits(key, (n_cells,))

    # The limit is the highest number with at most `n_walls` numbers below it. A bit is set if that still holds.
    def add_bit(i: jax.Array, limit: jax.Array) -> jax.Array:
        higher = limit | (jnp.uint32(1 << 31) >> i.astype(jnp.uint32))
        return jnp.where(jnp.sum(numbers < higher, dtype=jnp.int32) <= n_walls, higher, limit)

    limit = jax.lax.fori_loop(0, 32, add_bit, jnp.zeros((), jnp.uint32))
    below, at_limit = numbers < limit, numbers == limit
    # Several cells may have drawn the limit itself. The first of them fill up the missing walls.
    missing = n_walls - jnp.sum(below, dtype=jnp.int32)
    return below | (at_limit & (jnp.cumsum(at_limit, dtype=jnp.int32) <= missing))


def place_agent_and_goal(k_agent: jax.Array, k_goal: jax.Array, k_dir: jax.Array, wall_map: jax.Array) -> Level:
    """A level with these walls. Agent and goal are uniform over pairs of different free cells, as is the direction."""
    width = wall_map.shape[1]
    rank = jnp.cumsum(~wall_map.reshape(-1), dtype=jnp.int32)  # free cells up to this one, inclusive
    n_free = rank[-1]
    agent = jax.random.randint(k_agent, (), 0, n_free)
    goal = jax.random.randint(k_goal, (), 0, n_free - 1)
    goal = goal + (goal >= agent)  # skips the agent's cell
    # The cells before free cell k (counted from 0) are those with a rank of at most k. Their number is its index.
    cells = jnp.sum(rank[None, :] <= jnp.stack([agent, goal])[:, None], axis=1, dtype=jnp.int32)
    positions = jnp.stack([cells % width, cells // width], axis=1)
    agent_dir = jax.random.randint(k_dir, (), 0, 4)
    return Level(wall_map=wall_map, agent_pos=positions[0], agent_dir=agent_dir, goal_pos=positions[1])

"""Random mazes."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.maze.level import Level


def draw_walls(key: jax.Array, n_cells: int, most: int, n_walls: jax.Array) -> jax.Array:
    """bool[n_cells]: the cells hit by the first `n_walls` of `most` draws with replacement."""
    cells = jax.random.randint(key, (most,), 0, n_cells)
    cells = jnp.where(jnp.arange(most) < n_walls, cells, n_cells)
    return jnp.zeros(n_cells, bool).at[cells].set(True, mode="drop")


def draw_distinct_walls(key: jax.Array, n_cells: int, most: int, n_walls: jax.Array) -> jax.Array:
    """bool[n_cells]: `n_walls` <= `most` different cells, every such set equally likely."""
    _, cells = jax.lax.top_k(jax.random.uniform(key, (n_cells,)), most)
    cells = jnp.where(jnp.arange(most) < n_walls, cells, n_cells)
    return jnp.zeros(n_cells, bool).at[cells].set(True, mode="drop")


def place_agent_and_goal(k_agent: jax.Array, k_goal: jax.Array, k_dir: jax.Array, wall_map: jax.Array) -> Level:
    """A level with these walls; agent and goal uniform over pairs of different free cells, facing uniform."""
    width = wall_map.shape[1]
    rank = jnp.cumsum(~wall_map.reshape(-1), dtype=jnp.int32)  # free cells up to and with this one
    n_free = rank[-1]
    agent = jax.random.randint(k_agent, (), 0, n_free)
    goal = jax.random.randint(k_goal, (), 0, n_free - 1)
    goal = goal + (goal >= agent)  # the cell of the agent is left out
    cells = jnp.sum(rank[None, :] <= jnp.stack([agent, goal])[:, None], axis=1, dtype=jnp.int32)
    positions = jnp.stack([cells % width, cells // width], axis=1)
    agent_dir = jax.random.randint(k_dir, (), 0, 4)
    return Level(wall_map=wall_map, agent_pos=positions[0], agent_dir=agent_dir, goal_pos=positions[1])

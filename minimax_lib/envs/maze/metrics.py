"""Facts about a level: how far the goal is, whether it can be reached, and how far any cell is from any other."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.bits import one_bit, shift, to_words
from minimax_lib.envs.maze.level import Level
from minimax_lib.loops import steps_at_once


def shortest_path(level: Level) -> tuple[jax.Array, jax.Array]:
    """(moves from agent to goal i32[], solvable bool[]): 4-neighbour moves over free cells; 0 where unreachable.

    A flood from the agent over the whole grid as one string of bits: row after row, each followed by one wall. A step
    of the flood is four shifts of a few words, and a batch (vmap) shares one loop.
    """
    stride = level.wall_map.shape[1] + 1
    free = to_words(jnp.pad(~level.wall_map, ((0, 0), (0, 1))).reshape(-1))
    start = one_bit(level.agent_pos[1] * stride + level.agent_pos[0], free.size)
    goal = one_bit(level.goal_pos[1] * stride + level.goal_pos[0], free.size)

    def spreads(loop: tuple) -> jax.Array:
        _, _, arrived, stuck = loop
        return ~arrived & ~stuck

    def spread(loop: tuple) -> tuple:
        for _ in range(steps_at_once(8)):  # of which those after the end change nothing
            reached, length, arrived, stuck = loop
            near = shift(reached, 1) | shift(reached, -1) | shift(reached, stride) | shift(reached, -stride)
            wider = (reached | near) & free
            length = length + ~(arrived | stuck)
            loop = wider, length, arrived | jnp.any(wider & goal), stuck | jnp.all(wider == reached)
        return loop

    loop = (start, jnp.zeros((), jnp.int32), jnp.any(start & goal), jnp.zeros((), bool))
    _, length, arrived, _ = jax.lax.while_loop(spreads, spread, loop)
    return jnp.where(arrived, length, 0), arrived


def all_pairs_shortest_paths(wall_map: jax.Array) -> jax.Array:
    """i32[h * w, h * w]: moves between any two cells (y * w + x); -1 where there is no way or either is a wall.

    Seidel's algorithm (1995) with a fixed number of rounds: square the graph until every component is complete, then
    undo one squaring after the other, each telling even distances from odd ones. Exact below 4096 cells.
    """
    free = ~wall_map.reshape(-1)
    n_cells = free.size
    if n_cells > 4096:
        raise ValueError(f"a grid of {n_cells} cells is too large for the matrix of all pairs: at most 4096")
    apart = ~np.eye(n_cells, dtype=bool)

    def square(graph: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return (graph + _product(graph, graph) > 0).astype(jnp.float32) * apart, graph

    def undo(distance: jax.Array, graph: jax.Array) -> tuple[jax.Array, None]:
        odd = _product(distance, graph) < distance * graph.sum(axis=0)[None, :]
        return 2 * distance - odd, None

    n_rounds = max(1, (n_cells - 1).bit_length())
    complete, graphs = jax.lax.scan(square, adjacency(wall_map), length=n_rounds)
    distance, _ = jax.lax.scan(undo, complete, graphs, reverse=True)
    linked = (complete > 0) | (~apart & free[:, None])
    return jnp.where(linked, distance.astype(jnp.int32), -1)


def adjacency(wall_map: jax.Array) -> jax.Array:
    """f32[h * w, h * w]: 1 between free cells that are neighbours."""
    y, x = np.divmod(np.arange(wall_map.size), wall_map.shape[1])
    near = np.abs(y[:, None] - y) + np.abs(x[:, None] - x) == 1
    free = ~wall_map.reshape(-1)
    return (near & free[:, None] & free[None, :]).astype(jnp.float32)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)  # whole numbers: no rounded products on a GPU

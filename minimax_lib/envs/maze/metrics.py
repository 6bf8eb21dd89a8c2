"""Facts about a level: distance of the goal, whether it can be reached, and distances between all cells."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.flood import bit_at, bits_of, moves_between
from minimax_lib.envs.maze.level import Level


def shortest_path(level: Level) -> tuple[jax.Array, jax.Array]:
    """(moves from agent to goal i32[], solvable bool[]): 4-neighbour moves over free cells; 0 if unreachable."""
    shape = level.wall_map.shape
    start, goal = bit_at(level.agent_pos, shape), bit_at(level.goal_pos, shape)
    return moves_between(start, goal, bits_of(~level.wall_map), shape[1])


def fewest_actions(level: Level) -> tuple[jax.Array, jax.Array]:
    """(actions from start to goal i32[], solvable bool[]): turns and moves on the shortest way; 0 if unreachable."""
    free, (x, y) = ~level.wall_map, level.goal_pos

    def moved(reached: jax.Array, facing: int) -> jax.Array:
        """bool[h, w], the cells that a step in this direction leads to."""
        dx, dy = ((1, 0), (0, 1), (-1, 0), (0, -1))[facing]
        around = jnp.pad(reached[facing], 1)
        return jax.lax.slice(around, (1 - dy, 1 - dx), (1 - dy + free.shape[0], 1 - dx + free.shape[1])) & free

    def one_action(loop: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        reached, _, n_actions = loop
        turned = jnp.roll(reached, 1, axis=0) | jnp.roll(reached, -1, axis=0)
        after = reached | turned | jnp.stack([moved(reached, facing) for facing in range(4)])
        return after, (after != reached).any(), n_actions + 1

    start = jnp.zeros((4, *free.shape), bool).at[level.agent_dir, level.agent_pos[1], level.agent_pos[0]].set(True)
    loop = (start, jnp.ones((), bool), jnp.zeros((), jnp.int32))
    reached, _, n_actions = jax.lax.while_loop(lambda loop: loop[1] & ~loop[0][:, y, x].any(), one_action, loop)
    solvable = reached[:, y, x].any()
    return jnp.where(solvable, n_actions, 0), solvable


def all_pairs_shortest_paths(wall_map: jax.Array) -> jax.Array:
    """i32[h * w, h * w]: moves between any two cells (y * w + x); -1 if there is no way or either is a wall.

    Seidel's algorithm (1995): square the graph until every component is complete. Then undo one squaring after another.
    Each undoing doubles all distances and finds out which are odd. ValueError above 4096 cells.
    """
    free = ~wall_map.reshape(-1)
    n_cells = free.size
    # Sums grow up to n_cells ** 2, and f32 is exact for whole numbers up to 2 ** 24 = 4096 ** 2.
    if n_cells > 4096:
        raise ValueError(f"a grid of {n_cells} cells is too large for the matrix of all pairs: at most 4096")
    apart = ~np.eye(n_cells, dtype=bool)

    def square(graph: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return (graph + _product(graph, graph) > 0).astype(jnp.float32) * apart, graph

    def undo(distance: jax.Array, graph: jax.Array) -> tuple[jax.Array, None]:
        # Seidel's test, on distances in the squared graph. If the distance to a cell is even, no neighbour of the cell
        # is nearer than the cell. If it is odd, some neighbour is nearer and none is farther.
        odd = _product(distance, graph) < distance * graph.sum(axis=0)[None, :]
        return 2 * distance - odd, None

    # As many rounds as the longest possible path needs, so that the program does not depend on the walls. Squaring a
    # complete graph changes nothing, and undoing that changes nothing either.
    n_rounds = max(1, (n_cells - 1).bit_length())
    complete, graphs = jax.lax.scan(square, adjacency(wall_map), length=n_rounds)
    distance, _ = jax.lax.scan(undo, complete, graphs, reverse=True)
    # The graph has no edge from a cell to itself, but a free cell is 0 moves away from itself.
    linked = (complete > 0) | (~apart & free[:, None])
    return jnp.where(linked, distance.astype(jnp.int32), -1)


def adjacency(wall_map: jax.Array) -> jax.Array:
    """f32[h * w, h * w]: 1 between free cells that are neighbours."""
    y, x = np.divmod(np.arange(wall_map.size), wall_map.shape[1])
    near = np.abs(y[:, None] - y) + np.abs(x[:, None] - x) == 1
    free = ~wall_map.reshape(-1)
    return (near & free[:, None] & free[None, :]).astype(jnp.float32)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)  # exact: no rounding of factors on a GPU

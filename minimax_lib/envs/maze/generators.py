"""Procedural mazes of the held-out suite. Sizes count the border, as the field names its mazes by them."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.level import Level
from minimax_lib.envs.maze.sampling import place_agent_and_goal


@functools.cache
def grid_edges(n: int) -> np.ndarray:
    """i32[2 * n * (n - 1), 2]: the pairs of neighbouring vertices of an n x n grid, numbered row by row."""
    vertex = np.arange(n * n, dtype=np.int32).reshape(n, n)
    across = np.stack([vertex[:, :-1].ravel(), vertex[:, 1:].ravel()], axis=1)
    down = np.stack([vertex[:-1].ravel(), vertex[1:].ravel()], axis=1)
    return np.concatenate([across, down])


def minimum_spanning_tree(ends: jax.Array, n_vertices: int) -> jax.Array:
    """bool[E]: which edges Kruskal's algorithm takes, of edges listed from the lightest to the heaviest (i32[E, 2]).

    They are found as Boruvka does: in each round, every component joins the one across its lightest outgoing edge.
    Where all weights differ the tree is the same, after log2(V) rounds instead of E steps.
    """
    n_edges = ends.shape[0]
    # The place in the list is the weight. Equal weights could close a ring of components.
    weight = jnp.arange(n_edges, dtype=jnp.int32)

    def join(_: int, loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        component, taken = loop
        sides = component[ends]  # [E, 2]
        outgoing = sides[:, 0] != sides[:, 1]
        weights = jnp.where(outgoing, weight, n_edges)
        lightest = jnp.full(n_vertices, n_edges, jnp.int32).at[sides].min(weights[:, None])
        # Either side may have chosen the edge.
        taken = taken | (outgoing & jnp.any(lightest[sides] == weight[:, None], axis=1))
        return merge(component, sides, lightest), taken

    # Each round at least halves the number of components: log2(V) rounds are enough, whatever the weights.
    loop = (jnp.arange(n_vertices, dtype=jnp.int32), jnp.zeros(n_edges, bool))
    return jax.lax.fori_loop(0, max(1, math.ceil(math.log2(n_vertices))), join, loop)[1]


def merge(component: jax.Array, sides: jax.Array, lightest: jax.Array) -> jax.Array:
    """i32[V]: each vertex's component after every component has joined the one across its lightest outgoing edge.

    A component is called after one of its vertices. `lightest` holds its edge, or E if no edge leads out of it.
    """
    n_vertices, n_edges = component.shape[0], sides.shape[0]
    me = jnp.arange(n_vertices, dtype=jnp.int32)
    # The sum of an edge's two sides, less the own one, is the other one. E is no edge: what is read there is not used.
    across = sides[jnp.minimum(lightest, n_edges - 1)].sum(axis=1) - me
    parent = jnp.where(lightest < n_edges, across, me)
    mutual = (parent[parent] == me) & (me < parent)  # two that chose the same edge: one of them is the root
    parent = jnp.where(mutual, me, parent)
    # Joins may form a chain of up to V components. Each pass doubles how far along it everyone looks.
    for _ in range(math.ceil(math.log2(n_vertices)) if n_vertices > 1 else 0):
        parent = parent[parent]
    return parent[component]


def perfect_maze(key: jax.Array, size: int) -> Level:
    """A spanning tree of the odd cells, by Kruskal with random weights; agent and goal in two different corners."""
    k_weights, k_corners, k_dir = jax.random.split(key, 3)
    n, inner = (size - 1) // 2, size - 2
    # A random order of the edges is a draw of random weights that all differ.
    ends = jax.random.permutation(k_weights, jnp.asarray(grid_edges(n)))
    taken = minimum_spanning_tree(ends, n * n)
    passage = ends[:, 0] // n + ends[:, 1] // n, ends[:, 0] % n + ends[:, 1] % n  # the cell between the two ends
    # Odd cells with the border are even cells without it.
    wall_map = jnp.ones((inner, inner), bool).at[::2, ::2].set(False)
    wall_map = wall_map.at[passage].min(~taken)
    corners = (inner - 1) * jnp.array([[0, 0], [1, 0], [0, 1], [1, 1]], jnp.int32)
    agent, goal = jax.random.permutation(k_corners, corners)[:2]
    return Level(wall_map=wall_map, agent_pos=agent, agent_dir=jax.random.randint(k_dir, (), 0, 4), goal_pos=goal)


def four_rooms(key: jax.Array, size: int) -> Level:
    """Two crossing walls with one random door in each arm; agent and goal anywhere free (MiniGrid's FourRooms)."""
    k_doors, k_agent, k_goal, k_dir = jax.random.split(key, 4)
    inner, room = size - 2, (size - 2) // 2
    cross = np.zeros((inner, inner), bool)
    cross[room, :] = cross[:, room] = True
    first = jnp.array([0, room + 1, 0, room + 1], jnp.int32)  # of the left, right, upper and lower arm
    door = first + jax.random.randint(k_doors, (4,), 0, room)
    middle = jnp.full(2, room, jnp.int32)
    rows, columns = jnp.concatenate([middle, door[2:]]), jnp.concatenate([door[:2], middle])
    wall_map = jnp.asarray(cross).at[rows, columns].set(False)
    return place_agent_and_goal(k_agent, k_goal, k_dir, wall_map)


def crossing(key: jax.Array, size: int, n_crossings: int) -> Level:
    """MiniGrid's SimpleCrossing: `n_crossings` walls across, each with one opening on some way to the far corner.

    It follows MiniGrid and not minimax, which places a wrong number of walls.
    """
    k_rivers, k_path, k_openings = jax.random.split(key, 3)
    inner = size - 2
    places = np.arange(1, inner - 1, 2)  # where a wall may stand; agent and goal are never on such a line
    # One permutation of all places, columns and rows together: how many walls are columns is a matter of chance too.
    drawn = jax.random.permutation(k_rivers, 2 * len(places)) < n_crossings
    columns = jnp.zeros(inner, bool).at[places].set(drawn[: len(places)])
    rows = jnp.zeros(inner, bool).at[places].set(drawn[len(places) :])
    # `path`: true where the next wall to pass is a column
    path = jax.random.permutation(k_path, jnp.arange(n_crossings) < columns.sum())
    column, row = passages(k_openings, path, columns, rows)
    wall_map = (columns[None, :] | rows[:, None]).at[row, column].set(False)
    far = jnp.full(2, inner - 1, jnp.int32)
    return Level(wall_map=wall_map, agent_pos=jnp.zeros(2, jnp.int32), agent_dir=jnp.zeros((), jnp.int32), goal_pos=far)


def passages(key: jax.Array, path: jax.Array, columns: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(column, row) i32[K] of the openings of the K walls, passed in the order of `path` from the first room on."""

    def limits(walls: jax.Array) -> jax.Array:
        """Where the walls stand, in order, between two borders."""
        inner = walls.shape[0]
        # K + 1 entries however many of the K walls are columns: shapes are fixed.
        found = jnp.nonzero(walls, size=path.shape[0] + 1, fill_value=inner)[0].astype(jnp.int32)
        return jnp.concatenate([jnp.full(1, -1, jnp.int32), found])

    column_limits, row_limits = limits(columns), limits(rows)

    def between(key: jax.Array, limits: jax.Array, room: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), limits[room] + 1, limits[room + 1])

    def pass_wall(room: tuple, step: tuple) -> tuple[tuple, tuple]:
        (i, j), (key, across_column) = room, step
        # One key for two draws: only one of them is used.
        column = jnp.where(across_column, column_limits[i + 1], between(key, column_limits, i))
        row = jnp.where(across_column, between(key, row_limits, j), row_limits[j + 1])
        return (i + across_column, j + ~across_column), (column, row)

    room = (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    return jax.lax.scan(pass_wall, room, (jax.random.split(key, path.shape[0]), path))[1]

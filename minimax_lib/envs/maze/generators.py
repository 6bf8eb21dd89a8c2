"""Procedural mazes of the held-out suite. Sizes include the border, as in the published names of these mazes."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.crossing import crossing_lines
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
    """bool[E]: the edges that Kruskal's algorithm takes. `ends` (i32[E, 2]) lists the edges, the lightest first.

    They are found with Boruvka's algorithm: in each round, every component joins the one across its lightest outgoing
    edge. If all weights differ, the tree is the same. It needs log2(V) rounds instead of E steps.
    """
    n_edges = ends.shape[0]
    # The weight is the place in the list, so all weights differ. Equal weights could close a ring of components.
    weight = jnp.arange(n_edges, dtype=jnp.int32)

    def join(_: int, loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        component, taken = loop
        sides = component[ends]  # [E, 2]
        outgoing = sides[:, 0] != sides[:, 1]
        weights = jnp.where(outgoing, weight, n_edges)
        lightest = jnp.full(n_vertices, n_edges, jnp.int32).at[sides].min(weights[:, None])
        # An edge is taken if the component on either side has chosen it.
        taken = taken | (outgoing & jnp.any(lightest[sides] == weight[:, None], axis=1))
        return merge(component, sides, lightest), taken

    # Each round at least halves the number of components, so log2(V) rounds are always enough.
    loop = (jnp.arange(n_vertices, dtype=jnp.int32), jnp.zeros(n_edges, bool))
    return jax.lax.fori_loop(0, max(1, math.ceil(math.log2(n_vertices))), join, loop)[1]


def merge(component: jax.Array, sides: jax.Array, lightest: jax.Array) -> jax.Array:
    """i32[V]: each vertex's component after every component has joined the one across its lightest outgoing edge.

    A component has the number of one of its vertices. `lightest` holds its edge, or E if no edge leads out of it.
    """
    n_vertices, n_edges = component.shape[0], sides.shape[0]
    me = jnp.arange(n_vertices, dtype=jnp.int32)
    # The two sides of an edge, added up, minus the own side give the other side. What is read for E is not used.
    across = sides[jnp.minimum(lightest, n_edges - 1)].sum(axis=1) - me
    parent = jnp.where(lightest < n_edges, across, me)
    mutual = (parent[parent] == me) & (me < parent)  # two that chose the same edge: one becomes the root
    parent = jnp.where(mutual, me, parent)
    # Joins may form a chain of up to V components. Each pass doubles how far every component looks along it.
    for _ in range(math.ceil(math.log2(n_vertices)) if n_vertices > 1 else 0):
        parent = parent[parent]
    return parent[component]


def perfect_maze(key: jax.Array, size: int) -> Level:
    """A random spanning tree of the odd cells (Kruskal). Agent and goal are in two different corners."""
    k_weights, k_corners, k_dir = jax.random.split(key, 3)
    n, inner = (size - 1) // 2, size - 2
    # A random order of the edges stands for random weights that all differ.
    ends = jax.random.permutation(k_weights, jnp.asarray(grid_edges(n)))
    taken = minimum_spanning_tree(ends, n * n)
    passage = ends[:, 0] // n + ends[:, 1] // n, ends[:, 0] % n + ends[:, 1] % n  # the cell between the two ends
    # Cells that are odd when the border is counted are even without it.
    wall_map = jnp.ones((inner, inner), bool).at[::2, ::2].set(False)
    wall_map = wall_map.at[passage].min(~taken)
    return in_two_corners(k_corners, k_dir, wall_map)


def in_two_corners(k_corners: jax.Array, k_dir: jax.Array, wall_map: jax.Array) -> Level:
    """A level with these walls (bool[n, n]). Agent and goal are in two different corners, which must be free."""
    corners = (wall_map.shape[0] - 1) * jnp.array([[0, 0], [1, 0], [0, 1], [1, 1]], jnp.int32)
    agent, goal = jax.random.permutation(k_corners, corners)[:2]
    return Level(wall_map=wall_map, agent_pos=agent, agent_dir=jax.random.randint(k_dir, (), 0, 4), goal_pos=goal)


def four_rooms(key: jax.Array, size: int) -> Level:
    """MiniGrid's FourRooms: two crossing walls with a random door in each arm. Agent and goal are in any free cells."""
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
    """MiniGrid's SimpleCrossing: `n_crossings` walls across, each with one opening, all on one way to the far corner.

    It follows MiniGrid, not minimax, which places a wrong number of walls.
    """
    inner = size - 2
    far = jnp.full(2, inner - 1, jnp.int32)
    wall_map = crossing_lines(key, inner, n_crossings)
    return Level(wall_map=wall_map, agent_pos=jnp.zeros(2, jnp.int32), agent_dir=jnp.zeros((), jnp.int32), goal_pos=far)

"""Procedural mazes of our own: one part is for choosing settings, the other is larger than anything in training.

Sizes include the border, as in the published names. Every maze can be solved.
"""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.maze.generators import grid_edges, in_two_corners, minimum_spanning_tree
from minimax_lib.envs.maze.level import Level

ROOM = 3  # cells along the side of a room
EXTRA_DOORS = 0.25  # the chance that two rooms have a door between them that no one needs


def rooms(key: jax.Array, size: int) -> Level:
    """Square rooms of 3 x 3 cells. Agent and goal are in two different corners.

    A random spanning tree of doors connects all rooms. Any other two neighbours have a door with a chance of 1/4. Each
    door is at a random place of its wall.
    """
    k_tree, k_extra, k_places, k_corners, k_dir = jax.random.split(key, 5)
    inner = size - 2
    n, remainder = divmod(inner + 1, ROOM + 1)
    if remainder:
        raise ValueError(f"size={size} does not fit rooms of {ROOM} x {ROOM} cells: it must be 4 n + 1")
    ends = jax.random.permutation(k_tree, jnp.asarray(grid_edges(n)))
    door = minimum_spanning_tree(ends, n * n) | jax.random.bernoulli(k_extra, EXTRA_DOORS, (len(ends),))
    wall = np.arange(inner) % (ROOM + 1) == ROOM
    place = jax.random.randint(k_places, (len(ends),), 0, ROOM)
    row, column = (ROOM + 1) * (ends[:, 0] // n), (ROOM + 1) * (ends[:, 0] % n)  # the first cell of the first room
    across = ends[:, 1] == ends[:, 0] + 1  # the second room is to the right, otherwise below
    row, column = row + jnp.where(across, place, ROOM), column + jnp.where(across, ROOM, place)
    wall_map = jnp.asarray(wall[:, None] | wall[None, :]).at[row, column].min(~door)
    return in_two_corners(k_corners, k_dir, wall_map)


def corridors(key: jax.Array, size: int) -> Level:
    """A corridor with dead ends on both sides, across or upright. The goal is at the end of one of them.

    The agent starts at one end of the corridor.
    """
    k_goal, k_end, k_turn, k_dir = jax.random.split(key, 4)
    inner = size - 2
    middle = inner // 2
    wall_map = np.zeros((inner, inner), bool)
    wall_map[:, 1::2] = True  # walls between the dead ends
    wall_map[middle] = False
    dead_end, side = jnp.divmod(jax.random.randint(k_goal, (), 0, 2 * ((inner + 1) // 2)), 2)
    goal = jnp.stack([2 * dead_end, side * (inner - 1)])
    agent = jnp.stack([jax.random.randint(k_end, (), 0, 2) * (inner - 1), jnp.full((), middle, jnp.int32)])
    upright = jax.random.bernoulli(k_turn)
    return Level(
        wall_map=jnp.where(upright, wall_map.T, wall_map),
        agent_pos=jnp.where(upright, agent[::-1], agent).astype(jnp.int32),
        agent_dir=jax.random.randint(k_dir, (), 0, 4),
        goal_pos=jnp.where(upright, goal[::-1], goal).astype(jnp.int32),
    )


def spiral_cells(inner: int) -> list[tuple[int, int]]:
    """The (row, column) of the cells of one winding corridor, from the corner of the grid to its middle."""
    free = np.zeros((inner + 4, inner + 4), bool)  # two more cells on each side: nothing outside the grid is free
    inside = np.zeros_like(free)
    inside[2:-2, 2:-2] = True
    y, x, dy, dx = 2, 2, 0, 1
    free[y, x] = True
    path = [(y, x)]
    while True:
        for _ in range(2):  # straight on, or else after a turn to the right
            # A cell can be dug if there is rock behind it too: corridors stay one wall apart.
            if inside[y + dy, x + dx] and not free[y + dy, x + dx] and not free[y + 2 * dy, x + 2 * dx]:
                break
            dy, dx = dx, -dy
        else:
            return [(row - 2, column - 2) for row, column in path]
        y, x = y + dy, x + dx
        free[y, x] = True
        path.append((y, x))


def spiral(key: jax.Array, size: int) -> Level:
    """One winding corridor, turned and flipped at random. Agent and goal are at its two ends."""
    k_swap, k_flip, k_turn, k_dir = jax.random.split(key, 4)
    path = spiral_cells(size - 2)
    wall_map = np.ones((size - 2, size - 2), bool)
    wall_map[tuple(np.array(path).T)] = False
    ends = jnp.array([path[0], path[-1]], jnp.int32)  # (row, column) each
    ends = jnp.where(jax.random.bernoulli(k_swap), ends[::-1], ends)
    walls = jnp.asarray(wall_map)
    for axis, flipped in enumerate(jax.random.bernoulli(k_flip, shape=(2,))):
        walls = jnp.where(flipped, jnp.flip(walls, axis), walls)
        ends = jnp.where(flipped, ends.at[:, axis].set(size - 3 - ends[:, axis]), ends)
    upright = jax.random.bernoulli(k_turn)
    walls, ends = jnp.where(upright, walls.T, walls), jnp.where(upright, ends[:, ::-1], ends)
    return Level(
        wall_map=walls,
        agent_pos=ends[0, ::-1],
        agent_dir=jax.random.randint(k_dir, (), 0, 4),
        goal_pos=ends[1, ::-1],
    )


def labyrinth(key: jax.Array, size: int) -> Level:
    """Rings of corridor round the goal. The wall between two rings has one door, at a random place.

    The agent starts in a corner.
    """
    k_doors, k_corner, k_dir = jax.random.split(key, 3)
    inner = size - 2
    middle = inner // 2
    if inner % 4 != 1:
        raise ValueError(f"size={size} does not fit a labyrinth: it must be 4 n + 3")
    place = np.arange(inner)
    ring = middle - np.maximum(np.abs(place - middle)[:, None], np.abs(place - middle)[None, :])  # 0: the outermost
    wall_map = jnp.asarray(ring % 2 == 1)
    radii = np.arange(1, middle, 2)  # of the walls, seen from the middle
    side, offset = jax.random.randint(k_doors, (2, len(radii)), 0, jnp.stack([jnp.full(len(radii), 4), 2 * radii - 1]))
    along, away = offset - (radii - 1), radii * jnp.where(side % 2 == 0, 1, -1)  # the corners of a wall have no door
    row, column = jnp.where(side < 2, along, away), jnp.where(side < 2, away, along)
    wall_map = wall_map.at[middle + row, middle + column].set(False)
    corner = jax.random.randint(k_corner, (2,), 0, 2) * (inner - 1)
    return Level(
        wall_map=wall_map,
        agent_pos=corner,
        agent_dir=jax.random.randint(k_dir, (), 0, 4),
        goal_pos=jnp.full(2, middle, jnp.int32),
    )

"""Shortest paths against a plain breadth-first search."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.cells.bits import one_bit, shift, to_words
from minimax_lib.envs.maze import AMaze, Level
from minimax_lib.envs.maze.metrics import all_pairs_shortest_paths, shortest_path


def distances_from(wall_map, start):
    """i64[h, w] by breadth-first search from start [x, y]; -1 where unreachable."""
    height, width = wall_map.shape
    distance = np.full((height, width), -1)
    if wall_map[start[1], start[0]]:
        return distance
    distance[start[1], start[0]] = 0
    queue = deque([tuple(start)])
    while queue:
        x, y = queue.popleft()
        for nx, ny in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            inside = 0 <= nx < width and 0 <= ny < height
            if inside and not wall_map[ny, nx] and distance[ny, nx] < 0:
                distance[ny, nx] = distance[y, x] + 1
                queue.append((nx, ny))
    return distance


def sample(env, n):
    draw = jax.jit(lambda key: jax.vmap(env.sample_level)(jax.random.split(key, n)))
    return jax.tree.map(np.asarray, draw(jax.random.key(0)))


@pytest.mark.parametrize(
    ("height", "width", "n_walls", "n_levels"),
    [
        (13, 13, 60, 1500),
        (13, 13, 100, 1000),
        (7, 32, 80, 400),  # rows that just miss, fill and exceed a word
        (6, 31, 60, 400),
        (4, 33, 45, 400),
        (25, 3, 25, 400),
        (3, 70, 50, 200),
        (1, 40, 2, 100),
        (2, 1, 0, 4),
    ],
)
def test_shortest_paths_equal_breadth_first_search(height, width, n_walls, n_levels):
    env = AMaze(height=height, width=width, n_walls=n_walls)
    levels = sample(env, n_levels)
    metrics = jax.tree.map(np.asarray, jax.jit(jax.vmap(env.level_metrics))(levels))
    for i in range(n_levels):
        distance = distances_from(levels.wall_map[i], levels.agent_pos[i])
        expected = distance[levels.goal_pos[i][1], levels.goal_pos[i][0]]
        assert metrics["solvable"][i] == (expected >= 0)
        assert metrics["shortest_path"][i] == max(expected, 0)
    np.testing.assert_array_equal(metrics["n_walls"], levels.wall_map.sum((1, 2)))
    assert all(value.dtype == np.float32 for value in metrics.values())


def test_a_path_that_winds_through_the_whole_grid():
    """A snake of 9 x 9 is the longest way for the flood: 8 steps in each free row, and 2 for each turn."""
    wall_map = np.zeros((9, 9), bool)
    wall_map[1::4, :-1] = True
    wall_map[3::4, 1:] = True
    level = Level(
        wall_map=jnp.asarray(wall_map),
        agent_pos=jnp.array([0, 0], jnp.int32),
        agent_dir=jnp.zeros((), jnp.int32),
        goal_pos=jnp.array([8, 8], jnp.int32),
    )
    length, solvable = jax.jit(shortest_path)(level)
    assert solvable
    assert length == 5 * 8 + 4 * 2


@pytest.mark.parametrize(("height", "width", "n_walls"), [(6, 9, 22), (13, 13, 80), (1, 7, 2), (4, 4, 0)])
def test_all_pairs_equal_breadth_first_search(height, width, n_walls):
    levels = sample(AMaze(height=height, width=width, n_walls=n_walls), 3)
    found = np.asarray(jax.jit(jax.vmap(all_pairs_shortest_paths))(levels.wall_map))
    for i, wall_map in enumerate(levels.wall_map):
        for cell in range(height * width):
            expected = distances_from(wall_map, (cell % width, cell // width)).ravel()
            np.testing.assert_array_equal(found[i, cell], expected)


def test_all_pairs_refuse_a_grid_beyond_exact_arithmetic():
    with pytest.raises(ValueError, match="4225 cells"):
        all_pairs_shortest_paths(jnp.zeros((65, 65), bool))


@pytest.mark.parametrize("by", [1, -1, 31, -31, 32, -32, 33, -40, 70, 200, -200])
def test_shift_moves_a_string_of_bits(by):
    bits = np.random.default_rng(0).random(96) < 0.5
    moved = np.zeros(96, bool)
    if abs(by) < 96:
        moved[max(by, 0) : 96 + min(by, 0)] = bits[max(-by, 0) : 96 - max(by, 0)]
    np.testing.assert_array_equal(shift(to_words(jnp.asarray(bits)), by), to_words(jnp.asarray(moved)))


@pytest.mark.parametrize("index", [0, 31, 32, 63])
def test_one_bit(index):
    bits = np.arange(64) == index
    np.testing.assert_array_equal(one_bit(jnp.array(index, jnp.int32), 2), to_words(jnp.asarray(bits)))

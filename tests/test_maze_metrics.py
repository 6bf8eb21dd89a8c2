"""Shortest paths against a plain breadth-first search."""

from collections import deque

import jax
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


def deep(*cases):
    """Cases of a test that are not for everybody."""
    return [pytest.param(*case, marks=pytest.mark.deep) for case in cases]


@pytest.mark.parametrize(
    ("height", "width", "n_walls", "n_levels"),
    [
        (4, 33, 45, 100),  # rows that exceed a word
        *deep(
            (13, 13, 60, 1500),
            (13, 13, 100, 1000),
            (7, 32, 80, 400),  # rows that just miss, fill and exceed a word
            (6, 31, 60, 400),
            (4, 33, 45, 400),
            (25, 3, 25, 400),
            (3, 70, 50, 200),
            (1, 40, 2, 100),
            (2, 1, 0, 4),
        ),
    ],
)
def test_shortest_paths_equal_breadth_first_search(height, width, n_walls, n_levels):
    env = AMaze(height=height, width=width, n_walls=n_walls)

    def drawn(key):
        levels = jax.vmap(env.sample_level)(jax.random.split(key, n_levels))
        return levels, jax.vmap(env.level_metrics)(levels)

    levels, metrics = jax.tree.map(np.asarray, jax.jit(drawn)(jax.random.key(0)))
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
        wall_map=wall_map,
        agent_pos=np.array([0, 0], np.int32),
        agent_dir=np.int32(0),
        goal_pos=np.array([8, 8], np.int32),
    )
    length, solvable = jax.jit(shortest_path)(level)
    assert solvable
    assert length == 5 * 8 + 4 * 2


@pytest.mark.parametrize(("height", "width", "n_walls"), [(6, 9, 22), *deep((13, 13, 80), (1, 7, 2), (4, 4, 0))])
def test_all_pairs_equal_breadth_first_search(height, width, n_walls):
    env = AMaze(height=height, width=width, n_walls=n_walls)

    def drawn(key):
        wall_maps = jax.vmap(env.sample_level)(jax.random.split(key, 3)).wall_map
        return wall_maps, jax.vmap(all_pairs_shortest_paths)(wall_maps)

    wall_maps, found = jax.tree.map(np.asarray, jax.jit(drawn)(jax.random.key(0)))
    for i, wall_map in enumerate(wall_maps):
        for cell in range(height * width):
            expected = distances_from(wall_map, (cell % width, cell // width)).ravel()
            np.testing.assert_array_equal(found[i, cell], expected)


def test_all_pairs_refuse_a_grid_beyond_exact_arithmetic():
    with pytest.raises(ValueError, match="4225 cells"):
        all_pairs_shortest_paths(np.zeros((65, 65), bool))


SHIFTS = (1, -1, 31, -31, 32, -32, 33, -40, 70, 200, -200)


def test_shift_moves_a_string_of_bits():
    bits = np.random.default_rng(0).random(96) < 0.5
    expected = []
    for by in SHIFTS:
        moved = np.zeros(96, bool)
        if abs(by) < 96:
            moved[max(by, 0) : 96 + min(by, 0)] = bits[max(-by, 0) : 96 - max(by, 0)]
        expected.append(moved)
    both = jax.jit(lambda bits, moved: ([shift(to_words(bits), by) for by in SHIFTS], jax.vmap(to_words)(moved)))
    found, words = both(bits, np.stack(expected))
    for by, ours, theirs in zip(SHIFTS, found, words, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=str(by))
    # A word holds 32 bits, the first one lowest.
    np.testing.assert_array_equal(
        np.unpackbits(np.asarray(words).view(np.uint8), bitorder="little"), np.ravel(expected)
    )


def test_one_bit():
    indices = np.array([0, 31, 32, 63], np.int32)
    both = jax.jit(
        lambda indices: (jax.vmap(lambda i: one_bit(i, 2))(indices), jax.vmap(to_words)(np.eye(64, dtype=bool)))
    )
    found, words = both(indices)
    np.testing.assert_array_equal(found, np.asarray(words)[indices])

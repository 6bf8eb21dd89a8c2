"""Pictures of levels: what stands where."""

import jax.numpy as jnp
import numpy as np
from PIL import Image

from minimax_lib.envs.maze import Level, ood
from minimax_lib.envs.maze.render import AGENT, FLOOR, GOAL, PAPER, TRAIL, WALL, draw_level, draw_levels, save

CELL = 16


def level_of(rows, agent, agent_dir, goal):
    return Level(
        wall_map=jnp.array([[cell == "#" for cell in row] for row in rows]),
        agent_pos=jnp.array(agent, jnp.int32),
        agent_dir=jnp.array(agent_dir, jnp.int32),
        goal_pos=jnp.array(goal, jnp.int32),
    )


def colour_at(picture, x, y):
    """The colour in the middle of a cell of the inner grid."""
    return tuple(int(c) for c in picture[round((y + 1.5) * CELL), round((x + 1.5) * CELL)])


def near(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True)) < 12


def test_every_cell_has_its_colour():
    picture = draw_level(level_of(["..#", "#.."], agent=[0, 0], agent_dir=1, goal=[2, 1]), cell=CELL)
    assert picture.shape == (4 * CELL, 5 * CELL, 3)
    assert picture.dtype == np.uint8
    expected = {(0, 0): AGENT, (1, 0): FLOOR, (2, 0): WALL, (0, 1): WALL, (1, 1): FLOOR, (2, 1): GOAL, (-1, 0): WALL}
    for (x, y), colour in expected.items():
        assert near(colour_at(picture, x, y), colour), (x, y)


def test_the_path_is_drawn_and_missing_positions_are_left_out():
    level = level_of(["...", "..."], agent=[0, 0], agent_dir=0, goal=[2, 1])
    path = np.array([[0, 0], [1, 0], [2, 0], [-1, -1]])
    picture = draw_level(level, path, CELL)
    assert near(colour_at(picture, 1, 0), TRAIL)
    assert near(colour_at(picture, 1, 1), FLOOR)
    np.testing.assert_array_equal(picture, draw_level(level, path[:3], CELL))


def test_levels_stand_side_by_side_without_their_padding():
    levels = ood.load(["MiniMaze", "MiniMaze", "MediumMaze"])
    picture = draw_levels(levels, captions=["a", "b", "a maze with a caption wider than itself"], columns=2, cell=CELL)
    tile = draw_level(ood.load("MiniMaze"), cell=CELL)
    middle = tile[tile.shape[0] // 2]
    rows = np.lib.stride_tricks.sliding_window_view(picture, middle.shape, axis=(1, 2))[:, :, 0]
    places = np.argwhere((rows == middle).all(axis=(2, 3))) - [tile.shape[0] // 2, 0]
    found = [(picture[y : y + tile.shape[0], x : x + tile.shape[1]] == tile).all() for y, x in places]
    assert sum(found) == 2
    assert tuple(picture[0, 0]) == PAPER


def test_a_picture_is_saved_with_the_folders_it_needs(tmp_path):
    picture = draw_levels(ood.load(["MiniMaze"]), cell=CELL)
    file = save(picture, tmp_path / "new" / "levels.png")
    np.testing.assert_array_equal(np.asarray(Image.open(file)), picture)

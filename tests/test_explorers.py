"""The programs of `benchmarks/explorers.py`, on mazes whose answer is known."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from explorers import PROGRAMS, Maze, along_the_wall, drawn, look, with_map

from minimax_lib.envs.maze.amaze import AMaze, EnvState
from minimax_lib.envs.maze.level import WALL, Level

EAST, WEST = 0, 2


def maze(text: str, direction: int, limit: int = 200) -> Maze:
    """The maze of a picture with its border: `#` walls, `A` the start, `G` the goal."""
    rows = np.array([list(row) for row in text.split()])
    (start,), (goal,) = np.argwhere(rows == "A"), np.argwhere(rows == "G")
    return Maze(rows == "#", (int(start[1]), int(start[0]), direction), (int(goal[1]), int(goal[0])), limit)


CORRIDOR = "####### #A...G# #######"
ROOM = "####### #A....# #.....# #..G..# #.....# #.....# #######"
SEALED = "####### #A..#G# #######"


@pytest.mark.parametrize(("direction", "turns"), [(EAST, 0), (WEST, 2)])
def test_a_corridor_takes_its_length_and_the_turns_before_it(direction, turns):
    assert with_map(maze(CORRIDOR, direction), 0) == (True, 4 + turns)
    assert along_the_wall(maze(CORRIDOR, EAST), 0) == (True, 4)


def test_a_goal_away_from_the_walls_is_found_with_a_map_alone():
    assert with_map(maze(ROOM, EAST), 0) == (True, 5)  # two steps, a turn, two steps
    for hand in (0, 1):
        assert along_the_wall(maze(ROOM, EAST), hand) == (False, 200)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_goal_that_cannot_be_reached_takes_all_the_time(name):
    assert PROGRAMS[name](maze(SEALED, EAST), 0) == (False, 200)


def test_time_is_limited():
    for play in PROGRAMS.values():
        assert play(maze(CORRIDOR, EAST, limit=3), 0) == (False, 3)
        assert play(maze(CORRIDOR, EAST, limit=4), 0) == (True, 4)


observed = jax.jit(AMaze().observe)


@pytest.mark.parametrize("pose", [(1, 1, 0), (6, 7, 1), (7, 6, 2), (13, 9, 3), (6, 6, 0)])
def test_the_program_sees_the_square_that_the_environment_shows(pose):
    """With walls in this square alone, the environment shows nothing else; with walls all around it, none of them."""
    x, y, direction = pose
    seen = np.zeros((15, 15), bool)
    look(seen, pose)
    square = seen[1:-1, 1:-1]  # without the border
    goal_y, goal_x = np.argwhere(~square)[0]

    def walls_shown(walls: np.ndarray) -> int:
        level = Level(walls, np.array([x - 1, y - 1]), np.int32(direction), np.array([goal_x, goal_y]))
        state = EnvState(level, level.agent_pos, level.agent_dir, np.int32(0))
        return int((np.array(observed(state)["image"])[..., 0] == WALL[0]).sum())

    own = np.zeros_like(square)
    own[y - 1, x - 1] = True
    assert walls_shown(square & ~own) == 24
    assert walls_shown(~square) == 25 - square.sum()  # the border, and what is beyond it


def test_mazes_are_drawn_with_their_border_and_their_time():
    (one,) = drawn("Labyrinth", 1)
    assert one.walls.shape == (15, 15)
    assert one.walls[[0, -1]].all()
    assert one.walls[:, [0, -1]].all()
    assert not one.walls[one.start[1], one.start[0]]
    assert not one.walls[one.goal[1], one.goal[0]]
    assert one.limit == 2 * 15 * 15
    assert with_map(one, 0)[0]

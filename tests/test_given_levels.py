"""Levels that people bring: as text, in files, by call, and what is said of those that are none."""

import dataclasses
import io
import re

import jax
import numpy as np
import pytest

from minimax_lib import load_run, make_env, make_held_out
from minimax_lib.commands.evaluate import main as evaluate
from minimax_lib.envs.against import Against
from minimax_lib.envs.lasertag.maps import load as load_map
from minimax_lib.envs.levels import fitted_level
from minimax_lib.envs.maze import from_text, to_text
from minimax_lib.portable.gymnasium_env import GymnasiumEnv

MAZE = ["#####", "#>.G#", "#.#.#", "#...#", "#####"]
ENV = make_env("AMaze", height=3, width=3, n_walls=1)
BARE, APART = [row[1:-1] for row in MAZE[1:-1]], [" ".join(row) for row in MAZE]


def archive(n: int = 2, **changes) -> bytes:
    """The bytes of an archive of `n` mazes like MAZE, with integers as NumPy makes them."""
    level = from_text(MAZE)
    arrays = {
        "wall_map": np.repeat(np.asarray(level.wall_map, int)[None], n, axis=0),
        "agent_pos": np.repeat(np.asarray(level.agent_pos, int)[None], n, axis=0),
        "agent_dir": np.zeros(n, int),
        "goal_pos": np.repeat(np.asarray(level.goal_pos, int)[None], n, axis=0),
    } | changes
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("rows", [MAZE, BARE, APART])
def test_a_maze_is_read_and_written(rows):
    level = from_text(rows)
    assert to_text(level) == MAZE
    np.testing.assert_array_equal(level.wall_map, [[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert (list(level.agent_pos), int(level.agent_dir), list(level.goal_pos)) == ([0, 0], 0, [2, 0])
    assert level.agent_pos.dtype == np.int32


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the rows have no cells"),
        ([""], "the rows have 0 cells"),
        (["#.", "#"], "the rows have 2, 1 cells: each needs the same"),
        (["x>G"], "unknown cell 'x': choose from"),
        ([".G"], "the text has 0 agents: it must have 1 (> v < ^)"),
        (["><G"], "the text has 2 agents"),
        ([">.."], "the text has 0 goals: it must have 1 (G)"),
    ],
)
def test_rows_that_draw_no_maze_are_refused(rows, message):
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        from_text(rows)
    assert "\n" not in str(error.value)


FAULTS = [
    ({"goal_pos": np.array([1, 1])}, "the goal at [x, y] = [1, 1] is in a wall"),
    ({"goal_pos": np.array([3, 0])}, "the goal at [x, y] = [3, 0] is outside of the 3 columns and 3 rows"),
    ({"agent_pos": np.array([0, -1])}, "the agent at [x, y] = [0, -1] is outside of"),
    ({"goal_pos": np.array([0, 0])}, "agent and goal are both at [x, y] = [0, 0]"),
    ({"agent_dir": np.int64(4)}, "agent_dir is 4: it must be 0 (right)"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_every_door_refuses_a_level_that_is_none(change, message):
    level = dataclasses.replace(from_text(MAZE), **change)
    row = GymnasiumEnv(ENV)
    doors = {
        "": lambda: fitted_level(ENV, level),
        "gymnasium": lambda: row.reset(options={"level": level}),
        "text": lambda: to_text(level),
    }
    for door in doors.values():
        with pytest.raises(ValueError, match=re.escape(message)):
            door()


def test_a_level_of_many_rows_says_which_is_none():
    good = from_text(MAZE)
    rows = jax.tree.map(lambda x: np.stack([x, x]), good)
    assert jax.tree.leaves(fitted_level(ENV, rows, 2))[0].shape == (2, 3, 3)
    rows.goal_pos[1] = 1
    with pytest.raises(ValueError, match=r"the level of row 1 is none: the goal at \[x, y\] = \[1, 1\] is in a wall"):
        fitted_level(ENV, rows, 2)


def test_whole_numbers_of_any_type_are_taken_where_they_are_the_same():
    level = from_text(MAZE)
    wide = dataclasses.replace(level, wall_map=level.wall_map.astype(int), goal_pos=level.goal_pos.astype(np.int64))
    for one, other in zip(jax.tree.leaves(fitted_level(ENV, wide)), jax.tree.leaves(level), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="the level is"):
        fitted_level(ENV, dataclasses.replace(level, wall_map=2 * level.wall_map.astype(int)))


@pytest.mark.parametrize("name", ["GridWorld", "LaserTag"])
def test_other_worlds_of_cells_say_that_a_level_is_none(name):
    env = make_env(name)
    level = jax.device_get(env.sample_level(jax.random.key(0)))
    assert env.fault_in(level) == ""
    broken = jax.tree.map(np.zeros_like, level)
    with pytest.raises(ValueError, match="must"):
        fitted_level(env, broken)


def test_an_episode_longer_than_any_of_the_family_is_refused():
    """An evaluation plays `env.max_steps` steps, so it would end in the middle."""
    env = make_env("GridWorld")
    level = jax.device_get(env.sample_level(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"its max_steps is 257: it must be at most 256, the limit of the family"):
        env.reset(jax.random.key(0), level.replace(max_steps=np.int32(257)))
    assert env.fault_in(level.replace(max_steps=np.int32(3))) == ""


def test_a_game_is_refused_whose_agents_stand_or_look_nowhere():
    env = make_env("LaserTag", layout="small2")
    level = jax.device_get(env.sample_level(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"facings must be from 0 to 3"):
        env.reset(jax.random.key(0), level.replace(facings=np.array([1, 4], np.int32)))
    is_open = jax.device_get(load_map("small2"))
    with pytest.raises(ValueError, match=r"its starts are open \(-1\), which needs random_starts=True"):
        env.reset(jax.random.key(0), is_open)
    assert dataclasses.replace(env, random_starts=True).fault_in(is_open) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mass": 0.0}, "its mass is 0: it must be finite, and above 0"),
        ({"damping": -0.1}, "its damping is -0.1: it must be finite, and at least 0"),
        ({"torque": np.inf}, "its torque is inf: it must be finite, and at least 0"),
    ],
)
def test_physics_that_cannot_be_are_refused(change, message):
    env = make_env("Pendulum")
    level = env.level_at(jax.random.key(0), np.ones(5, np.float32)).replace(damping=np.float32(0))
    assert env.fault_in(level) == ""
    broken = level.replace(**{name: np.float32(value) for name, value in change.items()})
    with pytest.raises(ValueError, match=re.escape(message)):
        env.reset(jax.random.key(0), broken)


def test_a_level_against_a_bot_names_one_and_a_seat_and_holds_a_game():
    env = Against(make_env("LaserTag", layout="small2"))
    level = jax.device_get(env.sample_level(jax.random.key(0)))
    assert env.fault_in(level) == ""
    assert env.fault_in(level.replace(bot=np.int32(1))) == "its bot is 1: it must be from 0 to 0"
    with pytest.raises(ValueError, match=r"its seat is -1: it must be from 0 to 1"):
        env.reset(jax.random.key(0), level.replace(seat=np.int32(-1)))
    broken = level.replace(game=level.game.replace(facings=np.array([1, 4], np.int32)))
    with pytest.raises(ValueError, match=r"facings must be from 0 to 3"):
        fitted_level(env, broken)


def test_files_and_folders_are_held_out_tasks(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(MAZE) + "\n\n\n>G.\n...\n")
    (tmp_path / "b.npz").write_bytes(archive())
    (tmp_path / "notes.md").write_text("no maze")
    suite = make_held_out(ENV, [f"{tmp_path}/"])
    assert suite.names == tuple(f"{tmp_path}/{name}" for name in ("a.txt:0", "a.txt:1", "b.npz:0", "b.npz:1"))
    levels = jax.device_get(suite.sample(jax.random.key(0), 1))
    np.testing.assert_array_equal(levels.maze.wall_map[1, 0], [[0, 0, 0], [0, 0, 0], [1, 1, 1]])  # filled up
    np.testing.assert_array_equal(levels.maze.wall_map[2, 0], from_text(MAZE).wall_map)
    assert make_held_out(ENV, [f"{tmp_path}/a.txt:1", "Labyrinth"]).names[1] == "Labyrinth"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "have no cells"),
        ("a.txt", b"\xff\xfe", "it is not UTF-8 text"),
        ("a.txt", b">.\n", "0 goals"),
        ("a.npz", b"PK\x03\x04 and no more", "a.npz"),
        ("a.npz", archive(wall_map=np.zeros((2, 3))), "wall_map is [2, 3] and agent_pos int64[2, 2]: they must be"),
        ("a.npz", archive(wall_map=np.full((2, 3, 3), 2)), "wall_map must be 0 (free) and 1 (wall)"),
        ("a.npz", archive(agent_pos=np.array([None, None])), "a.npz"),
        ("a.npz", archive(goal_pos=np.array([[1, 1], [2, 2]])), "maze 0: the goal at [x, y] = [1, 1] is in a wall"),
        ("a.npz", archive(0), "they must be [N, h, w]"),
    ],
)
def test_files_that_hold_no_mazes_are_refused_in_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        make_held_out(ENV, [f"{tmp_path}/{name}"])
    assert "\n" not in str(error.value)


def test_levels_of_an_environment_without_files_are_refused(capsys):
    assert evaluate(["--run", "walker/basic", "--compilation-cache", "none", "--levels", "a.txt"]) == 2
    said = "error: --levels is 'a.txt', and BipedalWalker reads no files of levels: leave it out\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--levels", "none.txt"], "there is no file 'none.txt' with mazes"),
        (["--levels", ".", "--tasks", "Labyrinth"], "--tasks is 'Labyrinth', which means nothing with --levels"),
        (["--levels", "empty"], "'empty' holds no mazes: files must end with .txt or .npz"),
        (["--tasks", "none.txt"], "there is no file 'none.txt' with mazes"),
    ],
)
def test_the_command_refuses_what_it_cannot_play(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert evaluate(["--run", "maze/dr", "--compilation-cache", "none", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.deep
def test_an_agent_is_evaluated_on_files_and_plays_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join(MAZE))
    assert evaluate(["--run", "maze/dr", "--levels", "a.txt", "--n-episodes", "2"]) == 0
    assert "a.txt" in capsys.readouterr().out
    assert [path.name for path in tmp_path.rglob("*.csv")] == ["update3660-levels.csv"]
    assert load_run("maze/dr").play_tasks(["a.txt"])["a.txt"].solved

"""`minimax-play`: what keys do, what the screen shows, and when it refuses."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import save_tiny_run

from minimax_lib.commands.keyboard import Keys
from minimax_lib.commands.play import Walk, Watch, main, screen, show, walked, watched
from minimax_lib.config.play import parse
from minimax_lib.envs.grid import GridWorld, from_text
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.maze.text import scene
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.terminal import painted, window

ROOT = Path(__file__).parent.parent
SMALL = ["--env.height", "5", "--env.width", "5", "--env.n-walls", "4", "--env.max-steps", "12"]


@pytest.fixture(scope="module")
def corridor() -> Walk:
    """A walk in a held-out task."""
    return walked(parse(["--task", "MiniMaze"]))()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "dr"
    save_tiny_run(folder)
    return folder


def plain(game, columns=80, lines=24) -> list[str]:
    """The lines of the screen, without orders to the terminal."""
    text = screen(game, columns, lines, colours=False)
    for order in ("\x1b[H", "\x1b[K", "\x1b[J"):
        text = text.replace(order, "")
    return text.split("\r\n")


def test_a_scene_shows_what_stands_where():
    env = AMaze(height=2, width=3, n_walls=0, view_size=3)
    level = jax.tree.map(np.array, env.sample_level(jax.random.key(0)))
    level.wall_map[:] = [[False, True, False], [False, False, False]]
    level.agent_pos[:], level.goal_pos[:] = [0, 1], [2, 0]
    state, ts = env.reset(jax.random.key(0), level.replace(agent_dir=np.int32(0)))
    found = scene(state, np.asarray(ts.obs["image"]))
    assert painted(found.whole, colours=False) == ["##########", "## .##GG##", "##>  . .##", "##########"]
    assert painted(found.view, colours=False) == [
        "GG .##",
        "## .##",
        " .^ ##",
    ]
    assert found.place.tolist() == [2, 1]
    assert "\x1b[38;5;196;48;5;" in painted(found.whole, colours=True)[2]  # the agent is red


def test_a_large_maze_is_cut_to_the_screen_round_the_agent():
    rows = [[(y, x) for x in range(30)] for y in range(20)]
    cut = window(rows, np.array([10, 15]), 5, 7)
    assert (len(cut), len(cut[0]), cut[2][3]) == (5, 7, (10, 15))
    assert window(rows, np.array([19, 0]), 5, 7)[-1][0] == (19, 0)
    assert window(rows, np.array([0, 0]), 50, 70) == rows


def test_keys_walk_turn_and_restart(corridor):
    corridor.press("r")
    before = corridor.state
    corridor.press("left")
    assert int(corridor.state.maze.agent_dir) == (int(before.maze.agent_dir) - 1) % 4
    corridor.press("right")
    assert int(corridor.state.maze.agent_dir) == int(before.maze.agent_dir)
    assert corridor.steps == 2
    corridor.press("x")  # means nothing
    assert corridor.steps == 2
    corridor.press("r")
    assert corridor.steps == 0
    assert "step 0 of" in corridor.status


def test_letters_do_for_arrows_and_q_leaves(corridor):
    corridor.press("r")
    typed, shown = iter(["a", "d", "w", "m", "q", "w"]), []
    show(corridor, lambda wait: next(typed), shown.append)
    assert len(shown) == 5
    assert corridor.steps == 3
    assert next(typed) == "w"  # nobody reads on after q
    assert not corridor.show_map
    assert "\x1b[48" not in plain(corridor)[0]
    corridor.press("m")


def test_the_goal_ends_the_walk():
    def level(number):
        maze = env.sample_level(jax.random.key(number))
        walls = np.zeros((2, 2), bool)
        return f"level {number}", maze.replace(
            wall_map=walls, agent_pos=np.array([0, 0]), agent_dir=np.int32(0), goal_pos=np.array([1, number])
        )

    env = AMaze(height=2, width=2, n_walls=0, view_size=3, max_steps=10)
    walk = Walk(env, level, seed=0)
    walk.press("up")
    assert walk.over
    assert walk.status == "step 1 of 10: solved, return 0.91. n: next level, r: once more"
    walk.press("up")
    assert walk.steps == 1  # nothing goes on after the end
    walk.press("n")
    assert (walk.title, walk.steps, walk.over) == ("level 1", 0, False)


def test_the_screen_shows_map_view_and_keys_and_fits(corridor):
    corridor.press("r")
    lines = plain(corridor)
    assert lines[0] == "MiniMaze"
    assert any("GG" in line for line in lines)
    assert "q: leave" in lines[-1]
    small = plain(corridor, columns=30, lines=10)
    assert len(small) <= 10
    assert max(map(len, small)) <= 30


def test_the_screen_tells_the_task_of_a_level_and_the_keys_for_objects():
    level = from_text(["> Ab"], "pickup", "Ab", max_steps=8)
    walk = Walk(GridWorld(view_size=3), lambda number: ("level", level), seed=0)
    lines = plain(walk)
    assert lines[0] == "level: pick up the blue ball within 8 steps"
    assert lines[-2].startswith("p: pick up")
    assert "q: leave" in lines[-1]
    assert len(plain(walk, columns=30, lines=10)) <= 10
    assert walk.status == "step 0 of 8"  # not the limit of the environment
    walk.press("p")
    assert walk.status.startswith("step 1 of 8: solved")


def test_an_agent_is_watched_step_by_step(run):
    watch = watched(parse(["--run", str(run), "--speed", "10"]))()
    assert isinstance(watch, Watch)
    n = watch.episode.length
    assert watch.wait == 0.1
    watch.tick()
    assert watch.time == 1
    watch.press(" ")
    assert watch.wait is None
    assert "paused" in watch.status
    watch.press("left")
    watch.press("left")
    assert watch.time == 0  # not before the beginning
    for _ in range(n + 2):
        watch.press("right")
    assert watch.time == n
    assert "solved" in watch.status
    assert watch.wait is None
    watch.press("+")
    assert watch.speed == 15
    assert f"{run}, update 4: level 0 of seed 0" == watch.title
    watch.press("n")
    assert (watch.time, watch.number) == (0, 1)
    assert plain(watch)


def test_tasks_come_one_after_another():
    walk = walked(parse(["--task", "MiniMaze", "SixteenRooms", *SMALL]))()
    names = make_held_out(walk.env.training, ("MiniMaze", "SixteenRooms")).names
    assert walk.name == names[0]
    walk.press("n")
    assert walk.name == names[1]
    walk.press("n")
    assert walk.name == names[0]


def test_keys_of_several_characters_are_one_key():
    reading, writing = os.pipe()
    keys = Keys(reading)
    os.write(writing, b"\x1b[A\x1bOCw\x1b[5~")
    assert [keys.read(None) for _ in range(4)] == ["up", "right", "w", ""]
    assert keys.read(0.0) is None
    os.write(writing, b"\x1b")
    assert keys.read(None) == "\x1b"
    os.close(writing)
    assert keys.read(None) == "q"  # the terminal is gone
    os.close(reading)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "standard input is not a terminal, which minimax-play needs: minimax-draw writes pictures"),
        (["--task", "Labyrnth"], "unknown held-out task 'Labyrnth'"),
        (["--run", "/nowhere"], "run '/nowhere' does not exist"),
        (["--speed", "3"], "--speed is for --run only: add that, or leave it out"),
        (["--run", "x", "--env", "AMaze"], "--env is that of the run with --run: leave one of them out"),
        (["--speed", "0", "--run", "x"], "--speed is 0.0: it must be positive"),
        (["--env", "Pendulum"], "Pendulum cannot be shown in a terminal: minimax-draw writes pictures and films"),
    ],
)
def test_bad_requests_are_one_line_and_status_2(words, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if words:
        monkeypatch.setattr("minimax_lib.commands.play.check_terminal", lambda: None)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


@pytest.mark.deep
def test_the_command_works_in_a_terminal_and_leaves_it_as_it_was(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "minimax_lib.commands.play", *SMALL, "--compilation-cache", str(tmp_path)]
    env = os.environ | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen, until = b"", time.monotonic() + 100
        while b"q: leave" not in seen and time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536)
        assert seen.count(b"\x1b[?1049h") == 1, seen
        os.write(ours, b"q")
        while b"\x1b[?1049l" not in seen and time.monotonic() < until:
            if select.select([ours], [], [], 1)[0]:
                seen += os.read(ours, 65536)
        assert process.wait(30) == 0
    os.close(ours)
    assert b"\x1b[?25h\x1b[?1049l" in seen  # the cursor, and what was on the screen before

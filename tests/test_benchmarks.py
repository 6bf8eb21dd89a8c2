"""Programs of `benchmarks` at their smallest size: they run, and their tables have numbers."""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from tiny_run import TINY, save_tiny_run

from minimax_lib.playing.episodes import Played

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))


def test_resets_are_of_environments():
    import resets as script

    assert [how for _, how in script.batches([2])] == ["all rows", "groups of 2"] * 2


@pytest.mark.deep
def test_levels_that_all_runs_share_are_played_by_each_seed_as_by_a_run_that_was_trained_on_them(tmp_path, monkeypatch):
    """The second run has the same parameters, and takes the way of `minimax-evaluate`."""
    import recipes as script

    monkeypatch.setattr(script, "COMMON_LEVELS", {"n_walls": 3})
    found = []
    for n_walls in (4, 3):
        folder = tmp_path / str(n_walls)
        save_tiny_run(folder, seed=3, n_seeds=2, env=TINY["env"] | {"n_walls": n_walls})
        (folder / "metrics.csv").write_text("update,seed,env_steps,seconds\n4,3,64,1\n4,4,64,1\n")
        rows = script.levels_of(script.find_run(folder, "latest"), "dr", argparse.Namespace(n_levels=20))
        found.append([(row["seed"], row["task"], row["solved_rate"]) for row in rows])
    assert found[0] == found[1]
    assert {seed for seed, *_ in found[0]} == {3, 4}
    assert len({rate for *_, rate in found[0]}) > 1


@pytest.mark.deep
def test_resets_play_the_same_episodes_in_all_ways(monkeypatch):
    import resets as script

    monkeypatch.setattr(script, "SIDE", 16)
    args = argparse.Namespace(rows=4, steps=60, sizes=[2], turns=1)
    rows = script.measured(args)
    assert [row["reset"] for row in rows] == ["all rows", "groups of 2"] * 2
    assert all(row["episodes"] > 0 for row in rows)
    assert "# Resets of large worlds" in script.page(rows, args, script.environment_facts())


def test_who_lives_to_the_end_need_not_have_done_its_task():
    """Three of four lives end before the world does, and two of the four complete their tasks."""
    place = Path(__file__).parents[1] / "benchmarks" / "nmmo.py"
    spec = importlib.util.spec_from_file_location("nmmo_benchmark", place)  # nmmo is also the name of the engine
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    ones = np.ones((2, 2), np.float32)
    facts = {"died_of_hunger": np.array([[1, 0], [0, 0]]), "killed_by_npc": np.array([[0, 1], [1, 0]])}
    facts |= dict.fromkeys(("meals", "drinks", "harvests"), ones)
    lives = Played(ones, ones.astype(int), np.array([[1, 0], [1, 0]]), facts)
    found = script.measures(lives)
    assert (found["to_the_end"], found["died_of_hunger"], found["killed_by_npc"]) == (0.25, 0.25, 0.5)


def test_the_worst_levels_have_no_return(capsys):
    import recipes as script

    with pytest.raises(SystemExit):
        script.main(["--robust", "--measure", "mean_return"])
    assert "--robust measures the solved_rate alone" in capsys.readouterr().err


def test_the_walker_of_gymnasium_walks():
    pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    import walker as script

    assert script.box2d_turn(3) > 0


@pytest.mark.deep
def test_the_walker_is_timed_beside_that_of_gymnasium(monkeypatch):
    pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    import walker as script

    few = script.box2d_turn
    monkeypatch.setattr(script, "box2d_turn", lambda n_steps: few(20))
    args = argparse.Namespace(rows=2, steps=2, rounds=[1], turns=1)
    theirs, ours = script.speed(args)
    assert theirs["steps_per_cpu_second"] > 0
    assert ours["world"] == "ours, 1 rounds, 2 walkers"

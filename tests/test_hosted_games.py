"""The real games of `benchmarks`, at the smallest size that trains. Skipped where a game is not installed."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

pytest.importorskip("gymnasium")


def test_procgen_plays_the_levels_that_it_is_sent_and_a_run_goes_on(tmp_path, monkeypatch):
    procgen = pytest.importorskip("procgen", exc_type=ImportError)
    import procgen_host as script

    envs = script.Levels("bigfish", 2)
    envs.reset(options={"levels": [3, 5]})
    obs, _ = envs.reset(options={"levels": [7, 7], "reset_mask": np.array([False, True])})
    for row, level in zip(obs, (3, 7), strict=True):
        alone = procgen.ProcgenGym3Env(1, "bigfish", num_levels=1, start_level=level, distribution_mode="easy")
        np.testing.assert_array_equal(row, alone.observe()[1]["rgb"][0])
    envs.close()

    small = script.ResNet(channels=(4,))
    monkeypatch.setattr(script, "ResNet", lambda: small)
    size = {"n_envs": 2, "n_steps": 4, "n_epochs": 1, "n_minibatches": 2, "eval_every": 1}
    short = dataclasses.replace(script.SMALL, **size, total_steps=8)
    first = script.main("bigfish", "plr", short, 0, tmp_path, eval_rows=1)
    both = script.main("bigfish", "plr", dataclasses.replace(short, total_steps=16), 0, tmp_path, eval_rows=1)
    assert [row["env_steps"] for row in both] == [0, 8, 16]
    assert both[:2] == first


def test_nethack_trains_with_the_progress_of_an_evaluation(tmp_path, monkeypatch):
    pytest.importorskip("nle")
    import nethack_host as script

    monkeypatch.setattr(script, "N_SEEDS", 4)
    monkeypatch.setitem(script.CORES, "sfl", script.SFL(4, "topk", k=2))
    size = {"n_envs": 2, "n_steps": 8, "n_epochs": 1, "n_minibatches": 2, "eval_every": 1, "total_steps": 16}
    settings = dataclasses.replace(script.SMALL, **size)
    rows = script.main("sfl", settings, 0, tmp_path, max_steps=6, eval_episodes=2)
    assert [row["env_steps"] for row in rows] == [0, 16]
    # 4 seeds and 4 others, 2 episodes each, all of which last their 6 steps.
    assert [row["evaluation/steps"] for row in rows] == [96, 96]
    with pytest.raises(SystemExit, match="--eval-episodes is 1: sfl needs 2 or more"):
        script.main("sfl", settings, 0, tmp_path, eval_episodes=1)

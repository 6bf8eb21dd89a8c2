"""`evaluate.py` and the report at the end of training: what they refuse, print and write."""

import csv
import dataclasses
import functools
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import distrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from saved_tables import SAID

from minimax_lib.commands.evaluate import check_comparable, main, side_by_side, unlike
from minimax_lib.config import Config, from_dict, save_yaml
from minimax_lib.config.evaluate import parse
from minimax_lib.envs.base import Environment, TimeStep
from minimax_lib.envs.maze.render import draw_levels
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.evaluation.comparison import Improvement, MethodRuns, rows, tables
from minimax_lib.evaluation.held_out import EvalRunner, Evaluation, evaluation_keys
from minimax_lib.evaluation.report import compare, draw_episodes, final_report, record_episodes
from minimax_lib.evaluation.robustness import RobustResult
from minimax_lib.evaluation.statistics import SHARES
from minimax_lib.evaluation.tables import (
    Scores,
    comparison_table,
    level_scores,
    levels_note,
    pooled,
    score_table,
    task_table,
)
from minimax_lib.runners.build import make_agent, make_runner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.runners.training import RunnerState
from minimax_lib.store.checkpoint import Checkpoints
from minimax_lib.store.evaluations import as_csv, csv_text, existing, keep_evaluation, write_new
from minimax_lib.store.files import UnreadLines, saved_updates
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.saved import Run, env_steps_of, restore

ROOT = Path(__file__).parent.parent
N_SEEDS, TASKS = 2, ("MiniMaze", "TrainingDistribution")
TREE = {
    "env": {"name": "AMaze", "height": 3, "width": 3, "n_walls": 2, "max_steps": 12},
    "model": {"name": "ff", "dense_width": 8},
    "eval": {"tasks": list(TASKS)},
    "n_seeds": N_SEEDS,
    "compilation_cache": os.environ["JAX_COMPILATION_CACHE_DIR"],
}


def config(**settings) -> Config:
    return from_dict(TREE | settings)


def state_after(config: Config, n_updates: int) -> RunnerState:
    """A state of the run's shape whose parameters are anything: NumPy's arrays, and keys."""
    rng = np.random.default_rng(n_updates)

    def fill(leaf):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(np.zeros((*leaf.shape, 2), np.uint32))
        return rng.normal(scale=0.5, size=leaf.shape).astype(leaf.dtype)

    return jax.tree.map(fill, state_shape(config))


@functools.cache
def state_shape(config: Config) -> RunnerState:
    return SeedRunner(make_runner(config), config.n_seeds).shape


def make_run(folder: Path, config: Config, updates=(10, 20)) -> Path:
    """A run's folder, without the training."""
    folder.mkdir()
    save_yaml(config, folder / "config.yaml")
    with Checkpoints(folder / "checkpoints") as checkpoints:
        for update in updates:
            checkpoints.save(update, jax.tree.map(jnp.asarray, state_after(config, update)))
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "first", config())


@pytest.fixture(scope="module")
def other(run):
    """A run of two more seeds."""
    return make_run(run.parent / "second", config(seed=5))


def evaluate(*words) -> int:
    return main([str(word) for word in words])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def copied(run, other, tmp_path):
    """The two runs without the evaluations that other tests have made."""
    ours = [tmp_path / "runs" / folder.name for folder in (run, other)]
    for mine, folder in zip(ours, (run, other), strict=True):
        shutil.copytree(folder, mine, ignore=shutil.ignore_patterns("evaluations"))
    return ours


@pytest.fixture(params=["made up", pytest.param("played", marks=pytest.mark.deep)])
def results(request, monkeypatch):
    """How evaluations come to their results: they are made up, or the agents of checkpoints play episodes."""

    def restored(run, console):
        return run.update or saved_updates(run.folder.checkpoints)[-1], {}

    def measure_of(settings, run, runner, console):
        def measure(run, params) -> Scores:
            seed = [settings.seed, settings.greedy, settings.episodes, *run.seeds, int(1e6 * run.config.ppo.lr)]
            rates = np.random.default_rng(seed).integers(0, 26, (len(run.seeds), len(runner.names))) / 25
            return Scores(runner.names, run.seeds, {"solved_rate": rates, "return": rates / 2, "length": 12 - rates})

        return measure

    if request.param == "made up":
        monkeypatch.setattr("minimax_lib.commands.evaluate.restore", restored)
        monkeypatch.setattr("minimax_lib.commands.evaluate.measure_of", measure_of)


@functools.cache
def lone_evaluation() -> Callable:
    """A run's evaluation of a single seed, 25 episodes a task: (its key [1], parameters) -> results."""
    settings = config()
    runner = Evaluation(tasks=TASKS, n_episodes=25).build(settings.env, make_agent(settings).agent)
    return jax.jit(lambda keys, params: runner.evaluate(keys[0], params))


def expected_scores(update: int) -> dict[tuple[int, str], tuple[float, float]]:
    """(seed, task) -> (solved rate, return), by evaluating each seed on its own."""
    params = state_after(config(), update).students.params
    found = {}
    for i in range(N_SEEDS):
        one = jax.device_get(lone_evaluation()(evaluation_keys([i]), jax.tree.map(lambda x, i=i: x[i, 0], params)))
        for m, task in enumerate(TASKS):
            found[i, task] = (float(one.solved[m].mean()), float(one.returns[m].mean()))
    return found


def test_the_file_holds_the_scores_of_every_seed_and_task(run, capsys):
    assert evaluate("--run", run, "--tasks", *TASKS, "--n-episodes", 25) == 0
    printed = capsys.readouterr().out
    rows = read(run / "evaluations" / "update20-tasks.csv")
    assert [(int(row["seed"]), row["task"]) for row in rows] == [(s, t) for s in range(N_SEEDS) for t in TASKS]
    expected = expected_scores(20)
    for row in rows:
        solved, returns = expected[int(row["seed"]), row["task"]]
        assert float(row["solved_rate"]) == pytest.approx(solved)
        assert float(row["return"]) == pytest.approx(returns, abs=1e-5)
        assert (row["update"], row["n_episodes"], row["actions"]) == ("20", "25", "sampled")
    mean = np.mean([solved for solved, _ in expected.values()])
    assert f"{100 * mean:.1f}%" in printed
    assert all(text in printed for text in (*TASKS, "all tasks", "IQM", "each seed", "2 seeds", "No interval"))
    assert "95%" not in printed


def test_nothing_is_ever_overwritten(copied, results):
    run, _ = copied
    words = ("--run", run, "--tasks", "MiniMaze", "--checkpoint", 10, "--n-episodes", 25)
    for _ in range(2):  # the same results are the same file
        assert evaluate(*words) == 0
    (first,) = (run / "evaluations").glob("update10-*")
    assert first.name == "update10-MiniMaze.csv"
    text = first.read_text()
    assert evaluate(*words, "--seed", 1) == 0
    assert first.read_text() == text
    (row, _) = read(run / "evaluations" / "update10-MiniMaze-2.csv")
    assert row["evaluation_seed"] == "1"
    assert evaluate(*words, "--greedy") == 0
    (row, _) = read(run / "evaluations" / "update10-MiniMaze-greedy.csv")
    assert row["actions"] == "greedy"


def test_a_number_is_found_for_every_new_result(tmp_path):
    names = [write_new(tmp_path, "x", text).name for text in ("a", "b", "a", "c", "b")]
    assert names == ["x.csv", "x-2.csv", "x.csv", "x-3.csv", "x-2.csv"]
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["b", "c", "a"]


def test_runs_are_pooled_as_seeds(copied, results, capsys):
    run, other = copied
    assert evaluate("--run", run, other, "--tasks", *TASKS, "--n-episodes", 25) == 0
    printed = capsys.readouterr().out
    assert "4 seeds" in printed
    assert [row["seed"] for row in read(other / "evaluations" / "update20-tasks.csv")] == ["5", "5", "6", "6"]


@pytest.mark.deep
def test_pooled_checkpoints_of_different_updates_are_told(run, tmp_path, monkeypatch, capsys):
    """One of the runs may have stopped early."""
    early = make_run(tmp_path / "early", config(seed=5), updates=(10,))
    scores = Scores(TASKS, (0,), {"solved_rate": np.ones((1, 2)), "return": np.ones((1, 2))})
    kept = tmp_path / "kept.csv"
    monkeypatch.setattr("minimax_lib.commands.evaluate.measure_of", lambda *words: None)
    monkeypatch.setattr(
        "minimax_lib.commands.evaluate.evaluated",
        lambda settings, run, *more: (saved_updates(run.folder.checkpoints)[-1], scores, kept),
    )
    assert evaluate("--run", run, early, "--tasks", *TASKS) == 0
    assert "note: the checkpoints are of different updates, 10 to 20" in capsys.readouterr().out
    assert evaluate("--run", run, "--tasks", *TASKS) == 0
    assert "note:" not in capsys.readouterr().out


def test_the_robust_protocol(run, capsys):
    assert evaluate("--run", run, "--robust", "--n-levels", 200, "--n-episodes", 4) == 0
    rows = read(run / "evaluations" / "update20-robust.csv")
    shares = [("all levels", "200"), ("worst 10%", "20"), ("worst 5%", "10"), ("worst 2%", "4"), ("worst 1%", "2")]
    assert [(row["task"], row["n_worst"]) for row in rows] == shares * N_SEEDS  # 0.1% would be less than one level
    rates = np.array([float(row["solved_rate"]) for row in rows]).reshape(N_SEEDS, -1)
    assert (rates[:, 0] > rates[:, 1]).all()
    assert rows[0]["n_levels"] == "200"
    printed = " ".join(capsys.readouterr().out.split())
    assert "200 random levels, 4 sampled episodes on each" in printed
    assert "worst 2% to worst 1%: fewer than 10 levels, so chance decides much of the figure." in printed
    assert "less than one level: worst 0.1%, worst 0.01% (--n-levels 100000 is enough)" in printed


def test_small_shares_of_the_levels_say_how_many_levels_they_are():
    rates = np.linspace(0, 1, 50)[None]
    found = level_scores(SHARES, [7], RobustResult(ranking=rates, reported=rates))
    assert found.tasks == ("all levels", "worst 10%", "worst 5%", "worst 2%")
    assert found.n_worst == (50, 5, 2, 1)
    np.testing.assert_allclose(found["solved_rate"][0], [rates[0, :n].mean() for n in found.n_worst])
    cells = [
        line.replace("│", " ").split() for line in text_of(score_table("title", found)).splitlines() if "│" in line
    ]
    assert cells[1] == ["worst", "10%", "5", "4.1%"]
    assert levels_note(SHARES, 50) == (
        "worst 10% to worst 2%: fewer than 10 levels, so chance decides much of the figure. Not shown, since it would "
        "be less than one level: worst 1%, worst 0.1%, worst 0.01% (--n-levels 100000 is enough)."
    )
    assert levels_note(SHARES, 1000) == (
        "worst 0.1%: fewer than 10 levels, so chance decides much of the figure. Not shown, since it would be less "
        "than one level: worst 0.01% (--n-levels 100000 is enough)."
    )
    assert levels_note(SHARES, 10_000) == "worst 0.01%: fewer than 10 levels, so chance decides much of the figure."
    assert levels_note(SHARES, 100_000) == ""


# ---------------------------------------------------------------------------------------------------- several methods


def test_methods_are_put_side_by_side_and_evaluations_are_used_again(copied, results, tmp_path, capsys):
    run, other = copied
    fast = make_run(tmp_path / "fast", config(ppo={"lr": 0.5}), updates=(30,))
    out = tmp_path / "tables" / "both.csv"
    words = ("--compare", run, fast, other, "--tasks", *TASKS, "--n-episodes", 25, "--out", out)
    assert evaluate("--run", run, "--tasks", *TASKS, "--n-episodes", 25) == 0
    capsys.readouterr()
    assert evaluate(*words) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 runs have no such evaluation yet" in printed
    assert "note: the checkpoints are of different updates, 20 to 30" in printed
    table = read(out)
    labels = ["dr (lr=0.0001)", "dr (lr=0.5)"]
    assert [(row["task"], row["method"]) for row in table] == [(t, m) for t in (*TASKS, "all tasks") for m in labels]
    assert [row["n_seeds"] for row in table] == ["4", "2"] * 3
    assert table[0]["runs"] == f"{run} {other}"
    assert (table[0]["n_episodes"], table[0]["actions"], table[0]["updates"]) == ("25", "sampled", "20")
    # What is in the folders of the runs is what was pooled.
    rates = {
        label: np.array(
            [
                [float(row["solved_rate"]) for row in read(folder / "evaluations" / f"update{n}-tasks.csv")]
                for folder in folders
            ]
        ).reshape(-1, len(TASKS))
        for label, folders, n in ((labels[0], (run, other), 20), (labels[1], (fast,), 30))
    }
    for row in table:
        own = rates[row["method"]]
        own = own if row["task"] == "all tasks" else own[:, TASKS.index(row["task"])]
        assert float(row["mean"]) == pytest.approx(own.mean())
        assert (row["low"], row["high"]) == ("", "")  # too few seeds
    one, first = rates[labels[1]], rates[labels[0]]
    pairs = [np.sign(a - b) / 2 + 0.5 for a in one for b in first]
    assert float(table[-1]["probability"]) == pytest.approx(np.mean(pairs))
    assert table[-1]["better_than"] == labels[0]
    assert table[-2]["probability"] == ""

    def untouched(*_):
        raise AssertionError("nothing must be evaluated again")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("minimax_lib.commands.evaluate.restore", untouched)
        assert evaluate(*words) == 0
    assert [path.name for path in out.parent.iterdir()] == ["both.csv"]  # the same numbers are the same file
    assert "no such evaluation" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("column", "cell"),
    [("n_episodes", "24"), ("actions", "greedy"), ("update", "19"), ("evaluation_seed", "1"), ("student", "1"),
     ("protocol", "dcd"), ("seed", "7"), ("task", "Maze"), ("solved_rate", "nan"), ("return", "x"), ("n_worst", "3")],
)  # fmt: skip
def test_an_evaluation_that_was_made_otherwise_is_not_used(column, cell, tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints" / "20").mkdir(parents=True)
    (folder / "evaluations").mkdir()
    settings = parse(["--compare", str(folder), "--tasks", "A", "B", "--n-episodes", "25"])
    run = Run(RunFolder(folder), config(), None)
    values = np.array([[0.5, 0.25], [1.0, 0.0]])
    text = csv_text(settings, 20, scores(values))
    path = folder / "evaluations" / "x.csv"
    path.write_text(text)
    update, found = existing(settings, run, ("B", "A"))
    assert update == 20
    np.testing.assert_array_equal(found["solved_rate"], values[:, ::-1])
    np.testing.assert_array_equal(found["return"], values[:, ::-1] / 2)
    table = read(path)
    table[-1][column] = cell
    path.write_text(as_csv([dict.fromkeys(table[-1], "") | row for row in table]))
    assert existing(settings, run, ("B", "A")) is None


def test_an_evaluation_on_files_of_levels_is_not_used_again(tmp_path):
    """The file may have been edited."""
    folder, maze = tmp_path / "run", tmp_path / "my_maze.txt"
    (folder / "checkpoints" / "20").mkdir(parents=True)
    (folder / "evaluations").mkdir()
    maze.write_text("###\n")
    settings = parse(["--compare", str(folder), "--levels", str(maze), "--n-episodes", "25"])
    run = Run(RunFolder(folder), config(), None)
    keep_evaluation(settings, run, 20, dataclasses.replace(scores(np.ones((2, 1))), tasks=(maze.name,)))
    assert existing(settings, run, (maze.name,)) is None


@pytest.mark.filterwarnings("error")
def test_an_evaluation_that_cannot_be_read_is_told(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints" / "20").mkdir(parents=True)
    (folder / "evaluations").mkdir()
    settings = parse(["--compare", str(folder), "--tasks", "A", "B", "--n-episodes", "25"])
    run, path = Run(RunFolder(folder), config(), None), folder / "evaluations" / "x.csv"
    text = csv_text(settings, 20, scores(np.zeros((2, 2)))).encode()
    for how in SAID:
        path.write_bytes(SAID[how][0](text))
        with pytest.warns(UnreadLines, match="x.csv"):
            existing(settings, run, ("B", "A"))


def method(label: str, rates, improvement=None) -> MethodRuns:
    return MethodRuns(label, (f"runs/{label}",), (20,), scores(rates, range(len(rates))), improvement)


def test_methods_by_hand():
    one = method("plr", [[1.0, 0.5], [0.5, 0.0]])
    five = method("a rather long name of a method", [[0.5, 0.5]] * 5, Improvement(0.25, (0.125, 0.5)))
    several, together = tables("title", [one, five], width=80)
    text = text_of(several, width=80)
    cells = [line.replace("│", " ").split() for line in text.splitlines() if "│" in line]
    assert cells[:6] == [
        ["A", "75.0%", "75.0%", "50.0%", "50.0%"],
        ["100", "50", "50.0%", "to", "50.0%"],
        ["B", "25.0%", "25.0%", "50.0%", "50.0%"],
        ["50", "0", "50.0%", "to", "50.0%"],
        ["all", "tasks", "50.0%", "50.0%", "50.0%", "50.0%"],
        ["75", "25", "50.0%", "to", "50.0%"],
    ]
    caption = " ".join(text.split())
    assert "fewer than 5 seeds: the value of each in %" in caption
    assert "bootstrap over whole seeds of the IQM" in caption
    assert {"0.25", "0.12 to 0.50"} <= {
        part.strip() for part in text_of(together, width=80).replace("\n", "│").split("│")
    }
    lone = text_of(next(tables("title", [method("dr", [[1.0, 0.5]])], width=80)))
    assert ["A", "100.0%"] in [line.replace("│", " ").split() for line in lone.splitlines()]


def test_a_comparison_says_how_many_environment_steps_each_method_has_taken(tmp_path):
    """At equal updates, a method that scores levels has taken more of them."""
    folder = RunFolder(tmp_path)
    rows_of_run = [{"update": n, "seed": s, "env_steps": 1_000_000 * n + s} for n in (10, 20) for s in (0, 2)]
    assert math.isnan(env_steps_of(Run(folder, config(), None), 20))
    folder.metrics.write_text(as_csv(rows_of_run))
    assert env_steps_of(Run(folder, config(), None), 20) == 20_000_001
    assert math.isnan(env_steps_of(Run(folder, config(), None), 30))
    several = [
        dataclasses.replace(method(name, [[1.0, 0.5]]), env_steps=steps)
        for name, steps in (("dr", 2e7), ("plr", 6.04e7), ("old", math.nan))
    ]
    text = text_of(list(tables("title", several, width=120))[-1], width=120)
    cells = {line.split("│")[1].strip(): line.split("│")[3].strip() for line in text.splitlines() if "│" in line}
    assert cells == {"dr": "20.0 M", "plr": "60.4 M", "old": ""}
    assert [row["env_steps"] for row in rows(several)][:3] == [20_000_000, 60_400_000, ""]


def test_environment_steps_are_those_of_the_interval_that_ended_at_the_update(tmp_path):
    """The next interval may only have scored levels: then its row says the same update."""
    run = Run(RunFolder(tmp_path), config(), None)
    rows_of_run = [{"update": 10, "seed": s, "env_steps": n + s} for n in (100, 300) for s in (0, 2)]
    run.folder.metrics.write_text(as_csv(rows_of_run))
    assert env_steps_of(run, 10) == 101


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("update,seed,env_steps\n10,0,12x\n10,1,400\n", 400),
        ("update,seed,env_steps\n10,0,\n", math.nan),
        ("update;seed;env_steps\n10;0;400\n", math.nan),
    ],
)
def test_environment_steps_that_cannot_be_read_are_not_known_and_end_no_comparison(text, steps, tmp_path):
    run = Run(RunFolder(tmp_path), config(), None)
    run.folder.metrics.write_text(text)
    with pytest.warns(UnreadLines, match=r"metrics.csv(: line 2 has no number in| cannot be read: line 1 names no)"):
        assert env_steps_of(run, 10) == pytest.approx(steps, nan_ok=True)


def test_the_environment_steps_of_a_method_are_a_mean_over_its_seeds(tmp_path):
    """Its runs may have different numbers of them."""
    runs, found = [], {}
    for name, seed, n_seeds, steps in (("a", 0, 1, 400), ("b", 1, 3, 800)):
        run = Run(RunFolder(tmp_path / name), config(seed=seed, n_seeds=n_seeds), 10)
        run.folder.path.mkdir()
        run.folder.metrics.write_text(as_csv([{"update": 10, "seed": s, "env_steps": steps} for s in run.seeds]))
        found[run.folder.path] = 10, scores([[1.0, 0.5]] * n_seeds, run.seeds)
        runs.append(run)
    (only,) = side_by_side({"x": runs}, found)
    assert only.env_steps == 700


def test_runs_whose_tasks_differ_are_refused():
    runs = [Run(RunFolder(Path(name)), config(), 1) for name in ("a", "b")]
    runners = {Path(name): SimpleNamespace(names=tasks) for name, tasks in (("a", ("A", "B")), ("b", ("A", "C")))}
    with pytest.raises(ValueError, match=r"^a and b have other held-out tasks of these names, A, B and A, C: name"):
        check_comparable(parse(["--compare", "a", "b"]), runs, runners)


def test_runs_whose_levels_differ_are_refused():
    walls = [Run(RunFolder(Path(str(n))), config(env=TREE["env"] | {"n_walls": n}), 1) for n in (1, 2)]
    runners = dict.fromkeys((Path("1"), Path("2")), SimpleNamespace(names=("A",)))
    check_comparable(parse(["--compare", "a"]), walls, runners)
    message = r"^1 and 2 have other levels, env.n_walls is 1 and 2: --robust is for runs of one environment$"
    with pytest.raises(ValueError, match=message):
        check_comparable(parse(["--compare", "a", "--robust"]), walls, runners)


def labelled(capsys) -> list[str]:
    """The methods that were printed before the tables, with their runs."""
    return [line for line in capsys.readouterr().out.splitlines() if re.match(r".*: \d+ seeds? \(", line)]


@pytest.fixture
def three(tmp_path, monkeypatch):
    """Runs of two seeds each, of which the last differs. Nothing is read or played: it counts which runs are pooled."""
    settings = {"a": {}, "b": {"seed": 5}, "fast": {"seed": 9, "ppo": {"lr": 0.5, "gamma": 0.9}}}
    folders = [tmp_path / "runs" / name for name in settings]
    for folder, own in zip(folders, settings.values(), strict=True):
        (folder / "checkpoints" / "20").mkdir(parents=True)
        save_yaml(config(**own), folder / "config.yaml")
    monkeypatch.setattr("minimax_lib.commands.evaluate.restore", lambda run, console: (20, {}))
    monkeypatch.chdir(tmp_path)
    return folders


def test_methods_are_named_and_grouped_as_in_figures(three, capsys, monkeypatch):
    monkeypatch.setattr("minimax_lib.commands.evaluate.measure_of", lambda *_: lambda run, params: played(run.seeds))
    a, b, fast = three
    words = ("--tasks", *TASKS, "--n-episodes", 3)
    assert evaluate("--compare", *three, "--by", "ppo.gamma", *words) == 0
    assert labelled(capsys) == [f"gamma=0.995: 4 seeds ({a}, {b})", f"gamma=0.9: 2 seeds ({fast})"]
    assert evaluate("--label", "slow=runs/?", f"fast={fast}", *words) == 0
    assert labelled(capsys) == ["slow: 4 seeds (runs/a, runs/b)", f"fast: 2 seeds ({fast})"]
    assert evaluate("--label", "one=a", "--compare", *three, "--by", "seed", *words) == 0
    assert labelled(capsys) == [f"one: 2 seeds ({a})", f"seed=5: 2 seeds ({b})", f"seed=9: 2 seeds ({fast})"]
    assert evaluate("--compare", a, fast, "--by", "env.n-walls", *words) == 0
    printed = capsys.readouterr().out
    assert f"n_walls=2: 4 seeds ({a}, {fast})" in printed
    assert "note: the runs of n_walls=2 differ in ppo.gamma, ppo.lr" in printed


def played(seeds) -> Scores:
    values = np.full((len(seeds), len(TASKS)), 0.5)
    return Scores(TASKS, tuple(seeds), {"solved_rate": values, "return": values, "length": values})


def test_methods_on_the_worst_levels(three, capsys, monkeypatch):
    rates = {path: np.random.default_rng(i).random((2, 200)) for i, path in enumerate(three)}
    asked = []

    def measure(run, params) -> Scores:
        asked.append(run.folder.path)
        mine = rates[run.folder.path]
        return level_scores(SHARES, run.seeds, RobustResult(ranking=mine, reported=mine))

    monkeypatch.setattr("minimax_lib.commands.evaluate.measure_of", lambda *_: measure)
    words = ("--compare", *three, "--robust", "--n-levels", 200, "--n-episodes", 3, "--out", "worst.csv")
    for _ in range(2):  # the second time, the evaluations are in the folders
        assert evaluate(*words) == 0
    assert asked == three
    table = read(Path("worst.csv"))
    shares = ("all levels", "worst 10%", "worst 5%", "worst 2%", "worst 1%")
    labels = ("dr (lr=0.0001, gamma=0.995)", "dr (lr=0.5, gamma=0.9)")
    assert [(row["task"], row["method"]) for row in table] == [(s, m) for s in shares for m in labels]
    both = np.sort(np.concatenate([rates[path] for path in three[:2]]), axis=1)
    for share, n in zip(shares, (200, 20, 10, 4, 2), strict=True):
        (row,) = (row for row in table if (row["task"], row["method"]) == (share, labels[0]))
        assert float(row["mean"]) == pytest.approx(both[:, :n].mean())
        assert (row["n_seeds"], row["n_levels"], row["probability"]) == ("4", "200", "")
    printed = " ".join(capsys.readouterr().out.split())
    assert "Solved rate on 200 random levels, 3 sampled episodes on each" in printed
    assert "fewer than 10 levels, so chance decides much" in printed


def test_many_methods_are_several_tables_that_fit():
    many = [method(f"method {i}", np.full((10, 2), 0.8)) for i in range(7)]
    found = list(tables("title", many, width=80))
    assert len(found) == 4  # 3 + 3 + 1 methods, and all tasks
    lines = [line for table in found[:-1] for line in text_of(table, width=80).splitlines()]
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines).count("80.0% to 80.0%") == 3 * 7  # no cell is cut or wrapped


@pytest.mark.deep
def test_a_damaged_checkpoint_is_passed_over_and_said_so(copied, results, monkeypatch, capsys):
    monkeypatch.setattr("minimax_lib.commands.evaluate.restore", restore)
    damaged, _ = copied
    for path in (damaged / "checkpoints" / "20" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    words = ("--run", damaged, "--tasks", "MiniMaze", "--n-episodes", 25)
    assert evaluate(*words) == 0
    assert "the checkpoint of update 20 is damaged" in capsys.readouterr().out
    assert (damaged / "evaluations" / "update10-MiniMaze.csv").exists()
    assert evaluate(*words, "--checkpoint", 20) == 1  # only that one was asked for
    assert capsys.readouterr().err.startswith(f"error: no checkpoint in {damaged / 'checkpoints'} can be read")


def test_results_that_cannot_be_kept_are_refused_before_the_work(copied, capsys):
    blocked, _ = copied
    (blocked / "evaluations").write_text("in the way")
    assert evaluate("--run", blocked, "--tasks", "MiniMaze") == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run is given: name its folder, as in --run runs/my-run"),
        (["--run", "{runs}/frist"], "unknown run '{runs}/frist': choose from *(did you mean '{runs}/first'?)"),
        (
            ["--run", "{runs}"],
            "{runs} is not the folder of a run: it has no config.yaml (it holds *, such as {runs}/*)",
        ),
        (["--run", "{run}", "--checkpoint", "15"], "{run} has no checkpoint 15: choose from 10, 20, latest"),
        (["--run", "{run}", "--checkpoint", "last"], "--checkpoint is 'last': it must be an integer or one of latest"),
        (["--run", "{run}", "--tasks", "Labyrnth"], "unknown held-out task 'Labyrnth': * (did you mean 'Labyrinth'?)"),
        (["--run", "{run}", "--protocol", "dcb"], "unknown protocol 'dcb': * (did you mean 'dcd'?)"),
        (["--run", "{run}", "--n-episodes", "0"], "--n-episodes is 0: it must be at least 1"),
        (["--run", "{run}", "--robust", "--n-levels", "0"], "--n-levels is 0: it must be at least 1"),
        (["--run", "{run}", "--seed", "-1"], "--seed is -1: it must be at least 0"),
        (["--run", "{run}", "--student", "1"], "--student is 1: {run} has 1, counted from 0"),
        (["--run", "{run}", "--episodes", "9"], "unknown flag --episodes: * (did you mean --n-episodes?)"),
        (["--run", "{run}", "{run}"], "seed 0 is in {run} and in {run}: it can be pooled only once"),
        (
            ["--run", "{run}", "--out", "x.csv"],
            "--out is 'x.csv', which is for --compare only: add that, or leave it out",
        ),
        (
            ["--run", "{run}", "--by", "seed"],
            "--by is 'seed', which is for --compare only: add that, or leave it out",
        ),
        (["--run", "{run}", "--compare", "{run}"], "--run is '{run}', and compare is given too: name all runs with *"),
        (
            ["--run", "{run}", "--label", "a={run}"],
            "--run is '{run}', and label is given too: name all runs with --label",
        ),
        (["--label", "{run}"], "--label is '{run}': it must be NAME=PATTERN, as in 'DR=runs/dr-*'"),
        (["--label", "a={runs}/d*"], "unknown pattern '{runs}/d*': choose from *"),
        (["--compare", "{run}", "--by", "ppo.lrr"], "unknown setting 'ppo.lrr': * (did you mean 'ppo.lr'?)"),
        (["--compare", "{run}", "--robust", "--tasks", "all"], "--tasks is *, which means nothing with --robust: *"),
        (["--run", "lasertag/search", "--robust"], "LaserTag has 2 agents: the worst levels (--robust) are *"),
        (
            ["--compare", "{runs}"],
            "{runs} is not the folder of a run: it has no config.yaml (it holds *, such as {runs}/*)",
        ),
        (["--compare", "{run}", "--out", "x.txt"], "--out is 'x.txt': it must end with .csv"),
        (["--compare", "{run}", "{run}"], "{run} is named twice: name each run once"),
        (["--compare", "{runs}/frist"], "unknown run '{runs}/frist': choose from *(did you mean '{runs}/first'?)"),
        (["--seed", "1", "{run}"], "--seed is '1 {run}': it must be an integer"),
    ],
)
def test_bad_flags_are_one_line_and_status_2(run, words, message, capsys):
    places = {"run": run, "runs": run.parent}
    assert main([word.format(**places) for word in words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert_matches(printed.err, f"error: {message.format(**places)}\n")


def assert_matches(text: str, pattern: str) -> None:
    """`pattern` with * for anything."""
    parts = pattern.split("*")
    assert text.startswith(parts[0])
    assert text.endswith(parts[-1])
    position = 0
    for part in parts:
        position = text.index(part, position) + len(part)


def test_runs_without_a_checkpoint_or_of_another_configuration_are_refused(run, tmp_path, capsys):
    untouched = make_run(tmp_path / "new", config(), updates=())
    assert evaluate("--run", untouched) == 2
    assert capsys.readouterr().err == f"error: {untouched} holds no checkpoint: there is nothing to evaluate yet\n"
    faster = make_run(tmp_path / "faster", config(seed=9, ppo={"lr": 0.5}), updates=(10,))
    assert evaluate("--run", run, faster) == 2
    expected = f"error: {run} and {faster} are not runs of one configuration: ppo.lr is 0.0001 and 0.5\n"
    assert capsys.readouterr().err == expected


def test_runs_with_and_without_init_from_are_two_methods():
    """Each seed may have begun with an agent of its own."""
    scratch, one, other = (SimpleNamespace(config=config(init_from=path)) for path in ("", "runs/a", "runs/b"))
    assert unlike(scratch, one) == {"init_from": ("not set", "given")}
    assert unlike(one, other) == {}


def program(*words: str) -> tuple[subprocess.CompletedProcess, float]:
    """(what the program said, seconds of processor time)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    finished = subprocess.run([sys.executable, ROOT / "evaluate.py", *words], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return finished, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.deep
def test_the_program_refuses_before_it_does_anything_slow(run):
    finished, seconds = program("--run", str(run), "--tasks", "Labyrnth")
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith("error: unknown held-out task 'Labyrnth'")
    assert seconds < 4  # 1.6 on a quiet machine; to load the run and to compile would take longer


def test_help_explains_every_flag(capsys):
    with pytest.raises(SystemExit) as stopped:
        evaluate("--help")
    assert stopped.value.code == 0
    text = capsys.readouterr().out.replace("│", " ")
    flags = text.split(" --")[1:]
    for name in ("run", "tasks", "n-episodes", "greedy", "protocol", "checkpoint", "robust", "n-levels", "seed"):
        assert any(flag.startswith(f"{name} ") for flag in flags), name


# ----------------------------------------------------------------------------------------------------------- the report


def text_of(table, width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def scores(solved, seeds=(0, 1)) -> Scores:
    solved = np.array(solved)
    return Scores(("A", "B"), tuple(seeds), {"solved_rate": solved, "return": solved / 2, "length": solved * 10})


def test_tables_by_hand():
    several = scores([[1.0, 0.5], [0.5, 0.0]])
    lines = [line for line in text_of(task_table("title", several)).splitlines() if "│" in line]
    assert lines[0].replace("│", " ").split() == ["A", "75.0%", "75.0%", "100", "50", "0.375"]
    assert lines[1].replace("│", " ").split() == ["B", "25.0%", "25.0%", "50", "0", "0.125"]
    assert lines[2].replace("│", " ").split() == ["all", "tasks", "50.0%", "50.0%", "75", "25", "0.250"]
    alone = text_of(score_table("title", scores([[1.0, 0.5]], seeds=[7])))
    assert "seed 7 alone: no interval over seeds" in " ".join(alone.split())
    assert ["A", "100.0%", "0.500"] in [line.replace("│", " ").split() for line in alone.splitlines()]
    compared = text_of(comparison_table("title", scores([[0.0, 0.25], [0.0, 0.25]]), several)).splitlines()
    cells = [line.replace("│", " ").split() for line in compared if "│" in line]
    assert cells == [
        ["A", "0.0%", "75.0%", "0.375"],
        ["B", "25.0%", "25.0%", "0.125"],
        ["all", "tasks", "12.5%", "50.0%", "0.250"],
    ]


def table_at_80_columns(n_seeds: int) -> tuple[str, str]:
    """(the lines of a table of long names and numbers, its caption in one line), of seeds that solved 1, .9, .8 ..."""
    names = ("TrainingDistribution", "SimpleCrossingS11N5")
    solved = np.tile(1 - np.arange(n_seeds)[:, None] / 10, (1, 2))
    several = Scores(names, tuple(range(n_seeds, 0, -1)), {"solved_rate": solved, "return": solved})
    lines = text_of(task_table("title", several), width=80).splitlines()
    last = next(i for i, line in enumerate(lines) if line.startswith("└"))
    assert all(any(line.startswith(f"│ {name} ") for line in lines) for name in names)  # no name is cut or wrapped
    return "\n".join(lines[: last + 1]), " ".join(" ".join(lines[last + 1 :]).split())


@pytest.mark.parametrize(("n_seeds", "values"), [(2, "100  90"), (3, "100  90  80"), (4, "100  90  80  70")])
def test_tables_of_a_few_seeds_show_each_of_them_and_no_interval(n_seeds, values):
    table, caption = table_at_80_columns(n_seeds)
    assert table.count(f" {values} │") == 3  # two tasks, and all of them
    assert "each seed, %" in table
    assert not any(word in table for word in ("interval", "bootstrap", " to "))
    order = ", ".join(map(str, range(n_seeds, 0, -1)))
    start = f"{n_seeds} seeds, their values in the order {order}. No interval: with fewer than 5 seeds"
    assert caption.startswith(start)


def test_tables_from_five_seeds_on_say_which_interval_it_is():
    table, caption = table_at_80_columns(5)
    assert "95% bootstrap" in table
    assert table.count("% to ") == 3
    which = "95% percentile interval of the bootstrap over whole seeds of the interquartile mean (IQM)"
    assert caption == f"5 seeds; interval: {which} over seeds"


def test_pooling_keeps_the_order_of_seeds():
    both = pooled([scores([[1.0, 0.5], [0.5, 0.0]]), scores([[0.1, 0.2]], seeds=[9])])
    assert both.seeds == (0, 1, 9)
    np.testing.assert_array_equal(both["solved_rate"], [[1.0, 0.5], [0.5, 0.0], [0.1, 0.2]])
    assert list(both.rows())[-1] == {"seed": 9, "task": "B", "solved_rate": 0.2, "return": 0.1, "length": 2.0}


def test_what_is_pooled_was_measured_in_all():
    """An evaluation that is found again has the solved rate and the return, a fresh one has more."""
    fresh, found = scores([[1.0, 0.5]]), scores([[0.1, 0.2]], seeds=[9])
    found = dataclasses.replace(found, measures={name: found[name] for name in ("solved_rate", "return")})
    for parts in ([fresh, found], [found, fresh]):
        assert set(pooled(parts).measures) == {"solved_rate", "return"}


@dataclasses.dataclass(frozen=True)
class Flip(Environment):
    """One step: action 1 wins on levels of 1, action 0 on levels of 0."""

    max_steps: int = 1
    observation_space = Box(0, 1, ())
    action_space = Discrete(2)

    def sample_level(self, key):
        return jax.random.bernoulli(key).astype(jnp.float32)

    def reset(self, key, level):
        return {"level": level, "paid": jnp.zeros(())}, self.emit(level, 0.0, False)

    def step(self, key, state, action):
        paid = (action == state["level"]).astype(jnp.float32)
        return {"level": state["level"], "paid": paid}, self.emit(state["level"], paid, True)

    def emit(self, obs, reward, over):
        reward, over = jnp.asarray(reward, jnp.float32), jnp.asarray(over)
        return TimeStep(obs=obs, reward=reward, terminated=over, truncated=jnp.zeros((), bool))

    def get_level(self, state):
        return state["level"]

    def level_metrics(self, level):
        return {}


class DrawnFlip(Flip):
    def draw_episodes(self, states, running, captions, columns):
        """A pixel an episode: white where it paid, in rows of `columns`; the captions say the same."""
        assert running.shape == (2, len(captions))
        assert running.all()
        paid = states["paid"][-1]
        assert [text.startswith("TrainingDistribution: solved in 1") for text in captions] == list(paid > 0)
        return np.repeat(np.uint8(255 * paid).reshape(-1, columns, 1), 3, axis=2)


@dataclasses.dataclass(frozen=True)
class Guess:
    """Takes action 1 with the probability that is its parameter."""

    def init_carry(self, shape):
        return ()

    def policy(self, params, obs, carry, first):
        probs = jnp.broadcast_to(jnp.stack([1 - params, params]), (*first.shape, 2))
        return distrax.Categorical(probs=probs), jnp.zeros(first.shape), carry


def one_class(env) -> EvalRunner:
    return Evaluation(tasks=("TrainingDistribution",), n_episodes=400).build(env, Guess())


def test_untrained_and_trained_play_the_same_levels_in_one_program():
    zero, one = (
        np.zeros(3, np.float32),
        np.ones(3, np.float32),
    )  # three seeds that always take action 0, and three that take 1
    never, always = compare(one_class(Flip()), range(3), zero, one)
    np.testing.assert_allclose(never["solved_rate"] + always["solved_rate"], 1.0)  # where one wins, the other loses
    assert len(np.unique(never["solved_rate"])) > 1  # each seed has its own levels
    assert never.seeds == (0, 1, 2)


def test_pictures_show_the_episodes_that_were_played(tmp_path):
    path = tmp_path / "levels" / "agent.png"
    runner = one_class(DrawnFlip())
    always = np.float32(1)
    line = draw_episodes(runner, always, path, n_episodes=8)
    assert str(path) in line
    won = np.asarray(record_episodes(runner, 8, always).stats.returns) > 0
    assert won.any()
    assert not won.all()
    np.testing.assert_array_equal(np.asarray(Image.open(path))[..., 0].reshape(-1), 255 * np.uint8(won))


def test_an_environment_without_pictures_is_passed_over(tmp_path):
    assert draw_episodes(one_class(Flip()), np.float32(1), tmp_path / "no.png").startswith("no picture: Flip has")
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_the_report_at_the_end_of_training(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minimax_lib.evaluation.report.REPORTED", TASKS)
    monkeypatch.setattr("minimax_lib.evaluation.report.REPORTED_EPISODES", 25)
    settings = config()
    before, after = (state_after(settings, update).students.params for update in (10, 20))
    agent, told = make_agent(settings).agent, []
    untrained, trained = final_report(settings, agent, before, after, tmp_path, Console(width=100), told.append)
    assert told == ["comparing with the untrained agent", "drawing the agent"]
    assert Image.open(tmp_path / "levels" / "agent.png").size[0] <= 1600
    printed = capsys.readouterr().out
    assert all(
        text in printed
        for text in ("untrained", "trained", "return", *TASKS, "25 sampled episodes on each", "means over 2 seeds")
    )
    for found, update in ((untrained, 10), (trained, 20)):
        for (seed, task), (solved, _) in expected_scores(update).items():
            assert found["solved_rate"][seed, TASKS.index(task)] == pytest.approx(solved)


def test_the_picture_of_mazes_shows_each_level_with_the_way_to_the_episodes_end():
    settings = config()
    runner = Evaluation(tasks=TASKS).build(settings.env, make_agent(settings).agent)
    params = jax.tree.map(lambda x: x[0, 0], state_after(settings, 10).students.params)
    recording = jax.device_get(record_episodes(runner, 3, params))
    states, lengths = recording.states.maze, recording.stats.lengths
    assert lengths.min() < lengths.max()
    ways = [states.agent_pos[: lengths[row] + 1, row] for row in range(6)]
    expected = draw_levels(jax.tree.map(lambda x: x[0], states.level), list("abcdef"), ways, columns=2)
    picture = runner.held_out.env.draw_episodes(recording.states, recording.running, list("abcdef"), columns=2)
    np.testing.assert_array_equal(picture, expected)

"""`minimax-plot`: numbers against plain computation, pooling, what is written, refusals."""

import csv
import dataclasses
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import yaml
from doc_blocks import run_blocks
from saved_tables import SAID
from scipy.stats import bootstrap, trim_mean
from tiny_run import save_tiny_run
from toy_program import EVALUATION, toy_config, toy_program

from minimax_lib.commands.plot import main, requests
from minimax_lib.commands.status import carried_out
from minimax_lib.config.plot import FIGURES, parse
from minimax_lib.config.shipped import located
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.games.joint import SelfPlayMethod
from minimax_lib.curricula.games.maestro import MaestroMethod
from minimax_lib.curricula.levels.plr import PLR, PLRSettings
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.pictures import bootstrap as bands
from minimax_lib.pictures import curves, held_out, lines, replay, style, words
from minimax_lib.pictures import scores as scores_of
from minimax_lib.pictures.opponents import met
from minimax_lib.pictures.output import FigureFolder
from minimax_lib.pictures.relative import Difference, differences_in_words, relative_curve
from minimax_lib.pictures.runs import find_groups, phrase, read_run
from minimax_lib.pictures.style import NotDrawn
from minimax_lib.store import origin

ROOT = Path(__file__).parent.parent
SETTINGS = {"runner": {"name": "plr", "robust": True, "replay_prob": 0.5}, "ppo": {"lr": 1e-4}, "seed": 0, "n_seeds": 2}
TASKS = ("Rooms", "Maze", "TrainingDistribution")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def metrics_rows(seeds, value, n=4, **columns):
    """`n` intervals of ten updates; return is value(seed, i)."""
    return [
        {"update": 10 * i, "clock": 20 * i, "seed": seed, "env_steps": 1000 * i, "seconds": i + 0.1 * seed}
        | {"steps_per_second": 1000, "return": value(seed, i), "solved_rate": float(value(seed, i)) / 2}
        | {name: column(seed, i) for name, column in columns.items()}
        for i in range(1, n + 1)
        for seed in seeds
    ]


def eval_rows(seeds, value, updates=(0, 20, 40), task="task", solved="solved_rate"):
    return [
        {"update": update, "seed": seed, task: name, "return": value(seed, j) * update, solved: value(seed, j)}
        for update in updates
        for seed in seeds
        for j, name in enumerate(TASKS)
    ]


def make_run(folder, seed=0, n_seeds=2, value=lambda seed, i: seed + i, columns=None, **settings):
    """A folder as a run leaves it, without checkpoints."""
    path = Path(folder)
    config = SETTINGS | {"seed": seed, "n_seeds": n_seeds, "plugins": ["not_there"]} | settings
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    seeds = range(seed, seed + n_seeds)
    table(path / "metrics.csv", metrics_rows(seeds, value, **(columns or {})))
    table(path / "eval.csv", eval_rows(seeds, lambda seed, j: 0.1 * seed + 0.2 * j))
    return path


def evaluation(path, seeds, value, update=40, name="update40-benchmark", **how):
    same = {"update": update, "n_episodes": 100, "actions": "sampled", "protocol": "", "evaluation_seed": 0} | how
    rows = [
        {"seed": seed, "task": task, "solved_rate": value(seed, j), "return": 0.5} | same
        for seed in seeds
        for j, task in enumerate(TASKS)
    ]
    table(Path(path) / "evaluations" / f"{name}.csv", rows)


def written(path):
    with Path(path).open() as file:
        return list(csv.DictReader(file))


def test_what_this_version_has_written_needs_no_completing(monkeypatch):
    """So a plot of a finished run does not import JAX. A run of other code gets the settings that are new."""
    path = make_run("a")
    monkeypatch.setattr("minimax_lib.pictures.runs.completed", lambda saved: {"seed": "completed"})
    assert read_run(path).settings == {"seed": "completed"}  # nobody knows which code has begun it
    for begun, now, seed in (("abc", "abc", 0), ("abc", "abd", "completed"), ("abc-dirty", "abc-dirty", "completed")):
        monkeypatch.setattr(origin, "commit", lambda commit=begun: commit)
        (path / "origin.jsonl").unlink(missing_ok=True)
        origin.record(path / "origin.jsonl", origin.origin_of(0, "a machine"))
        monkeypatch.setattr(origin, "commit", lambda commit=now: commit)
        assert read_run(path).settings["seed"] == seed


# --------------------------------------------------------------------------------------------------------------- curves


def test_a_learning_curve_is_the_mean_of_the_seeds_of_all_runs_and_their_range():
    groups = find_groups([make_run("a", 0, 2), make_run("b", 2, 1)])
    rows = curves.learning_curve(groups, "return").rows
    assert [row["updates"] for row in rows] == [10, 20, 30, 40]
    assert [(row["mean"], row["low"], row["high"]) for row in rows] == [(2, 1, 3), (3, 2, 4), (4, 3, 5), (5, 4, 6)]
    assert {(row["label"], row["n_seeds"], row["band"]) for row in rows} == {("plr", 3, bands.RANGE)}


def test_one_seed_has_no_band():
    rows = curves.learning_curve(find_groups([make_run("a", 0, 1)]), "return").rows
    assert all(math.isnan(row["low"]) and math.isnan(row["high"]) for row in rows)
    assert {row["band"] for row in rows} == {bands.NONE}


def test_five_seeds_have_the_bootstrap_interval_of_scipy():
    values = np.random.default_rng(0).normal(size=(6, 3))
    low, high = bands.mean_band(values)
    for j in range(3):
        theirs = bootstrap((values[:, j],), np.mean, n_resamples=20_000, method="percentile", rng=1).confidence_interval
        assert (low[j], high[j]) == pytest.approx((theirs.low, theirs.high), abs=0.06)
    assert bands.kind_of_band(6) == bands.INTERVAL


def test_curves_against_environment_steps_and_seconds_place_the_untrained_agent_at_zero():
    groups = find_groups([make_run("a", 0, 1)])
    rows = curves.learning_curve(groups, "held_out/solved_rate", "env_steps").rows
    assert [row["env_steps"] for row in rows] == [0, 2000, 4000]
    rows = curves.learning_curve(groups, "held_out/solved_rate", "seconds").rows
    assert [row["seconds"] for row in rows] == [0, 2, 4]


def with_intervals_that_only_score(path):
    """The run begins with two intervals without an update, and one follows the first update."""
    rows = metrics_rows([0], lambda seed, i: i, n=6)
    updates = (0, 0, 20, 20, 30, 40)
    table(path / "metrics.csv", [row | {"update": update} for row, update in zip(rows, updates, strict=True)])


def test_an_evaluation_stands_where_its_update_was_reached_and_not_at_a_later_interval_without_an_update():
    path = make_run("a", 0, 1)
    with_intervals_that_only_score(path)
    rows = curves.learning_curve(find_groups([path]), "held_out/return", x="env_steps").rows
    assert [row["env_steps"] for row in rows] == [0, 3000, 6000]
    gaps = [row for row in curves.generalisation_gap(find_groups([path])).rows if row["part"] == "gap"]
    # Interval i solves i / 2 in training; update 20 is reached in the third one, and 40 in the sixth.
    assert [(row["updates"], row["mean"]) for row in gaps][1:] == [(20, pytest.approx(1.4)), (40, pytest.approx(2.9))]
    later = [row for row in curves.generalisation_gap(find_groups([path]), x="env_steps").rows if row["part"] == "gap"]
    assert [(row["env_steps"], row["mean"]) for row in later] == [
        (3000, pytest.approx(1.4)),
        (6000, pytest.approx(2.9)),
    ]


def test_held_out_curves_leave_the_training_distribution_out_unless_it_is_named():
    groups = find_groups([make_run("a", 0, 1)])
    assert curves.learning_curve(groups, "held_out/solved_rate").rows[0]["mean"] == pytest.approx(0.1)
    assert curves.learning_curve(groups, "held_out/Maze/solved_rate").rows[0]["mean"] == pytest.approx(0.2)
    named = curves.learning_curve(groups, "held_out/solved_rate", tasks=["TrainingDistribution"])
    assert named.rows[0]["mean"] == pytest.approx(0.4)


def test_held_out_curves_are_means_over_the_tasks_that_all_runs_have():
    """Runs that were evaluated on other tasks would have other means, whatever they have learnt."""
    a, b = make_run("a", 0, 1), make_run("b", 0, 1, runner={"name": "dr"})
    rows = eval_rows((0,), lambda seed, j: 0.2 * j)
    table(b / "eval.csv", [row for row in rows if row["task"] != "Rooms"])
    groups = find_groups([a, b])
    picture = curves.learning_curve(groups, "held_out/solved_rate")
    assert [row["mean"] for row in picture.rows] == pytest.approx([0.2] * 6)  # of Maze
    assert "1 held-out task is common to all runs; 1 other is left out" in picture.notes
    gap = curves.generalisation_gap(groups)
    assert {row["mean"] for row in gap.rows if row["part"] == "held_out"} == {0.2}
    assert all(row["mean_baseline"] == row["mean"] for row in relative_curve(groups, "held_out/solved_rate", "dr").rows)
    table(b / "eval.csv", [row for row in rows if row["task"] == "TrainingDistribution"])
    with pytest.raises(NotDrawn, match="no held-out task in common"):
        curves.learning_curve(find_groups([a, b]), "held_out/solved_rate")
    alone = curves.learning_curve(find_groups([a, b]), "held_out/Maze/solved_rate")
    assert {row["label"] for row in alone.rows} == {"plr"}


def test_a_measure_with_a_slash_is_a_mean_over_tasks_too():
    a = make_run("a", 0, 1)
    table(
        a / "eval.csv",
        [row | {"facts/life": 3.0 * row["solved_rate"]} for row in eval_rows((0,), lambda _, j: 0.2 * j)],
    )
    groups = find_groups([a])
    facts, rates = (curves.learning_curve(groups, f"held_out/{name}").rows for name in ("facts/life", "solved_rate"))
    assert [row["mean"] for row in facts] == pytest.approx([3 * row["mean"] for row in rates])
    assert curves.learning_curve(groups, "held_out/Maze/facts/life").rows[0]["mean"] == pytest.approx(0.6)


def test_tables_of_earlier_versions_have_the_same_numbers():
    new, old = make_run("new", 0, 2), make_run("old", 0, 2)
    table(old / "eval.csv", eval_rows(range(2), lambda seed, j: 0.1 * seed + 0.2 * j, task="maze", solved="solved"))
    pictures = [curves.learning_curve(find_groups([run]), "held_out/solved_rate") for run in (new, old)]
    assert pictures[0].rows == pictures[1].rows
    assert pictures[0].rows[-1]["mean"] == pytest.approx((0.0 + 0.2 + 0.1 + 0.3) / 4)
    scores = [scores_of.evaluated(find_groups([run])) for run in (new, old)]
    assert np.array_equal(scores[0].groups[0].values, scores[1].groups[0].values)


def test_a_task_may_have_a_slash_in_its_name():
    """As a file of levels in a folder. The longest name counts."""
    path, names = make_run("a"), ("mazes", "mazes/a.txt", "Labyrinth")
    rows = [
        {"update": update, "seed": seed, "task": task, "solved_rate": 0.1 * j, "facts/life": 1.0 + j}
        for update in (0, 40)
        for seed in (0, 1)
        for j, task in enumerate(names)
    ]
    table(path / "eval.csv", rows)
    groups = find_groups([path])
    for j, name in enumerate(names):
        assert curves.learning_curve(groups, f"held_out/{name}/solved_rate").rows[0]["mean"] == pytest.approx(0.1 * j)
        assert curves.learning_curve(groups, f"held_out/{name}/facts/life").rows[0]["mean"] == pytest.approx(1 + j)
    assert curves.learning_curve(groups, "held_out/facts/life").rows[0]["mean"] == pytest.approx(2)


def test_smoothing_is_a_moving_mean_of_each_seed_and_skips_what_is_missing():
    values = np.array([1.0, 2.0, np.nan, 4.0, 9.0])
    assert lines.moving_mean(values, 1) is values
    smooth = lines.moving_mean(values, 3)
    assert np.array_equal(smooth, [1.5, 1.5, np.nan, 6.5, 6.5], equal_nan=True)
    # An even window begins one earlier than it ends.
    assert lines.moving_mean(np.arange(5.0), 2) == pytest.approx([0, 0.5, 1.5, 2.5, 3.5])


@pytest.mark.parametrize("n", [10, 11, 2**31 - 1])
def test_a_window_that_is_longer_than_the_curve_is_its_mean(n):
    smooth = lines.moving_mean(np.array([1.0, 2.0, np.nan, 4.0, 9.0]), n)
    assert smooth == pytest.approx([4, 4, np.nan, 4, 4], nan_ok=True)
    assert lines.moving_mean(np.array([3.0]), n) == [3]


def test_seeds_measured_at_different_points_are_interpolated_and_end_with_the_first():
    one = lines.Line(0, np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0]))
    other = lines.Line(1, np.array([5.0, 10.0, 15.0, 20.0, 25.0]), np.array([1.5, 2.0, 2.5, 3.0, 3.5]))
    curve = lines.pooled("plr", 0, [one, other])
    assert curve.x.tolist() == [10, 20]
    assert curve.values.tolist() == [[1, 2], [2, 3]]
    assert curve.note.endswith("they are interpolated, and the curve ends at 20 of 25")
    with pytest.raises(NotDrawn, match="in common"):
        lines.pooled("plr", 0, [one, dataclasses.replace(other, x=other.x + 100)])


def test_intervals_without_a_measurement_are_left_out():
    groups = find_groups([make_run("a", 0, 1, value=lambda seed, i: "nan" if i < 3 else i)])
    assert [row["updates"] for row in curves.learning_curve(groups, "return").rows] == [30, 40]


LEVELS = {
    "level/new/n_walls": lambda seed, i: 10.0,
    "level/new/return": lambda seed, i: 0.0,
    "level/replay/n_walls": lambda seed, i: 20.0 if i > 1 else "nan",
    "replay_share": lambda seed, i: 0.25 if i > 1 else 0.0,
}
CHILDREN = {
    "level/mutation/n_walls": lambda seed, i: 40.0,
    "buffer/weighted_n_mutations": lambda seed, i: 3.0 * i,
}


@pytest.mark.parametrize(
    ("runner", "columns", "expected"),
    [
        ({"name": "dr"}, {"level/new/n_walls": LEVELS["level/new/n_walls"]}, [10, 10, 10, 10]),
        ({"name": "plr", "robust": True}, LEVELS, [20, 20, 20]),  # new levels are only scored
        ({"name": "plr", "robust": False}, LEVELS, [10, 12.5, 12.5, 12.5]),
        ({"name": "accel", "robust": True}, LEVELS | CHILDREN, [20, 20, 20]),
        # A quarter replayed, a quarter children, which are only scored, half new.
        ({"name": "accel", "robust": False}, LEVELS | CHILDREN, [10, 40 / 3, 40 / 3, 40 / 3]),
        ({"name": "sfl"}, LEVELS, [15, 15, 15]),  # half and half; not known in the first interval
    ],
)
def test_complexity_is_of_what_was_trained_on(runner, columns, expected):
    groups = find_groups([make_run("a", 0, 1, columns=columns, runner=runner)])
    found = [row["mean"] for row in curves.complexity_curve(groups, "n_walls").rows]
    assert found == pytest.approx(expected)
    mutations = [lines.MUTATIONS] if columns.keys() & CHILDREN.keys() else []
    assert lines.level_metrics(groups) == ["n_walls", *mutations]


def test_a_method_of_a_plugin_has_no_complexity_curve_where_its_folder_does_not_say_what_it_learns_from():
    groups = find_groups([make_run("a", 0, 1, columns=LEVELS, runner={"name": "mine"})])
    with pytest.raises(NotDrawn, match="no n_walls of the levels that it learns from"):
        curves.complexity_curve(groups, "n_walls")


def test_the_gap_is_the_interval_that_ends_at_an_evaluation_minus_the_evaluation():
    groups = find_groups([make_run("a", 0, 2)])
    rows = [row for row in curves.generalisation_gap(groups).rows if row["part"] == "gap"]
    # Seed s at interval i solves (s + i) / 2 in training, and 0.1 s + 0.1 of the two held-out tasks.
    expected = [np.mean([(s + i) / 2 - (0.1 * s + 0.1) for s in (0, 1)]) for i in (2, 4)]
    assert [row["updates"] for row in rows] == [20, 40]
    assert [row["mean"] for row in rows] == pytest.approx(expected)


def test_a_difference_from_the_baseline_has_the_range_over_pairs_of_seeds():
    base = make_run("base", 0, 2, runner={"name": "dr"})
    other = make_run("other", 0, 3, value=lambda seed, i: 10 * seed + i)
    rows = relative_curve(find_groups([base, other]), "return", "dr").rows
    assert {(row["label"], row["baseline"]) for row in rows} == {("plr", "dr")}
    assert [row["difference"] for row in rows] == [9.5] * 4
    assert [(row["low"], row["high"]) for row in rows] == [(-1, 20)] * 4
    with pytest.raises(NotDrawn, match="of another method"):
        relative_curve(find_groups([base]), "return", "dr")


@pytest.mark.parametrize(
    ("n", "n_base", "labels", "note"),
    [
        (3, 3, ["a"], "difference of means of 3 seeds, band: range over pairs of seeds"),
        (1, 1, ["a"], "difference of 1 seed"),
        (6, 6, ["a"], "difference of means of 6 seeds, band: 95% bootstrap interval"),
        # Six seeds have an interval. Their difference from three has none.
        (6, 3, ["a, 6 seeds"], "difference of means, b of 3 seeds, band: range over pairs of seeds"),
        (6, 1, ["a, 6 seeds"], "difference of means, b of 1 seed, band: range over pairs of seeds"),
    ],
)
def test_the_legend_of_a_difference_says_what_its_band_shows(n, n_base, labels, note):
    x, rng = np.arange(2.0), np.random.default_rng(0)
    one, base = (lines.Curve(label, 0, x, rng.normal(size=(k, 2))) for label, k in (("a", n), ("b", n_base)))
    difference = Difference(one, base)
    assert differences_in_words([difference]) == (labels, note)
    low, high = difference.band
    if "pairs" in note:
        assert low[0] == one.values[:, 0].min() - base.values[:, 0].max()
    if "95%" in note:
        pairs = one.values[:, 0].min() - base.values[:, 0].max(), one.values[:, 0].max() - base.values[:, 0].min()
        assert pairs[0] < low[0] < difference.mean[0] < high[0] < pairs[1]
    assert {row["band"] for row in difference.rows("updates")} == {difference.kind}


def test_the_interval_of_a_difference_is_that_of_two_independent_samples():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1.0, 1.0, (8, 1)), rng.normal(0.0, 2.0, (6, 1))

    def difference(x, y, axis):
        return np.mean(x, axis=axis) - np.mean(y, axis=axis)

    theirs = bootstrap((x[:, 0], y[:, 0]), difference, n_resamples=20_000, method="percentile", rng=1)
    low, high = bands.difference_band(x, y)
    assert low[0] == pytest.approx(theirs.confidence_interval.low, abs=0.08)
    assert high[0] == pytest.approx(theirs.confidence_interval.high, abs=0.08)


# --------------------------------------------------------------------------------------------------------------- scores

# What rliable 1.2 says (with pandas 2; it does not import with pandas 3) of these two methods, seeds by tasks.
X = [[0.086, 0.237, 0.801, 0.582], [0.094, 0.433, 0.479, 0.16], [0.735, 0.114, 0.391, 0.517]]
X += [[0.431, 0.587, 0.738, 0.956], [0.284, 0.649, 0.696, 0.293], [0.001, 0.973, 0.298, 0.314]]
X += [[0.892, 0.585, 0.471, 0.773]]
Y = [[0.024, 0.566, 0.299, 0.073], [0.528, 0.745, 0.166, 0.504], [0.239, 0.593, 0.578, 0.175]]
Y += [[0.664, 0.526, 0.546, 0.656], [0.343, 0.607, 0.703, 0.082]]
RLIABLE = {
    "mean": (0.48464286, 0.39039196, 0.58260982),
    "median": (0.51235714, 0.39185536, 0.60128929),
    "IQM": (0.48042857, 0.36449643, 0.60857143),
    "optimality gap": (0.51535714, 0.41739018, 0.60960804),
}


def scores(**groups):
    tasks = tuple("abcd")
    found = [
        scores_of.GroupScores(label, i, tasks, np.array(values)) for i, (label, values) in enumerate(groups.items())
    ]
    return scores_of.ComparedScores(tuple(found), "solved_rate")


def test_aggregates_are_those_of_rliable():
    found = {row["statistic"]: (row["value"], row["low"], row["high"]) for row in held_out.aggregates(scores(x=X)).rows}
    assert found.keys() == RLIABLE.keys()
    for name, (value, *_) in RLIABLE.items():
        assert found[name][0] == pytest.approx(value, abs=1e-7), name


STATISTICS = {
    "mean": np.mean,
    "median": lambda values: np.median(values.mean(axis=0)),
    "IQM": lambda values: trim_mean(values, 0.25, axis=None),
    "optimality gap": lambda values: 1 - np.minimum(values, 1).mean(),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_intervals_of_aggregates_are_those_of_a_plain_bootstrap_of_whole_seeds(name):
    """Unlike rliable's, which resamples the seeds of each task by themselves."""
    # Tasks that differ much: the median of their means is then another number than one over seeds and tasks mixed.
    values, rng = np.array(X) / 4 + [0.0, 0.1, 0.5, 0.7], np.random.default_rng(9)
    drawn = [STATISTICS[name](values[rng.integers(len(values), size=len(values))]) for _ in range(4000)]
    (row,) = (row for row in held_out.aggregates(scores(x=values)).rows if row["statistic"] == name)
    assert (row["low"], row["high"]) == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.02)


def test_probability_of_improvement_and_profiles_are_those_of_rliable():
    (row,) = held_out.probability_of_improvement(scores(y=Y, x=X)).rows
    assert (row["label"], row["other"], row["probability"]) == ("x", "y", pytest.approx(0.55))
    assert row["low"] < 0.55 < row["high"]
    profile = {row["threshold"]: row for row in held_out.performance_profiles(scores(x=X)).rows}
    values, rng = np.array(X), np.random.default_rng(9)
    for threshold, share in ((0.25, 0.7857143), (0.5, 0.4642857)):
        assert profile[threshold]["share"] == pytest.approx(share)
        above = [(values[rng.integers(len(values), size=len(values))] > threshold).mean() for _ in range(4000)]
        interval = profile[threshold]["low"], profile[threshold]["high"]
        assert interval == pytest.approx(np.quantile(above, (0.025, 0.975)), abs=0.04)


def test_an_optimum_bounds_what_a_score_is_worth():
    rows = held_out.aggregates(scores(x=[[0.0, 0.2, 0.4, 1.0]]), optimum=0.4).rows
    assert {row["statistic"]: row["value"] for row in rows}["optimality gap"] == pytest.approx(0.4 - 1.0 / 4)


def test_few_seeds_have_the_range_of_the_aggregates_of_each_and_no_interval_of_improvement():
    rows = held_out.aggregates(scores(x=X[:3])).rows
    means = np.mean(X[:3], axis=1)
    (mean,) = (row for row in rows if row["statistic"] == "mean")
    assert (mean["low"], mean["high"]) == pytest.approx((means.min(), means.max()))
    assert {row["band"] for row in rows} == {bands.RANGE}
    (row,) = held_out.probability_of_improvement(scores(x=X[:4], y=Y)).rows
    assert math.isnan(row["low"])
    assert row["band"] == ""


def test_ties_are_half_an_improvement_and_pairs_follow_the_baseline():
    same = [[0.5] * 4, [0.5] * 4]
    found = scores(a=same, b=same, c=np.ones((2, 4)))
    rows = held_out.probability_of_improvement(found).rows
    assert [(row["label"], row["other"], row["probability"]) for row in rows] == [
        ("b", "a", 0.5), ("c", "a", 1.0), ("c", "b", 1.0),
    ]  # fmt: skip
    rows = held_out.probability_of_improvement(found, "c").rows
    assert [(row["label"], row["other"], row["probability"]) for row in rows] == [("a", "c", 0.0), ("b", "c", 0.0)]


def test_pairs_that_no_page_has_room_for_need_a_baseline():
    found = scores(**{f"m{i}": [[0.5] * 4] for i in range(10)})
    with pytest.raises(NotDrawn, match="45 pairs of groups are too many for a figure: say --baseline LABEL"):
        held_out.probability_of_improvement(found)
    assert len(held_out.probability_of_improvement(found, "m3").rows) == 9


def test_bars_are_means_by_task():
    rows = held_out.held_out_bars(scores(x=X, y=Y)).rows
    assert [(row["label"], row["task"]) for row in rows] == [(label, task) for label in "xy" for task in "abcd"]
    assert [row["mean"] for row in rows] == pytest.approx([*np.mean(X, axis=0), *np.mean(Y, axis=0)])
    theirs = bootstrap((np.array(X)[:, 0],), np.mean, method="percentile", n_resamples=20_000, rng=2)
    interval = theirs.confidence_interval
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((interval.low, interval.high), abs=0.01)


def test_scores_are_those_of_the_evaluation_that_all_runs_have_and_of_its_newest_checkpoint():
    a, b = make_run("a", 0, 2), make_run("b", 2, 1, runner={"name": "dr"})
    groups = find_groups([a, b])
    assert scores_of.evaluated(groups).notes == (
        "scores are from the last rows of eval.csv (10 sampled episodes a task)",
    )
    evaluation(a, (0, 1), lambda seed, j: 0.5, n_episodes=500, name="update40-more")
    assert "common to all runs" in scores_of.evaluated(find_groups([a, b])).notes[0]
    for path, seeds in ((a, (0, 1)), (b, (2,))):
        evaluation(path, seeds, lambda seed, j: 0.1, update=20, name="update20-benchmark")
        evaluation(path, seeds, lambda seed, j: (seed + j) / 10)
    found = scores_of.evaluated(find_groups([a, b]))
    assert found.notes == ("scores are from evaluations/update40-benchmark.csv (100 sampled episodes a task)",)
    assert found.tasks == ("Rooms", "Maze")
    by_label = {group.label: group.values.tolist() for group in found.groups}
    assert by_label == {"plr": [[0.0, 0.1], [0.1, 0.2]], "dr": [[0.2, 0.3]]}
    named = scores_of.evaluated(find_groups([a, b]), source="update20-*", tasks=["Maze"])
    assert [group.values.tolist() for group in named.groups] == [[[0.1], [0.1]], [[0.1]]]
    with pytest.raises(NotDrawn, match="b has no evaluation like 'update40-more'"):
        scores_of.evaluated(find_groups([a, b]), source="update40-more")
    assert scores_of.evaluated(find_groups([a, b]), source="eval.csv").groups[0].values[0].tolist() == [0.0, 0.2]


def test_scores_are_those_of_the_first_student():
    """Of PAIRED, the second is the antagonist."""
    path = make_run("a", 0, 1)
    evaluation(path, (0,), lambda seed, j: 0.9, student=0)
    evaluation(path, (0,), lambda seed, j: 0.1, student=1, name="update40-benchmark-student1")
    assert scores_of.evaluated(find_groups([path])).groups[0].values.tolist() == [[0.9, 0.9]]
    other = scores_of.evaluated(find_groups([path]), source="*student1")
    assert other.groups[0].values.tolist() == [[0.1, 0.1]]


def test_the_tasks_of_agents_are_no_held_out_tasks():
    """A table has rows for both. Which tasks agents had may differ between runs; the evaluation is still the same."""
    runs = [make_run("a", 0, 1), make_run("b", 1, 1)]
    for path, seed, tasks in ((runs[0], 0, ("eat", "far/north")), (runs[1], 1, ("eat", "drink"))):
        rows = [
            {"seed": seed, "task": task, "solved_rate": rate, "update": 40, "n_episodes": 100, "actions": "sampled"}
            for held_out, rate in (("Maps", 0.2), ("TrainingDistribution", 0.9))
            for task in (held_out, *(f"{held_out}/{task}" for task in tasks))
        ]
        table(path / "evaluations" / "update40-maps.csv", rows)
    found = scores_of.evaluated(find_groups(runs))
    assert "evaluations/update40-maps.csv" in found.notes[0]
    assert found.tasks == ("Maps",)
    assert found.groups[0].values.tolist() == [[0.2], [0.2]]
    named = scores_of.evaluated(find_groups(runs), tasks=["TrainingDistribution/eat"])
    assert named.groups[0].values.tolist() == [[0.9], [0.9]]
    assert scores_of.evaluated(find_groups(runs[:1])).tasks == ("Maps",)


@pytest.mark.parametrize("n_groups", [1, 9])
def test_there_is_room_for_every_number_of_groups(n_groups, recwarn):
    """matplotlib warns where a figure has no room for its panels, and draws them over each other."""
    pytest.importorskip("matplotlib")
    found = scores(**{f"m{i}": [[0.5, 0.2, 0.7, 0.1]] for i in range(n_groups)})
    for make in (held_out.held_out_bars, held_out.aggregates, held_out.performance_profiles):
        with style.style():
            make(found).draw().draw_without_rendering()
    assert [str(warning.message) for warning in recwarn] == []


def test_no_two_of_many_groups_look_alike():
    for look in (style.marker, style.hatch, lambda i: str(style.line_style(i)["linestyle"])):
        assert len({(style.colour(i), look(i)) for i in range(30)}) == 30


@pytest.mark.parametrize(
    ("ends", "ticks"),
    [
        ((0, 30_000), ["0", "10k", "20k", "30k"]),
        ((0, 2_000_000), ["0", "500k", "1M", "1.5M", "2M"]),
        ((1_402_000, 1_406_000), ["1.402M", "1.403M", "1.404M", "1.405M", "1.406M"]),  # steps a second on a GPU
        ((5540, 5560), ["5.54k", "5.545k", "5.55k", "5.555k", "5.56k"]),
    ],
)
def test_no_two_numbers_of_an_axis_are_written_alike(ends, ticks):
    pytest.importorskip("matplotlib")
    drawn, ((axes,),) = style.figure(1.0)
    axes.set_xlim(*ends)
    style.count_axis(axes.xaxis)
    drawn.canvas.draw()
    assert [label.get_text() for label in axes.get_xticklabels()] == ticks


def test_metrics_have_names_on_axes():
    assert words.named("held_out/Maze/solved_rate") == "solved rate, Maze"
    assert words.named("held_out/entropy") == "entropy, held-out tasks"
    assert words.named("held_out/return") == "return, held-out tasks"
    assert words.named("grad_norm") == "grad norm"
    assert [words.is_share(name) for name in ("solvable", "held_out/Maze/solved_rate", "n_walls")] == [
        True,
        True,
        False,
    ]


def test_evaluations_in_training_that_were_made_differently_are_named():
    runs = [make_run("a", 0), make_run("b", 2, eval={"n_episodes": 5, "greedy": True})]
    (note,) = scores_of.evaluated(find_groups(runs, by=["runner"]), source="eval.csv").notes
    assert note.endswith(" (10 sampled episodes a task, and others of 5 greedy episodes a task)")
    # Under other rules, tasks of the same names have other time limits.
    runs = [make_run("c", 0), make_run("d", 2, eval={"protocol": "dcd"})]
    (note,) = scores_of.evaluated(find_groups(runs, by=["runner"]), source="eval.csv").notes
    both = "10 sampled episodes a task, and others of 10 sampled episodes a task by the rules of dcd"
    assert note.endswith(f" ({both})")
    assert curves.learning_curve(find_groups(runs), "held_out/return").notes == [f"evaluations are of {both}"]
    assert curves.learning_curve(find_groups(runs[:1]), "held_out/return").notes == []


def test_shares_of_random_levels_have_bars_and_no_aggregates():
    a = make_run("a", 0, 1)
    evaluation(a, (0,), lambda seed, j: 0.1 * j, name="update40-robust", n_levels=100, n_worst=3)
    found = scores_of.evaluated(find_groups([a]), source="*robust*")
    assert held_out.held_out_bars(found).rows[1]["mean"] == pytest.approx(0.1)
    with pytest.raises(NotDrawn, match="random levels"):
        held_out.aggregates(found)
    assert scores_of.evaluated(find_groups([a])).notes == (
        "scores are from the last rows of eval.csv (10 sampled episodes a task): no evaluation of minimax-evaluate is "
        "common to all runs",
    )


# --------------------------------------------------------------------------------------------------------------- groups


def labels(*arguments, **options):
    return {group.label: [str(run.path) for run in group.runs] for group in find_groups(*arguments, **options)}


def test_runs_are_grouped_by_method_and_labelled_by_what_differs():
    make_run("dr", runner={"name": "dr"})
    make_run("a", 0)
    make_run("b", 2, log_dir="elsewhere", name="b", n_devices=2)
    make_run("c", runner=SETTINGS["runner"] | {"replay_prob": 0.8})
    make_run("d", runner=SETTINGS["runner"] | {"replay_prob": 0.8, "robust": False}, model={"name": "s5"})
    every = ["dr", "a", "b", "c"]
    assert labels(every) == {"dr": ["dr"], "plr (replay_prob=0.5)": ["a", "b"], "plr (replay_prob=0.8)": ["c"]}
    assert labels(["a", "b"]) == {"plr": ["a", "b"]}
    assert list(labels(["c", "d"])) == ["plr (lstm, robust=true)", "plr (s5, robust=false)"]


def test_runs_that_begin_with_a_trained_agent_are_another_method():
    make_run("scratch", 0)
    for seed in (2, 4):  # each from its own
        make_run(f"tuned-{seed}", seed, init_from=f"runs/before-{seed}")
    every = ["scratch", "tuned-2", "tuned-4"]
    expected = {"plr (init_from not set)": every[:1], "plr (init_from=given)": every[1:]}
    assert labels(every) == expected
    assert labels(every[1:]) == {"plr": every[1:]}


def test_runs_are_grouped_by_settings_and_by_patterns():
    make_run("runs/a", 0)
    make_run("runs/b", 2, ppo={"lr": 2e-4})
    make_run("runs/dr-s0", 0, runner={"name": "dr"})
    runs = ["runs/a", "runs/b", "runs/dr-s0"]
    assert labels(runs[:2], by=["ppo.lr"]) == {"lr=0.0001": ["runs/a"], "lr=0.0002": ["runs/b"]}
    assert labels(runs, by=["runner", "ppo.lr"]) == {
        "plr, lr=0.0001": ["runs/a"], "plr, lr=0.0002": ["runs/b"], "dr, lr=0.0001": ["runs/dr-s0"],
    }  # fmt: skip
    assert phrase(["runner.robust", "ppo.robust"], {"ppo.robust": None}) == "runner.robust not set, ppo.robust=none"
    assert labels([], [("DR", "runs/dr-*"), ("PLR", "runs/[ab]")]) == {"DR": runs[2:], "PLR": runs[:2]}
    assert labels(runs, [("DR", "dr-*")], by=["runner.name"]) == {"DR": runs[2:], "plr": runs[:2]}


def test_a_seed_is_pooled_once():
    make_run("a", 0, 2)
    make_run("b", 1, 2)
    with pytest.raises(ValueError, match=r"^seed 1 of 'plr' is in a and in b: it can be pooled only once"):
        find_groups(["a", "b"])
    with pytest.raises(ValueError, match="is named twice"):
        find_groups(["a", "a/"])
    with pytest.raises(ValueError, match="has the label 'X' and the label 'Y'"):
        find_groups([], [("X", "a"), ("Y", "[ab]")])


def test_a_folder_that_claims_any_number_of_seeds_is_refused_quickly():
    make_run("a")
    (make_run("b") / "config.yaml").write_text(yaml.safe_dump(SETTINGS | {"n_seeds": 10**12}))
    with pytest.raises(ValueError, match="seed 0 of"):
        find_groups(["a", "b"], by=["runner"])


def test_a_shipped_configuration_and_the_one_that_is_completed_are_one_method(tmp_path):
    """Settings that a later version has added have their defaults in older runs."""
    short = yaml.safe_load(located("maze/plr").read_text())
    for i, name in enumerate(("a", "b")):
        make_run(name, 2 * i)
        more = {"runner": short["runner"] | {"capacity": 4000}} if i else {}
        (tmp_path / name / "config.yaml").write_text(yaml.safe_dump(short | {"seed": 2 * i, "n_seeds": 2} | more))
    assert labels(["a", "b"]) == {"plr": ["a", "b"]}


# -------------------------------------------------------------------------------------------------------------- replay


def test_replay_mass_is_summed_over_whole_bins():
    assert replay.bin_edges(np.array([3.0, 5.0])).tolist() == [3, 4, 5, 6]
    assert replay.bin_edges(np.array([2.0, 2.0])).tolist() == [2, 3]
    edges = replay.bin_edges(np.arange(30.0))
    assert np.all(np.diff(edges) == 3)
    assert edges[0] == 0
    assert edges[-1] >= 30
    for values, middles in (
        (np.arange(30.0), np.arange(1.0, 30, 3)),
        (np.array([0.0, 1.0]), [0, 1]),  # levels that can be solved, and others
        (np.array([0.0, 0.5, 12.0]), np.arange(12) + 0.5),
    ):
        assert replay.bin_middles(values, replay.bin_edges(values)) == pytest.approx(middles)
    one = replay.Kept(0, {"n_walls": np.array([0.0, 1.0, 4.0, 29.0])}, np.array([0.1, 0.2, 0.3, 0.4]))
    mass, share = replay.shares_by_bin([one], "n_walls", edges)
    assert mass[0, :2] == pytest.approx([0.3, 0.3])
    assert share[0, :2] == pytest.approx([0.5, 0.25])
    assert mass.sum() == share.sum() == pytest.approx(1)


@pytest.mark.deep
@pytest.mark.parametrize("n_devices", [1, 2])
def test_replay_mass_is_that_of_the_checkpoints_buffer(n_devices):
    runner = {"name": "plr", "capacity": 8, "min_fill": 0.5, "staleness": 0.25, "temperature": 0.5}
    _, state = save_tiny_run(Path("run"), runner, n_seeds=2, n_devices=n_devices)
    table(Path("run/metrics.csv"), metrics_rows(range(2), lambda seed, i: i))
    rows = replay.replay_by_difficulty(find_groups(["run"]), "n_walls").rows
    buffer = jax.device_get(state.curriculum.buffer)
    walls = np.asarray(buffer.levels.wall_map).sum(axis=(-2, -1)).reshape(2, -1)
    expected = {int(n): np.zeros(2) for n in range(walls.min(), walls.max() + 1)}
    for seed in range(2):
        scores, ages = (np.asarray(x[seed], np.float64).reshape(n_devices, -1) for x in (buffer.scores, buffer.ages))
        for device in range(n_devices):
            strengths = (1.0 / (1 + np.argsort(np.argsort(-scores[device])))) ** (1 / 0.5)
            mass = 0.75 * strengths / strengths.sum() + 0.25 * ages[device] / ages[device].sum()
            own = walls[seed].reshape(n_devices, -1)[device]
            for n, part in zip(own, mass, strict=True):
                expected[int(n)][seed] += part / n_devices
    assert {int(row["from"]): row["replay_mean"] for row in rows} == pytest.approx(
        {n: mass.mean() for n, mass in expected.items()}, abs=1e-5
    )
    assert sum(row["kept_mean"] for row in rows) == pytest.approx(1)
    assert {(row["n_seeds"], row["band"]) for row in rows} == {(2, bands.RANGE)}
    with pytest.raises(ValueError, match="unknown difficulty 'walls': choose from n_walls"):
        replay.chosen_difficulty({"plr": [replay.Kept(0, {"n_walls": np.ones(1)}, np.ones(1))]}, "walls")


def test_in_games_levels_are_replayed_by_the_settings_of_their_own_curriculum(monkeypatch):
    """A game has them in `levels`; with MAESTRO there is a buffer for each co-player, and no single next one."""
    settings = PLRSettings(capacity=3, temperature=0.5, staleness=0.0)
    score = np.array([0.3, 0.2, 0.1], np.float32)
    nothing = jax.numpy.zeros(3, jax.numpy.int32)
    buffer = level_buffer.init(nothing[0], 3).replace(scores=score, filled=np.ones(3, bool), ages=nothing)
    monkeypatch.setattr("minimax_lib.runners.build.mesh_of", lambda config: SimpleNamespace(n_rows=1))

    def mass(runner, buffer):
        config = SimpleNamespace(runner=runner)
        return replay.replay_mass(SimpleNamespace(level_buffer=buffer, curriculum=buffer, config=config, path="x"))

    expected = np.array([1, 1 / 4, 1 / 9])  # by rank
    for runner in (SelfPlayMethod(levels=settings), PLR(capacity=3, temperature=0.5, staleness=0.0)):
        assert mass(runner, buffer) == pytest.approx(expected / expected.sum())
    several = jax.tree.map(lambda x: np.stack([x, x]), buffer)
    with pytest.raises(ValueError, match="x has a level buffer for each co-player"):
        mass(MaestroMethod(), several)


def test_runs_that_keep_no_levels_do_not_keep_their_group_out(monkeypatch):
    def kept(run):
        if run.path.name == "a":
            return [replay.Kept(0, {"n_walls": np.array([1.0, 2.0])}, np.array([0.5, 0.5]))]
        if run.path.name == "b":
            raise ValueError(f"{run.path} holds no checkpoint")
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED:\nout of memory")

    monkeypatch.setattr(replay, "kept_levels", kept)
    for i, name in enumerate("abc"):
        make_run(name, i, 1)
    picture = replay.replay_by_difficulty(find_groups(["a", "b", "c"]))
    assert {row["n_seeds"] for row in picture.rows} == {1}
    assert picture.notes == ["plr: b holds no checkpoint (and 1 more)"]
    with pytest.raises(NotDrawn, match="plr: b holds no checkpoint"):
        replay.replay_by_difficulty(find_groups(["b", "c"]))
    with pytest.raises(NotDrawn, match="plr: RESOURCE_EXHAUSTED: out of memory"):
        replay.replay_by_difficulty(find_groups(["c"]))


def test_without_a_device_for_jax_the_figure_of_replay_alone_is_missing(monkeypatch):
    def none():
        raise RuntimeError("no backend")

    monkeypatch.setattr(jax, "devices", none)
    with pytest.raises(NotDrawn, match="jax finds no device"):
        replay.replay_by_difficulty(find_groups([make_run("a")]))


# -------------------------------------------------------------------------------------------------------------- command


@pytest.fixture
def two_methods():
    for i in range(3):
        make_run(f"runs/plr-{i}", 2 * i, columns=LEVELS)
        make_run(f"runs/dr-{i}", 2 * i, value=lambda seed, i: i, runner={"name": "dr"})
    return sorted(str(path) for path in Path("runs").iterdir())


def test_every_figure_is_written_with_its_numbers_and_no_run_is_changed(two_methods, capsys):
    pytest.importorskip("matplotlib")
    before = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert main([*two_methods, "--baseline", "dr", "--format", "svg"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("dr: 6 seeds (runs/dr-0, runs/dr-1, runs/dr-2)\nplr: 6 seeds")
    assert "not drawn: replay by difficulty: dr: 'runs/dr-0/config.yaml' is of a run with plugins" in out
    names = {path.stem for path in Path("plots").glob("*.csv")}
    assert names == {
        "curve-return", "curve-solved_rate", "curve-held_out-solved_rate", "complexity-n_walls", "held_out-solved_rate",
        "aggregates-solved_rate", "improvement-solved_rate", "profiles-solved_rate", "gap-solved_rate",
        "relative-return", "relative-held_out-return",
    }  # fmt: skip
    for name in names:
        assert written(f"plots/{name}.csv"), name
        assert Path(f"plots/{name}.svg").read_bytes().startswith(b"<?xml"), name
    row = written("plots/curve-return.csv")[-1]
    assert (row["label"], row["n_seeds"], row["band"]) == ("plr", "6", bands.INTERVAL)
    assert float(row["env_steps"]) == 4_000  # the axis, since updates of two methods differ in what they take
    assert float(row["mean"]) == pytest.approx(np.mean([seed + 4 for seed in range(6)]))
    assert {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()} == before


def test_figures_that_cannot_be_drawn_are_lines_and_the_others_are_drawn(capsys):
    pytest.importorskip("matplotlib")
    (make_run("a") / "eval.csv").unlink()
    assert main(["a", "--out", "out"]) == 0
    out = capsys.readouterr().out
    assert "not drawn: learning curve of held_out/solved_rate: solved_rate has no numbers in eval.csv" in out
    assert "not drawn: held-out bars: a has no eval.csv (minimax-evaluate --run a makes an evaluation)" in out
    assert "not drawn: complexity curves: no level metric in metrics.csv" in out
    assert "not drawn: return relative to a baseline: say --baseline LABEL, one of plr" in out
    assert {path.name for path in Path("out").glob("*.png")} == {"curve-return.png", "curve-solved_rate.png"}
    assert main(["a", "--figures", "held-out", "gap", "--out", "none"]) == 1
    assert capsys.readouterr().err == "error: nothing can be drawn from these runs\n"
    assert main(["a", "--figures", "tasks", "--out", "none"]) == 1
    assert "not drawn: tasks: no log of a Host is given" in capsys.readouterr().out
    assert not Path("none").exists()
    assert main([str(make_run("b")), "--figures", "improvement", "--out", "none"]) == 1
    assert "it needs two groups of runs" in capsys.readouterr().out


def test_labels_are_drawn_as_they_are(capsys):
    pytest.importorskip("matplotlib")
    make_run("a")
    assert main(["--label", "_$x_{1$=a", "--metrics", "return", "--figures", "curves", "gap", "--format", "svg"]) == 0
    assert written("plots/curve-return.csv")[0]["label"] == "_$x_{1$"


def test_own_figures_are_replaced_and_nobody_elses(tmp_path):
    folder = FigureFolder(tmp_path / "plots")
    first = folder.write("curve", {"png": b"1", "csv": b"1"})
    assert [path.name for path in first] == ["curve.png", "curve.csv"]
    assert FigureFolder(tmp_path / "plots").write("curve", {"png": b"2", "csv": b"2"}) == first
    assert first[0].read_bytes() == b"2"
    first[1].write_bytes(b"mine")  # changed by its reader
    second = FigureFolder(tmp_path / "plots").write("curve", {"png": b"3", "csv": b"3"})
    assert [path.name for path in second] == ["curve-2.png", "curve-2.csv"]
    assert (first[0].read_bytes(), first[1].read_bytes()) == (b"2", b"mine")
    (tmp_path / "plots" / "bars.png").write_bytes(b"theirs")
    assert folder.write("bars", {"png": b"4", "csv": b"4"})[0].name == "bars-2.png"
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    (tmp_path / "plots" / "link.png").symlink_to(target)
    assert folder.write("link", {"png": b"5", "csv": b"5"})[0].name == "link-2.png"
    assert target.read_bytes() == b"kept"


def test_two_figures_of_one_name_are_both_kept_and_both_replaced_by_the_next_call(tmp_path):
    for content in ((b"1", b"2"), (b"3", b"4")):
        folder = FigureFolder(tmp_path / "plots")
        files = [folder.write("tasks-tasks", {"csv": one})[0] for one in content]
        assert [path.name for path in files] == ["tasks-tasks.csv", "tasks-tasks-2.csv"]
        assert tuple(path.read_bytes() for path in files) == content


def test_the_same_figure_is_the_same_file(two_methods):
    pytest.importorskip("matplotlib")
    picture = curves.learning_curve(find_groups(two_methods), "return")
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        image = picture.image(kind)
        assert image.startswith(start)
        assert image == picture.image(kind)
    with pytest.raises(ValueError, match=r"^unknown format 'jpg': choose from png, pdf, svg"):
        picture.save("curve.jpg")


def test_a_curve_of_one_interval_can_be_seen():
    pytest.importorskip("matplotlib")
    for name, runner in (("a", "plr"), ("b", "dr")):
        table(make_run(name, runner={"name": runner}) / "metrics.csv", metrics_rows(range(2), lambda s, i: s, n=2)[2:])
    groups = find_groups(["a", "b"])
    pictures = (
        curves.learning_curve(groups, "return"),
        curves.generalisation_gap(groups),
        relative_curve(groups, "return", "dr"),
    )
    for picture in pictures:
        drawn = [line for axes in picture.draw().axes for line in axes.lines if len(line.get_xdata()) == 1]
        assert drawn
        assert all(line.get_marker() not in ("", "None") for line in drawn)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run is given: name their folders first, as in minimax-plot runs/*"),
        (["runs/aa"], "unknown run 'runs/aa': choose from runs/a (did you mean 'runs/a'?)"),
        (["runs"], "runs is not the folder of a run: it has no config.yaml (it holds 1, such as runs/a)"),
        (["notes.txt"], "notes.txt is a file: runs are folders"),
        (["runs/a/config.yaml"], "runs/a/config.yaml is a file: runs are folders (say runs/a)"),
        (["runs/a/levels"], "run 'runs/a/levels' does not exist (say runs/a)"),
        (["aa"], "unknown run 'aa': choose from runs/a, empty (did you mean 'runs/a'?)"),
        (["runs/a", "--figures", "curvs"], f"unknown figures 'curvs': choose from {', '.join(FIGURES)} (did you mean"),
        (
            ["runs/a", "--figures", "held-out", "--metrics", "return"],
            "--metrics is 'return', which is for --figures curves only: add that, or leave it out",
        ),
        (
            ["runs/a", "--figures", "curves", "--baseline", "plr"],
            "--baseline is 'plr', which is for --figures improvement relative only: add one, or leave it out",
        ),
        (["runs/a", "--format", "jpg"], "unknown format 'jpg': choose from png, pdf, svg (did you mean 'png'?)"),
        (["runs/a", "--metrics", "retrun"], "unknown metric 'retrun': choose from return, "),
        (["runs/a", "--baseline", "dr"], "unknown baseline 'dr': choose from plr"),
        (["runs/a", "--label", "dr"], "--label is 'dr': it must be NAME=PATTERN, as in 'DR=runs/dr-*'"),
        (["--label", "X=runs/b*"], "unknown pattern 'runs/b*': choose from runs/a (did you mean 'runs/a'?)"),
        (["runs/a", "--by", "runner.replay"], "unknown setting 'runner.replay': choose from "),
        (["runs/a", "--score", "solve_rate"], "unknown score 'solve_rate': choose from return, solved_rate"),
        (["runs/a", "--tasks", "Room"], "unknown held-out task 'Room': choose from Rooms, Maze, TrainingDistribution"),
        (
            ["runs/a", "--tasks", "Room", "--figures", "curves"],
            "unknown held-out task 'Room': choose from Rooms, Maze, ",
        ),
        (["runs/a", "--smooth", "0"], "--smooth is 0: it must be at least 1"),
        (["runs/a", "--x", "steps"], "unknown x 'steps': choose from updates, env_steps, seconds"),
        (["runs/a", "--out", ""], "--out is '': it must be a folder"),
        (["runs/a", "--out", "notes.txt/x"], "--out is 'notes.txt/x': it must be a folder, and 'notes.txt' is a file"),
        (
            ["runs/a", "--held-out", "eval.cvs"],
            "unknown evaluation 'eval.cvs': choose from auto, eval.csv (did you mean",
        ),
        (["runs/a", "--nope"], "unknown flag --nope: choose from "),
        (["empty"], "empty has no metrics.csv: there is nothing to draw yet"),
    ],
)
def test_bad_requests_are_one_line_and_status_2_and_write_nothing(words, message, capsys, elsewhere):
    make_run("runs/a", seed=0)
    (elsewhere / "notes.txt").write_text("")
    (elsewhere / "empty").mkdir()
    (elsewhere / "empty" / "config.yaml").write_text("seed: 0\n")
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {message}"), printed.err
    assert printed.err.count("\n") == 1
    assert sorted(path.name for path in elsewhere.iterdir()) == ["empty", "notes.txt", "runs"]


@pytest.mark.parametrize("cell", ["x", "nan", ""])
def test_a_row_whose_keys_are_no_numbers_is_told_and_left_out(cell, capsys):
    path = make_run("a") / "metrics.csv"
    path.write_text(path.read_text().replace("10,20,0,", f"10,20,{cell},", 1))
    number = 1 + [line[:6] for line in path.read_text().splitlines()].index("10,20,")
    assert main(["a", "--metrics", "return", "--figures", "curves"]) == 0
    assert capsys.readouterr().err == f"warning: a/metrics.csv: line {number} has no number in column 'seed'\n"


@pytest.mark.parametrize("how", SAID)
def test_every_table_that_is_not_as_it_was_is_told(how, capsys):
    change, said = SAID[how]
    for name in ("metrics.csv", "eval.csv"):
        path = make_run(name.removesuffix(".csv")) / name
        path.write_bytes(change(path.read_bytes()))
        read = name.removesuffix(".csv").replace("eval", "evals")
        carried_out([str(path.parent)], lambda words, read=read: getattr(read_run(words[0]), read), lambda _: 0)
        line = capsys.readouterr().err
        assert line.split(": ")[1].startswith(str(path))
        assert line.count("\n") == 1
        if name == "metrics.csv":
            assert said in line


def test_a_table_with_semicolons_is_refused_and_one_with_half_a_line_is_drawn(capsys):
    path = make_run("a") / "metrics.csv"
    content = path.read_text()
    path.write_text(content.replace(",", ";"))
    assert main(["a"]) == 2
    hint = "line 1 names no column 'update' (its cells are divided by ';': save it with commas)"
    assert capsys.readouterr().err == f"error: a/metrics.csv cannot be read: {hint}\n"
    path.write_text(content[:-3])
    (path.parent / "evaluations").mkdir()
    (path.parent / "evaluations" / "notes.csv").write_text("my;notes\n")
    assert main(["a", "--metrics", "return", "--figures", "curves", "held-out"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first == "warning: a/metrics.csv: line 9 has no line break: it is left out, since it may have been cut off"
    assert second.startswith("warning: a/evaluations/notes.csv cannot be read: line 1 names no column 'seed'")


@pytest.mark.deep
def test_a_request_is_refused_without_loading_what_draws():
    slow = ("matplotlib", "orbax", "scipy.stats", "distrax")
    code = (
        "import sys; from minimax_lib.commands.plot import main; status = main(['no/run']);"
        f"print(status, [m for m in {slow} if m in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "2 []\n"


def test_the_help_explains_every_flag(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for name in (field.name for field in dataclasses.fields(parse(["x"]))):
        assert f"--{name.replace('_', '-')} " in text.replace("_", "-"), name


@pytest.mark.deep
def test_a_real_run_is_drawn(capsys):
    pytest.importorskip("matplotlib")
    config = toy_config(".", name="toy")
    ExperimentRunner(config, toy_program(config), EVALUATION).run()
    capsys.readouterr()
    assert main(["toy", "--figures", "curves", "held-out", "gap", "--x", "updates"]) == 0
    rows = written("plots/curve-held_out-solved_rate.csv")
    assert [int(row["updates"]) for row in rows] == [0, 6, 12, 18, 24]
    assert {row["n_seeds"] for row in rows} == {"2"}


@pytest.mark.deep
def test_the_page_about_plotting_runs(tmp_path):
    pytest.importorskip("matplotlib")
    for i in range(2):
        make_run(f"runs/dr-s{i}", i, 1, runner={"name": "dr"})
        make_run(f"runs/plr-s{i}", i, 1)
    names = run_blocks(ROOT / "docs" / "plotting.md", tmp_path)
    assert [group.label for group in names["groups"]] == ["PLR", "dr"]
    assert (tmp_path / "curve.pdf").exists()


# ----------------------------------------------------------------------------------------------------------- opponents


def games(path, update, win, tasks=("Cross", "Star"), opponents=("random", "bot"), n_games=10, student=0):
    """A file of games: win(seed, opponent, task) is the share of wins. A copy of the own bank always wins."""
    rows = [
        {"seed": seed, "task": task, "opponent": who, "opponent_seed": "", "opponent_update": "", "opponent_copy": copy}
        | {"n_games": n, "win": 0.0 if copy != "" else win(seed, who, task) + 0.1 * (n != n_games), "update": update}
        | {"student": student}
        for seed in (0, 1)
        for who, copy, n in [*((who, "", n) for who in opponents for n in (n_games, 30)), ("bank", 0, n_games)]
        for task in tasks
    ]
    table(path, rows)


def test_wins_against_opponents_are_means_over_tasks_and_games(elsewhere, capsys):
    for name in ("a", "b"):
        make_run(f"runs/{name}")
    games(Path("runs/a/evaluations/matches/update20-against-bot.csv"), 20, lambda *_: 0.9)
    wins = lambda seed, who, task: 0.2 * seed + 0.1 * (who == "bot") + 0.2 * (task == "Star")  # noqa: E731
    games(Path("runs/a/evaluations/matches/update40-against-random-bot.csv"), 40, wins)
    games(Path("runs/b/evaluations/matches/update40-against-bot.csv"), 40, lambda *_: 0.5, opponents=("bot",))
    table(Path("runs/a/evaluations/matches/update40-against-bot-matrix.csv"), [{"player": "a", "opponent": "b"}])
    assert main(["--label", "A=runs/a", "B=runs/b", "--figures", "opponents"]) == 0
    rows = written("plots/opponents.csv")
    assert [(row["label"], row["opponent"]) for row in rows] == [("A", "bot"), ("B", "bot")]  # b has not met random
    # 10 games at the share, 30 at the share and a tenth more; two tasks; two seeds.
    assert float(rows[0]["mean"]) == pytest.approx(0.1 + (0.0 + 0.2) / 2 + (0.0 + 0.2) / 2 + 0.075)
    assert float(rows[0]["low"]) == pytest.approx(0.275)
    assert float(rows[1]["mean"]) == pytest.approx(0.575)
    assert "a draw is not a win" in capsys.readouterr().out
    # b has later games, on one of the maps: the mean over it is not that over both.
    star = Path("runs/b/evaluations/matches/update60-against-bot.csv")
    games(star, 60, lambda *_: 0.1, tasks=("Star",), opponents=("bot",))
    assert main(["--label", "A=runs/a", "B=runs/b", "--figures", "opponents"]) == 0
    assert [float(row["mean"]) for row in written("plots/opponents.csv")] == [float(row["mean"]) for row in rows]
    Path("runs/b/evaluations/matches/update40-against-bot.csv").unlink()
    assert main(["--label", "A=runs/a", "B=runs/b", "--figures", "opponents"]) == 1
    assert "no games on the same tasks, played in the same way" in capsys.readouterr().out


def test_an_opponent_that_some_seed_has_not_met_is_left_out(elsewhere):
    """`--most-steps` leaves pairs out: the file has no row for them."""
    folder = Path("a/evaluations/matches")
    make_run("a", 0, 3)
    for student, win in ((0, 0.4), (1, 0.9)):
        games(folder / f"student{student}.csv", 40, lambda *_, win=win: win, student=student)
        rows = written(folder / f"student{student}.csv")
        kept = [row for row in rows if row["opponent"] != "bot" or row["seed"] == "0"]
        table(folder / f"student{student}.csv", kept)
    found = met(find_groups(["a"]))
    assert found.tasks == ("random",)
    assert found.groups[0].values == pytest.approx(np.full((2, 1), 0.475))  # of the first student
    assert found.notes[1:] == ("not all seeds have met bot: left out", "plr: 2 of its 3 seeds have games")


BANK = {
    "opponents/newest_win_rate": lambda seed, i: 0.5,
    "opponents/win_rate": lambda seed, i: 0.6,
    "opponents/oldest_win_rate": lambda seed, i: 0.9 - 0.1 * i if i > 1 else math.nan,
    "opponents/lowest_win_rate": lambda seed, i: 0.1 * seed,
}


def test_wins_against_the_bank_are_one_figure(capsys):
    """Of a run with a bank it is drawn with all others; where it is asked for and there is none, a line says so."""
    pytest.importorskip("matplotlib")
    make_run("a", 0, 2, columns=BANK, runner={"name": "selfplay"})
    make_run("b", 2, 1)
    assert main(["a", "b", "--x", "env_steps", "--figures", "bank"]) == 0
    assert "note: plr: opponents/oldest_win_rate has no numbers in metrics.csv" in capsys.readouterr().out
    rows = written("plots/bank.csv")
    assert list(dict.fromkeys(row["copy"] for row in rows)) == [
        "newest copy",
        "all copies",
        "oldest copy",
        "hardest copy",
    ]
    oldest = [(int(row["env_steps"]), float(row["mean"])) for row in rows if row["copy"] == "oldest copy"]
    assert oldest == [(2000, pytest.approx(0.7)), (3000, pytest.approx(0.6)), (4000, pytest.approx(0.5))]
    assert {(float(row["low"]), float(row["high"])) for row in rows if row["copy"] == "hardest copy"} == {(0.0, 0.1)}
    assert main(["b", "--figures", "bank"]) == 1
    said = "not drawn: wins against the bank: opponents/newest_win_rate has no numbers in metrics.csv"
    assert said in capsys.readouterr().out
    groups = find_groups(["a"])
    assert [what for what, _ in requests(parse(["a"]), groups) if "bank" in what] == ["wins against the bank"]
    assert not [what for what, _ in requests(parse(["b"]), find_groups(["b"])) if "bank" in what]


def test_runs_that_have_met_nobody(elsewhere, capsys):
    make_run("runs/a")
    assert main(["runs/a", "--figures", "opponents"]) == 1
    assert "runs/a has met no opponents: minimax-evaluate --run runs/a --opponents random" in capsys.readouterr().out

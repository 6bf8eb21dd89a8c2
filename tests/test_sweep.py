"""Sweeps: which runs a file asks for, how they are started, skipped, resumed and compared. Nothing is compiled."""

import csv
import importlib.util
import itertools
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import filelock
import jax
import numpy as np
import optuna
import pytest
import yaml
from saved_tables import READ, SAID

from minimax_lib.commands import sweep as commands
from minimax_lib.commands.sweep import main
from minimax_lib.config import to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.shipped import shipped, shipped_sweeps
from minimax_lib.config.sweep import Between, ScoreSettings, SweepKeys, read_sweep, sweep_of
from minimax_lib.config.sweep_command import Command, parse
from minimax_lib.config.train import load_yaml
from minimax_lib.config.tree import flat, setting_hints
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.extras import how_to_install
from minimax_lib.runners.build import make_program
from minimax_lib.store.parameters import save_params
from minimax_lib.sweeps import runs as sweep_runs
from minimax_lib.sweeps import work
from minimax_lib.sweeps.runs import check_of, short_names
from minimax_lib.sweeps.study import FINISHED, SweepStudy, combinations_of
from minimax_lib.sweeps.table import caption, last_rows, result_of

ROOT = Path(__file__).parent.parent
STUB = (sys.executable, str(ROOT / "tests" / "stub_training.py"))
ENV = os.environ | {"PYTHONPATH": str(ROOT)}
TASKS = ("MiniMaze", "TrainingDistribution")
SETTINGS = {
    "env": {"height": 3, "width": 3, "n_walls": 2, "max_steps": 12},
    "n_updates": 20,
    "n_seeds": 2,
    "eval": {"every": 10, "tasks": list(TASKS)},
}
BASE = {"config": "maze/dr", "settings": SETTINGS, "score": {"tasks": list(TASKS)}, "name": "toy"}
LRS = {"ppo.lr": [0.01, 0.02, 0.03]}
TPE = {"sampler": "tpe", "n_trials": 16, "vary": {"ppo.lr": {"low": 1e-3, "high": 1.0}, "runner": ["dr", "plr"]}}
TOY = Path("runs/sweeps/toy")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder, with a training command that does nothing in particular."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, "POLL", 0.02)
    behave()
    return tmp_path


def behave(**how: str) -> None:
    """What is to become of learning rates: lr_0_01="fail"."""
    names = {name.removeprefix("lr_").replace("_", "."): what for name, what in how.items()}
    Path("behave.json").write_text(json.dumps(names))


def starts() -> list[list]:
    """What the stub recorded of starts: [learning rate, update, time, cores, process]."""
    lines = Path("starts.txt").read_text().splitlines() if Path("starts.txt").exists() else []
    return [start for start in map(json.loads, lines) if start[1] != "end"]


def started() -> list[tuple]:
    return [(lr, update) for lr, update, *_ in starts()]


def write(**keys) -> str:
    Path("toy.yaml").write_text(yaml.safe_dump(BASE | keys, sort_keys=False))
    return "toy.yaml"


def sweep(*words, **keys) -> int:
    return main([write(**keys), *map(str, words)], train=STUB)


def rows(*columns: str) -> list:
    """The rows of sweep.csv, or some of their columns."""
    with (TOY / "sweep.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    return [tuple(row[column] for column in columns) for row in found] if columns else found


def runs_of(asked) -> list:
    """The runs of all trials, unchecked but for their settings."""
    study = SweepStudy(asked, lambda config: None)
    return [study.run(number) for number in study.numbers]


def made(**keys) -> list:
    return runs_of(sweep_of(BASE | keys))


def opened(**keys) -> SweepStudy:
    study = SweepStudy(sweep_of(BASE | keys), lambda config: None)
    study.open(write=True)
    return study


def journal() -> list[list]:
    """What Optuna reads in the journal of the only study: [state, values, score] of each trial."""
    backend = optuna.storages.journal.JournalFileBackend(str(TOY / "journal.log"))
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    return [[trial.state.name, trial.params, trial.value] for trial in study.trials]


def wait_for(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_grid_is_all_combinations_in_the_order_of_the_file():
    runners = ["dr", {"name": "plr", "staleness": 0.25}]
    found = made(vary={"ppo.lr": [0.1, "2e-1"], "runner": runners, "ppo.gamma": [0.5, 0.75, 1.0]})
    expected = list(itertools.product([0.1, 0.2], ["dr", "plr"], [0.5, 0.75, 1.0]))
    assert [run.number for run in found] == list(range(1, 13))
    for run, (lr, runner, gamma) in zip(found, expected, strict=True):
        values = flat(to_dict(run.config))
        assert (values["ppo.lr"], values["runner.name"], values["ppo.gamma"]) == (lr, runner, gamma)
        assert values.get("runner.staleness", 0.25) == 0.25
        assert (values["env.height"], values["n_seeds"]) == (3, 2)
    (one,) = made()  # nothing varies
    assert (str(one), one.config.n_updates) == ("", 20)


def test_a_setting_goes_with_the_name_that_is_chosen_beside_it_in_any_order():
    ways = [{"runner.staleness": [0.2, 0.4], "runner": ["plr"]}, {"runner": ["plr"], "runner.staleness": [0.2, 0.4]}]
    for vary in ways:
        assert [run.config.runner.staleness for run in made(vary=vary)] == [0.2, 0.4]


def test_what_a_trial_leaves_behind_is_said_once_before_it_is_trained(capsys):
    """BASE says nothing of the model: its configuration does."""
    vary = {"model": ["gru", "lstm", {"name": "lstm", "memory_width": 64, "memory_span": 30}], "ppo.lr": [0.1, 0.2]}
    said = "model is lstm, and what was said of gru does not count for it: memory_width 256 (was 64), "
    found = made(config="maze/cpu/dr", vary=vary)
    assert [line.startswith(said) for run in found for line in run.left_behind] == [True, True]
    assert [len(run.left_behind) for run in found] == [0, 0, 1, 1, 0, 0]
    assert sweep("--dry-run", config="maze/cpu/dr", vary=vary) == 0
    assert capsys.readouterr().err.count("warning: model is lstm") == 1


def test_several_configurations_each_with_everything_that_varies():
    found = made(config={"one": "maze/dr", "two": "maze/plr"}, vary={"ppo.lr": [0.1, 0.2]})
    labelled = [("one", 0.1), ("one", 0.2), ("two", 0.1), ("two", 0.2)]
    assert [(run.label, run.config.ppo.lr) for run in found] == labelled
    assert [type(run.config.runner).__name__ for run in found] == ["DR", "DR", "PLR", "PLR"]
    assert [run.label for run in made(config=["maze/dr", "maze/plr"])] == ["dr", "plr"]
    assert len({run.name for run in found}) == 4


def test_trials_have_no_report_unless_it_is_asked_for():
    Path("loud.yaml").write_text("report: true\n")
    asked = [{}, {"settings": SETTINGS | {"report": True}}, {"config": "loud.yaml"}]
    assert [made(**keys)[0].config.report for keys in asked] == [False, True, True]


def test_ranges_of_a_grid_are_spaced_evenly():
    assert Between(0.0, 1.0, n=5).spaced() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Between(1e-5, 1e-2, log=True, n=4).spaced() == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2], rel=1e-9)
    assert Between(1, 9, n=3).spaced() == [1, 5, 9]
    assert Between(1, 100, log=True, n=3).spaced() == [1, 10, 100]
    assert Between(0.123456, 0.987654, n=2).spaced() == [0.123456, 0.987654]  # the ends are kept as they are
    vary = {"ppo.lr": {"low": "1e-4", "high": "1e-2", "log": True, "n": 3}}
    assert [run.config.ppo.lr for run in made(vary=vary)] == [1e-4, 1e-3, 1e-2]


def test_random_values_fill_their_range():
    n = 2000
    vary = {
        "ppo.lr": {"low": 1e-5, "high": 1e-1, "log": True},
        "ppo.gamma": {"low": 0.5, "high": 0.9},
        "runner.n_parallel": {"low": 1, "high": 4},
        "seed": {"low": 1, "high": 1000, "log": True},
        "ppo.n_epochs": [1, 2, 5],
    }
    asked = sweep_of(BASE | {"sampler": "random", "n_trials": n, "vary": vary})
    lrs, gammas, parallel, seeds, epochs = zip(*[values for _, *values in combinations_of(asked)], strict=True)
    # The 20% points of 2,000 uniform draws lie within 0.045 of 0.2, 0.4, ... (five standard deviations).
    for shares in (
        [(math.log10(lr) + 5) / 4 for lr in lrs],
        [(gamma - 0.5) / 0.4 for gamma in gammas],
        [math.log(2 * s) / math.log(2001) for s in seeds],  # Optuna draws from 0.5 to 1000.5 and rounds
    ):
        assert 0 <= min(shares) <= max(shares) <= 1
        assert np.quantile(shares, [0.2, 0.4, 0.6, 0.8]) == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.045)
    for values, known in ((parallel, (1, 2, 3, 4)), (epochs, (1, 2, 5))):
        assert {type(x) for x in values} == {int}
        counts = [values.count(x) for x in known]
        assert sum(counts) == n
        assert all(abs(count / n - 1 / len(known)) < 0.055 for count in counts)


def test_random_trials_stay_when_there_are_more_of_them_or_the_file_is_in_another_order():
    vary = {"ppo.lr": {"low": 1e-4, "high": 1e-2, "log": True}, "ppo.gamma": [0.5, 0.9, 0.99]}
    few, more, turned, other = (
        [run.config for run in made(sampler="random", **keys)]
        for keys in (
            {"n_trials": 4, "vary": vary},
            {"n_trials": 9, "vary": vary},
            {"n_trials": 4, "vary": dict(reversed(vary.items()))},
            {"n_trials": 4, "vary": vary, "seed": 1},
        )
    )
    assert more[:4] == few == turned
    assert not {*other} & {*few}
    assert all(float(f"{config.ppo.lr:.4g}") == config.ppo.lr for config in more)  # readable: four digits
    small = {"ppo.gamma": [0.5, 0.9], "ppo.n_epochs": {"low": 1, "high": 3}}  # each of few values is found once
    assert len({run.config for run in made(sampler="random", n_trials=6, vary=small)}) == 6
    earlier = read_sweep(write(search="random", n_trials=4, vary=vary), {"log_dir": "runs"})  # the key's earlier name
    assert [run.config for run in runs_of(earlier)] == few


IMPOSSIBLE = [
    ({"config": None}, "config is missing: name what every trial starts from"),
    ({"config": "maze/drr"}, "unknown config file 'maze/drr'"),
    ({"config": ["maze/dr", "maze/dr"]}, "config is .*: it must be a name"),
    ({"config": {"a b": "maze/dr", "c": "maze/plr"}}, "config has the label 'a b': it must be a word"),
    ({"varies": LRS}, r"unknown key 'varies'.*did you mean 'vary'"),
    ({"sampler": "gird"}, "unknown sampler 'gird'.*did you mean 'grid'"),
    ({"sampler": "tpe", "search": "tpe"}, "search and sampler are one key"),
    ({"prunner": "median"}, "unknown key 'prunner'.*did you mean 'pruner'"),
    ({"pruner": "mediam"}, "unknown pruner 'mediam'.*did you mean 'median'"),
    ({"n_trials": 3}, "n_trials is 3, which is for random and tpe only"),
    ({"sampler": "random"}, "n_trials is missing"),
    ({"sampler": "random", "n_trials": 0, "vary": LRS}, "n_trials is 0: it must be between 1 and"),
    ({"sampler": "random", "n_trials": 4, "vary": LRS}, "n_trials is 4: vary has only 3 different trials"),
    ({"sampler": "random", "n_trials": 4}, "vary is empty: random needs something to choose"),
    ({"sampler": "tpe", "n_trials": 3}, "vary is empty: tpe needs something to choose"),
    ({"sampler": "tpe", "n_trials": 3, "vary": {"ppo.lr": {"low": 1, "high": 2, "n": 3}}}, "vary.ppo.lr.n is 3, which"),
    (
        {"sampler": "random", "n_trials": 20, "vary": {"ppo.gamma": {"low": 0.99, "high": 0.991}}},
        r"n_trials is 20: 2,000 draws had only 11 different ones \(drawn numbers have 4 digits\): ask for fewer",
    ),
    ({"settings": {"name": "x"}}, "settings.name cannot be set"),
    ({"settings": {"ppo.lr": 1, "ppo": {"lr": 2}}}, "settings.ppo.lr is given twice"),
    ({"settings": 3}, "settings is 3: it must hold settings"),
    ({"vary": {"log_dir": ["a"]}}, "vary.log_dir cannot be set"),
    ({"vary": {"n_seeds": [1, 2]}}, "n_seeds is in settings and in vary"),
    ({"vary": {"ppo.lr": 0.1}}, "vary.ppo.lr is 0.1: it must be a list of values, or a range"),
    ({"vary": {"ppo.lr": []}}, "vary.ppo.lr is .*: it must be a list"),
    ({"vary": {"ppo.lr": [0.1, 0.1]}}, "vary.ppo.lr has 0.1 twice"),
    ({"vary": {"ppo.lr": ["1e-1", 0.1]}}, "trials 1 and 2 are the same run"),
    ({"vary": {"wandb.project": ["m", "a b", "a_b"]}}, r"trials 2 and 3 would have one folder, project-a_b_\w+: leave"),
    ({"vary": {"ppo.lr": {"low": 1, "high": 2}}}, "vary.ppo.lr.n is missing"),
    ({"vary": {"ppo.lr": {"low": 2, "high": 1, "n": 2}}}, "vary.ppo.lr.low is 2: it must be less than high"),
    ({"vary": {"ppo.lr": {"low": 0, "high": 1, "n": 2, "log": True}}}, "vary.ppo.lr.low is 0: with log it must"),
    ({"vary": {"ppo.lr": {"low": 0, "hihg": 1, "n": 2}}}, "vary.ppo.lr.high has no default"),
    ({"vary": {"ppo.lr": {"low": "a", "high": 1, "n": 2}}}, "vary.ppo.lr.low is 'a': it must be an integer or"),
    ({"vary": {"ppo.lr": [0.1, -1]}}, r"trial 2 \(ppo.lr=-1\): ppo.lr is -1.0: it must be positive"),
    ({"vary": {"ppo.lrr": [0.1, 1]}}, r"trial 1 \(ppo.lrr=0.1\): unknown setting 'ppo.lrr'.*'ppo.lr'"),
    ({"vary": {"ppo.n_minibatches": [1, 5]}}, r"trial 2 \(ppo.n_minibatches=5\): ppo.n_minibatches is 5"),
    # What TPE could choose is tried before: each listed value, and the ends of each range.
    (TPE | {"vary": {"ppo.lr": {"low": 0.1, "high": -0.1}}}, "vary.ppo.lr.low is 0.1: it must be less than high"),
    (TPE | {"vary": {"ppo.lr": {"low": -1, "high": 1.0}}}, r"trial 1 \(ppo.lr=-1\): ppo.lr is -1.0: it must be"),
    (TPE | {"vary": {"ppo.lr": [0.1, 0.2], "ppo.n_minibatches": [1, 5]}}, r"\(ppo.lr=0.1, ppo.n_minibatches=5\): ppo"),
    ({"vary": {"seed": list(range(101)), "ppo.lr": list(range(100))}}, "the grid has 10,100 trials"),
    ({"settings": {"eval.every": 0}}, "trial 1: eval.every is 0"),
    (
        {"settings": SETTINGS | {"runner": "plr", "runner.parallel": True}, "vary": {"runner.replay_prob": [0.2, 0.8]}},
        "vary.runner.replay_prob: leave it out, as it has no effect with runner.parallel True",
    ),
    (
        {"settings": SETTINGS | {"runner": "accel", "runner.n_parents": 2}},
        "settings.runner.n_parents: leave it out, as it has no effect with runner.selection 'batch'",
    ),
    ({"settings": {"init_from": "nothing"}}, "trial 1: init_from: unknown run 'nothing'"),
    ({"score": {"tasks": []}}, "score.tasks is empty"),
    ({"seed": -1}, "seed is -1: it must be between 0 and 2147483647"),
    ({"seed": 2**31}, "seed is 2147483648: it must be an integer of 32 bits, 2147483647 at most"),
    ({"score": {"tasks": ["benchmark"]}}, "eval.tasks is MiniMaze, TrainingDistribution, without"),
    ({"score": {"tasks": ["MiniMase"]}}, "'MiniMase': choose from"),
    ({"score": {"measure": "solved"}}, "unknown score.measure 'solved'.*solved_rate"),
    ({"name": "a/b"}, "name is 'a/b': it must be the name of a folder"),
    ({"log_dir": ""}, "log_dir is ''"),
]


def test_what_has_an_effect_in_some_trials_may_be_varied(here):
    vary = {"runner.parallel": [True, False], "runner.replay_prob": [0.2]}
    assert sweep("--dry-run", settings=SETTINGS | {"runner": "plr"}, vary=vary) == 0


@pytest.mark.parametrize(("keys", "message"), IMPOSSIBLE)
def test_what_cannot_be_is_refused_in_one_line_before_anything_is_written(here, capsys, keys, message):
    assert sweep("--jobs", 2, **keys) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: sweep 'toy.yaml': ")
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert {path.name for path in here.iterdir()} == {"behave.json", "toy.yaml"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no file is named"),
        (["a.yaml", "b.yaml"], "2 files are named"),
        (["nothing.yaml"], "unknown sweep 'nothing.yaml'"),
        (["acel"], "did you mean 'accel'?"),
        (["toy.yaml", "--job", "2"], "unknown flag '--job': choose from --jobs, --dry-run, --table"),
        (["toy.yaml", "--job", "2"], "(did you mean '--jobs'?)"),
        (["toy.yaml", "--jobs", "0"], "error: --jobs is 0: it must be at least 1"),
        (["toy.yaml", "--trial", "4"], "trial is 4: the sweep has 3, counted from 1"),
        (["toy.yaml", "--trial", "one"], "trial is 'one': it must be an integer or none"),
        (["toy.yaml", "--dry-run", "--table"], "--dry-run and --table are both given"),
        (["toy.yaml", "--trial", "1", "--jobs", "2"], "--jobs is 2, which means nothing with --trial"),
        (["toy.yaml", "--table"], "the sweep has not begun"),
        (["toy.yaml", "--slurm", "toy.yaml"], "toy.yaml exists already"),
        (["toy.yaml", "--slurm", "jobs/lr.sh"], "slurm is 'jobs/lr.sh': jobs is not a folder"),
        (["toy.yaml", "--settings.ppo.lr", "1"], "ppo.lr is in settings and in vary"),
        (["toy.yaml", "--log-dir", ".", "--name", "toy.yaml"], "error: toy.yaml is a file: choose another name"),
        (["toy.yaml", "--log-dir", "toy.yaml"], "error: cannot open toy.yaml/toy: Not a directory"),
        (["toy.yaml", "--log-dir", "..", "--name", "."], "name is '.': it must be the name of a folder"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(capsys, words, message):
    write(vary=LRS)
    assert main(words, train=("false",)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said


def test_the_file_may_stand_anywhere_and_its_keys_are_flags():
    assert parse(["--dry-run", "x.yaml"])[:2] == parse(["x.yaml", "--dry-run"])[:2]
    words = ["--settings.n-updates", "7", "--vary.ppo.lr", "1e-1", "--score.evaluation", "best", "--name", "other"]
    command, name, flags = parse([write(vary=LRS), "--jobs", "3", *words])
    found = read_sweep(name, flags)
    (run,) = runs_of(found)
    assert (command.jobs, run.config.n_updates, run.config.ppo.lr) == (3, 7, 0.1)
    assert (run.config.n_seeds, found.keys.score.tasks) == (2, TASKS)  # the file's own
    assert (found.keys.score.evaluation, found.folder) == ("best", Path("runs/sweeps/other"))
    drawn = parse(["x.yaml", "--vary.ppo.lr", "{low: 1, high: 2}"])[2]
    assert drawn == {"vary": {"ppo.lr": {"low": 1, "high": 2}}}
    assert parse(["x.yaml", "--search", "tpe"]) == parse(["x.yaml", "--sampler", "tpe"])


def test_a_name_belongs_to_the_settings_and_to_nothing_else():
    known = {run.config.ppo.lr: run.name for run in made(vary=LRS)}
    assert len(set(known.values())) == 3
    assert known[0.01].startswith("lr-0.01_")
    turned = {run.config.ppo.lr: run.name for run in made(vary={"ppo.lr": ["3e-2", 0.04, 0.01]})}
    assert {lr: turned[lr] for lr in (0.01, 0.03)} == {lr: known[lr] for lr in (0.01, 0.03)}
    free = made(vary=LRS, settings=SETTINGS | {"checkpoint_every": 7, "report": False}, log_dir="elsewhere")
    assert [run.name for run in free] == list(known.values())
    for changed in ({"n_updates": 30}, {"n_seeds": 3}, {"ppo.gamma": 0.5}):
        assert not {run.name for run in made(vary=LRS, settings=SETTINGS | changed)} & set(known.values())


def test_names_are_as_short_as_they_can_be():
    names = {"ppo.lr": "ppo.lr", "runner.teacher.ppo.lr": "teacher.ppo.lr", "env.height": "height"}
    assert short_names(list(names)) == names
    assert short_names(["seed", "runner.seed"]) == {"seed": "seed", "runner.seed": "runner.seed"}
    (long,) = made(vary={"eval.tasks": [["TrainingDistribution", "MiniMaze", "Labyrinth", "Maze"]]}, settings={})
    assert len(long.name) < 100
    assert re.fullmatch(r"[a-zA-Z0-9._+-]+", long.name)


def test_all_trials_are_trained_and_the_table_is_sorted(capsys):
    assert sweep(vary=LRS) == 0
    printed = capsys.readouterr().out
    assert started() == [(0.01, 0), (0.02, 0), (0.03, 0)]
    found = rows()
    assert [row["trial"] for row in found] == ["3", "2", "1"]
    for row in found:
        each = [float(row["ppo.lr"]) * 100 + 0.01 * seed for seed in (0, 1)]  # what the stub writes
        assert [float(x) for x in row["seed_scores"].split()] == pytest.approx(each)
        assert float(row["score"]) == pytest.approx(statistics.mean(each))
        assert float(row["standard_error"]) == pytest.approx(statistics.stdev(each) / 2**0.5)
        assert (row["n_evaluations"], row["scored_at"], row["update"]) == ("3", "20", "20")
        assert (row["env_steps"], float(row["seconds"]), row["status"]) == ("4000", 10.0, "finished")
        assert (TOY / row["name"] / "eval.csv").exists()
    assert printed.index("3.000 3.010") < printed.index("1.000 1.010")
    assert "best: trial 3 (ppo.lr=0.03)" in printed
    assert [[state, value] for state, _, value in journal()] == [
        ["COMPLETE", pytest.approx(x)] for x in (1.005, 2.005, 3.005)
    ]
    # The file of a trial is the whole run, and the copy of the sweep is the whole sweep.
    config = load_yaml(TOY / "trials" / f"{found[0]['name']}.yaml")
    assert (config.ppo.lr, config.run_folder) == (0.03, TOY / found[0]["name"])
    again = read_sweep(str(TOY / "sweep.yaml"))
    assert again.folder == TOY
    assert [run.config for run in runs_of(again)] == [run.config for run in made(vary=LRS)]


def test_what_trials_begin_with_is_read_once_and_may_go_when_they_have_begun(capsys, monkeypatch):
    shape = make_program(made(vary=LRS)[0].config).shape.students.params
    save_params("start.npz", jax.tree.map(lambda x: np.zeros(x.shape[2:], x.dtype), shape))
    read, n_reads = sweep_runs.read_source, []
    monkeypatch.setattr(sweep_runs, "read_source", lambda *asked: n_reads.append(asked) or read(*asked))
    keys = {"settings": SETTINGS | {"init_from": "start.npz"}, "vary": LRS}
    assert sweep("--trial", 1, **keys) == 0
    assert len(n_reads) == 1
    os.rename("start.npz", "moved.npz")
    assert sweep("--table", **keys) == 0
    capsys.readouterr()
    assert sweep(**keys) == 2
    assert "trial 2 (ppo.lr=0.02): " in capsys.readouterr().err  # which has not begun
    os.rename("moved.npz", "start.npz")
    assert sweep(**keys) == 0
    os.rename("start.npz", "moved.npz")
    assert sweep(**keys) == 0


def test_what_a_person_wrote_into_the_table_is_kept():
    assert sweep("--trial", 1, vary=LRS) == 0
    assert sweep("--table", vary=LRS) == 0
    assert sweep(vary=LRS) == 0
    assert not (TOY / "old_sweeps").exists()  # what the sweep itself wrote is not
    table = (TOY / "sweep.csv").read_text()
    # A remark below the rows, then a cell of a row that the sweep writes.
    edits = [table + "# the second one looks odd\n", table.replace(",finished,", ",finished twice,", 1)]
    for n, edited in enumerate(edits, start=1):
        assert edited != table
        (TOY / "sweep.csv").write_text(edited)
        assert sweep("--table", vary=LRS) == 0
        assert (TOY / "sweep.csv").read_text() == table
        kept = [path.read_text() for path in (TOY / "old_sweeps").iterdir()]
        assert len(kept) == n
        assert edited in kept


def test_a_table_that_is_too_wide_keeps_its_scores(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    others = {"gamma": 0.75, "gae_lambda": 0.5, "clip_eps": 0.25, "entropy_coef": 0.125, "max_grad_norm": 0.5}
    assert (
        sweep(vary=LRS | {f"ppo.{name}": [value] for name, value in others.items()} | {"ppo.value_coef": [0.25]}) == 0
    )
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("│")]
    assert [line.split("│")[2].strip() for line in table] == ["3.005", "2.005", "1.005"]
    assert max(map(len, table)) <= 80
    listed = ", ".join(f"{name}={value}" for name, value in ({"lr": 0.03} | others | {"value_coef": 0.25}).items())
    assert lines[lines.index("The settings of the trials:") + 1] == f"    3  {listed}"


def test_which_evaluation_counts():
    best = SETTINGS | {"report": False}
    assert sweep(vary=LRS, settings=best, score=BASE["score"] | {"evaluation": "best"}) == 0
    # At update 10 the stub writes 0.1 more for the second of two tasks.
    assert [(at, float(score)) for at, score in rows("scored_at", "score")] == [
        ("10", pytest.approx(x + 0.005 + 0.05)) for x in (3, 2, 1)
    ]
    assert sweep(vary=LRS, score={"tasks": ["MiniMaze"], "measure": "return"}) == 0
    assert [float(score) for (score,) in rows("score")] == pytest.approx([-1.005, -2.005, -3.005])
    assert len(started()) == 3
    # Half an evaluation does not count.
    (folder,) = TOY.glob("lr-0.03*")
    *lines, _ = (folder / "eval.csv").read_text().splitlines(keepends=True)
    for last in ("", "20,1,TrainingDistribution,nan,nan\n", "20,1,TrainingDistribution,x,x\n"):
        (folder / "eval.csv").write_text("".join(lines) + last)
        assert sweep("--table", vary=LRS) == 0
        assert rows("trial", "scored_at", "n_evaluations")[0] == ("3", "10", "2")


def test_finished_trials_are_skipped_new_ones_are_added_and_old_ones_are_left(capsys):
    assert sweep(vary=LRS) == 0
    kept = {path: path.read_bytes() for path in TOY.glob("lr-*/*.csv")}
    assert sweep(vary={"ppo.lr": [0.02, 0.04, 0.01]}) == 0
    printed = capsys.readouterr().out
    assert started() == [(0.01, 0), (0.02, 0), (0.03, 0), (0.04, 0)]
    assert "2 of 3 trials are finished already" in printed
    (gone,) = TOY.glob("lr-0.03*")
    assert f"left as they are, since the file does not ask for them now: {gone.name}" in printed
    assert {path: path.read_bytes() for path in kept} == kept
    assert rows("ppo.lr") == [("0.04",), ("0.02",), ("0.01",)]
    assert read_yaml(TOY / "old_sweeps" / "sweep.yaml")["vary"] == LRS  # the file as it was is kept
    # A changed setting is another run.
    assert sweep(vary={"ppo.lr": [0.02]}, settings=SETTINGS | {"n_updates": 30}) == 0
    assert len(list(TOY.glob("lr-0.02*"))) == 2


FAILURES = {
    "fail": "the loss of seed 0 is not finite at update 10; the newest checkpoint is that of update 10",
    "kill": "killed by SIGKILL (too little memory?)",
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_trial_that_fails_leaves_the_others_alone_and_is_resumed(capsys, how):
    behave(lr_0_02=how)
    assert sweep(vary=LRS) == 1
    assert f"failed after 0:00: {FAILURES[how]}" in capsys.readouterr().out
    found = rows("trial", "status", "failure", "update")
    assert found[:2] == [("3", "finished", "", "20"), ("1", "finished", "", "20")]
    assert found[2] == ("2", "failed", FAILURES[how], "10")
    assert sweep("--dry-run", vary=LRS) == 0
    assert f"failed: {FAILURES[how]}" in capsys.readouterr().out
    behave()
    assert sweep(vary=LRS) == 0
    assert started()[3:] == [(0.02, 10)]
    assert rows("status", "failure") == [("finished", "")] * 3


def test_a_command_that_cannot_start_is_a_failed_trial(monkeypatch):
    assert main([write(vary=LRS)], train=(sys.executable, "-c", "raise SystemExit(2)")) == 1
    assert {*rows("failure")} == {("it said nothing, with exit status 2",)}
    # Plugins and the cache go to the training by flag.
    monkeypatch.setattr(sys, "path", [*sys.path])  # the plugin's folder is added to it
    Path("mine.py").write_text("")
    settings = SETTINGS | {"plugins": ["mine"], "compilation_cache": "none"}
    echo = "import sys; print('error:', *sys.argv[1:]); sys.exit(1)"
    assert main([write(settings=settings)], train=(sys.executable, "-c", echo)) == 1
    ((name, failure),) = rows("name", "failure")
    assert failure == f"--config {TOY}/trials/{name}.yaml --resume --plugins mine --compilation-cache none"


@pytest.mark.deep
def test_tpe_looks_where_the_scores_are_high_and_goes_on_when_more_trials_are_asked_for(capsys):
    assert sweep("--dry-run", **TPE) == 0
    assert capsys.readouterr().out.count("its values are chosen when it begins  not started") == 16
    assert sweep(**TPE) == 0
    # The stub's score grows with the learning rate. Optuna's first ten trials are random.
    lrs = [lr for lr, _ in started()]
    assert len(set(lrs)) == 16
    assert statistics.mean(lrs[10:]) > statistics.mean(lrs[:10]) + 0.15
    for lr, (state, values, score) in zip(lrs, journal(), strict=True):
        assert (state, score) == ("COMPLETE", pytest.approx(lr * 100 + 0.005))
        assert values["ppo.lr"] == pytest.approx(lr, rel=1e-3)  # four digits
    assert float(rows("ppo.lr")[0][0]) == pytest.approx(max(lrs), rel=1e-4)
    # The copy of the sweep is the same study.
    assert main([str(TOY / "sweep.yaml"), "--n-trials", "18"], train=STUB) == 0
    assert "16 of 18 trials are finished already" in capsys.readouterr().out
    assert [lr for lr, _ in started()][:16] == lrs
    assert len(started()) == 18


def test_tpe_may_choose_the_same_values_twice():
    assert sweep("--jobs", 2, **TPE | {"n_trials": 5, "vary": {"ppo.lr": [0.01, 0.02]}}) == 0
    assert sorted(started()) == [(0.01, 0), (0.02, 0)]
    assert [state for state, *_ in journal()] == ["COMPLETE"] * 5
    assert len(rows()) == 5


def test_a_combination_of_tpe_that_is_impossible_is_a_failed_trial(capsys):
    """Each value is possible with the first one of the other setting, but not the last two together."""
    bad = TPE | {"vary": {"ppo.n_minibatches": [1, 2], "runner.n_parallel": [32, 1]}, "n_trials": 12}
    assert sweep(**bad) == 1
    printed = capsys.readouterr().out
    n = sum(values["ppo.n_minibatches"] == 2 and values["runner.n_parallel"] == 1 for _, values, _ in journal())
    assert printed.count("(impossible) has failed: ppo.n_minibatches is 2: it must divide the 1 rows") == n > 0
    assert len(rows()) == 12 - n
    assert sweep(**bad) == 1
    assert f"{12 - n} of 12 trials are finished already" in capsys.readouterr().out


def test_a_pruner_ends_trials_that_are_worse_than_the_median(capsys):
    """The seventh trial is worse than all before it. Optuna's rule needs five finished ones."""
    asked = {"vary": {"ppo.lr": [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.01]}, "pruner": "median"}
    behave(lr_0_01="hang")
    assert sweep(**asked) == 0
    assert re.search(r"trial 7 \(lr-0.01_\w+\) ended early after 0:0\d, by median", capsys.readouterr().out)
    assert [state for state, *_ in journal()] == ["COMPLETE"] * 6 + ["PRUNED"]
    assert rows("trial", "status")[6] == ("7", "ended early")
    assert sweep(**asked) == 0
    assert len(started()) == 7


def test_no_trial_is_ended_by_its_untrained_agent():
    lrs = [0.02, 0.03, 0.04, 0.05, 0.06, 0.07]
    study = opened(vary={"ppo.lr": lrs}, pruner="median")
    for number, lr in enumerate(lrs[:5], start=1):
        study.begin(number)
        assert not study.report(number, {0: lr, 10: 0.3})
        study.end(number, 0.3)
    study.begin(6)
    assert not study.report(6, {0: 0.01})
    assert study.report(6, {10: 0.02})


@pytest.mark.parametrize("at_once", [False, True])
def test_evaluations_that_are_told_together_are_each_compared_at_their_update(at_once):
    """A sweep that was killed finds several of them in a trial that has gone on. The last of each is the best one."""
    lrs = [round(0.001 * i, 3) for i in range(1, 10)]
    study = opened(vary={"ppo.lr": lrs}, pruner="hyperband", settings=SETTINGS | {"n_updates": 90})
    for number, lr in enumerate(lrs, start=1):
        study.begin(number)
        scores = {update: update / 90 + lr for update in range(10, 91, 10)}
        told = [90] if at_once and number < len(lrs) else list(scores)
        # The last trial is better than all before it, at every update.
        ended = [study.report(number, {u: x for u, x in scores.items() if u <= update}) for update in told]
        assert number < len(lrs) or not any(ended)
        study.end(number, scores[90], pruned=any(ended))


@pytest.mark.deep
def test_hyperband_never_ends_the_best_trial_and_ends_most_bad_ones():
    lrs = [round(0.001 * i, 3) for i in (90, *range(29, 0, -1), 100)]
    study = opened(vary={"ppo.lr": lrs}, pruner="hyperband", settings=SETTINGS | {"n_updates": 90})
    ended = set()
    for number, lr in enumerate(lrs, start=1):
        study.begin(number)
        if any(study.report(number, dict.fromkeys(range(10, update + 1, 10), lr)) for update in range(10, 91, 10)):
            ended.add(lr)
        study.end(number, lr, pruned=lr in ended)
    assert not ended & {lrs[0], lrs[-1]}
    assert len(ended) > 10
    assert [state for state, *_ in journal()] == ["PRUNED" if lr in ended else "COMPLETE" for lr in lrs]
    shorter = SETTINGS | {"eval": SETTINGS["eval"] | {"every": 30}}  # evaluated less often than it is long
    assert sweep("--name", "short", vary={"ppo.lr": [0.5]}, pruner="hyperband", settings=shorter) == 0


@pytest.mark.deep
def test_a_sweep_that_is_killed_goes_on_where_it_was(capsys):
    """`kill -9` leaves its trials running: they are passed over until they end, and then resumed with their values."""
    behave(lr_any="hang")
    asked = TPE | {"n_trials": 2}
    code = f"from minimax_lib.commands.sweep import main; main([{write(**asked)!r}, '--jobs', '2'], train={STUB})"
    process = subprocess.Popen([sys.executable, "-c", code], env=ENV, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(TOY.glob("lr-*/checkpoints/10"))) == 2)
    process.kill()
    process.wait()
    known = journal()
    assert [state for state, *_ in known] == ["RUNNING"] * 2
    assert sweep(**asked) == 1
    assert capsys.readouterr().out.count("is trained by another process") == 2
    for *_, orphan in starts():
        os.kill(orphan, signal.SIGKILL)
    behave()
    wait_for(lambda: sweep("--jobs", 2, **asked) == 0 and rows("status") == [("finished",)] * 2)
    assert [values for _, values, _ in journal()] == [values for _, values, _ in known]
    assert sorted(started()[2:]) == sorted((lr, 10) for lr, _ in started()[:2])


def test_half_a_line_in_the_journal_is_cut_off_and_a_damaged_one_is_refused(capsys):
    assert sweep("--trial", 1, vary=LRS) == 0
    path = TOY / "journal.log"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 6, "worker_i')
    assert sweep(vary=LRS) == 0
    assert path.read_bytes().startswith(whole)
    assert [state for state, *_ in journal()] == ["COMPLETE"] * 3
    for damaged in (b"nonsense\n" + whole, whole.replace(b'"distributions":{}', b'"distributions":null')):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert sweep(vary=LRS) == 2
        assert capsys.readouterr().err.startswith("error: runs/sweeps/toy/journal.log is damaged (")


@pytest.mark.parametrize("words", [[], ["--table"], ["--dry-run"], ["--trial", "1"], ["--slurm", "a.sh"]])
def test_a_folder_of_something_else_is_refused_and_left_as_it_is(capsys, words):
    (TOY / "trials").mkdir(parents=True)
    for name, line in (
        (
            "sweep.yaml",
            "was made by an earlier minimax-sweep, which kept no journal.log: choose another name or log_dir",
        ),
        ("thesis.tex", "holds files and no sweep (thesis.tex)"),
    ):
        (TOY / name).touch()
        assert sweep(*words, vary=LRS) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: runs/sweeps/toy {line}")
        assert said.count("\n") == 1
        assert sorted(path.name for path in TOY.rglob("*")) == sorted([name, "trials"])
        (TOY / name).unlink()


def test_without_optuna_one_line_says_what_to_install(capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "optuna" else find(name, *rest)
    )
    assert sweep(vary=LRS) == 2
    assert capsys.readouterr().err == (
        f"error: minimax-sweep needs optuna, which is not installed: {how_to_install('sweep')}\n"
    )


@pytest.mark.deep
def test_the_help_and_all_that_is_imported_with_the_command_do_without_optuna():
    code = "import sys; sys.modules['optuna'] = None; from minimax_lib.commands.sweep import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True, check=True)
    for flag in (
        "--jobs",
        "--slurm",
        "--vary.SETTING",
        "--score.evaluation",
        "--n-trials",
        "--sampler {grid,random,tpe}",
    ):
        assert flag in done.stdout


@pytest.mark.deep
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_jobs_run_side_by_side_each_on_its_cores(monkeypatch):
    behave(lr_any="slow")
    assert sweep("--jobs", 2, vary=LRS) == 0
    records = sorted(map(json.loads, Path("starts.txt").read_text().splitlines()), key=lambda record: record[2])
    running = list(itertools.accumulate(-1 if update == "end" else 1 for _, update, *_ in records))
    assert max(running) == 2
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        halves = [cores[: len(cores) // 2], cores[len(cores) // 2 :]]
        assert sorted(start[3] for start in starts()[:2]) == halves
    given = []  # a trial of several devices keeps the cores for them
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: given.append(cores))
    for n_devices in (1, 2, 3):
        work.pin(7, 1, 2, n_devices)
    assert given == [[2, 3], [2, 3]]


def test_trials_share_the_memory_of_a_gpu(monkeypatch):
    name = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    monkeypatch.delenv(name, raising=False)
    assert name not in work.environment(1)
    assert work.environment(3)[name] == "0.300"
    monkeypatch.setenv(name, "0.2")
    assert work.environment(3)[name] == "0.2"


def test_several_processes_may_work_on_one_sweep(capsys):
    run = opened(vary=LRS).run(2)
    with filelock.FileLock(run.lock().lock_file):
        assert sweep(vary=LRS) == 1  # not all are finished
    printed = capsys.readouterr().out
    assert f"trial 2 ({run.name}) is trained by another process" in printed
    assert "not finished: trial 2, which another process trains" in printed
    assert [lr for lr, _ in started()] == [0.01, 0.03]
    assert sweep(vary=LRS) == 0
    assert [lr for lr, _ in started()] == [0.01, 0.03, 0.02]


def test_a_trial_that_another_process_has_finished_by_the_end_is_finished(monkeypatch):
    run, show_table = opened(vary=LRS).run(2), commands.show_table

    def finished_elsewhere(study, console):
        (run.folder.checkpoints / "20").mkdir(parents=True)
        return show_table(study, console)

    monkeypatch.setattr(commands, "show_table", finished_elsewhere)
    with filelock.FileLock(run.lock().lock_file):
        assert sweep(vary=LRS) == 0


def test_the_time_that_is_left_is_not_said_when_it_has_run_out():
    study = opened(vary=LRS)
    workers = work.Workers(study, study.numbers)
    workers._pace = (10, 5.0)
    assert workers._standing(10, 6.0).seconds_left == 29.0  # 60 updates are left, at half a second each
    assert math.isnan(workers._standing(10, 36.0).seconds_left)
    assert "left" not in str(workers._standing(10, 36.0))


def test_what_another_process_has_done_in_the_meantime_is_not_done_again(capsys, monkeypatch):
    behave(lr_0_01="fail")
    assert sweep("--trial", 1, vary=LRS) == 1
    behave()
    taken = work.taken

    def done_first(run):
        if run.number == 2:
            (run.folder.checkpoints / "20").mkdir(parents=True)
        if run.number == 3:
            opened(vary=LRS).note_failure(3, "no luck")
        return taken(run)

    monkeypatch.setattr(work, "taken", done_first)
    assert sweep(vary=LRS) == 1
    printed = capsys.readouterr().out
    assert re.search(r"trial 2 \(lr-0.02_\w+\) is finished already", printed)
    assert re.search(r"trial 3 \(lr-0.03_\w+\) has failed in another process: no luck", printed)
    assert started() == [(0.01, 0), (0.01, 10)]  # one that had failed before is tried again


def test_a_stopped_trial_saves_what_it_has_trained_and_else_leaves_at_once():
    run, calls = made(vary=LRS)[0], []
    run.folder.path.mkdir(parents=True)
    process = SimpleNamespace(terminate=lambda: calls.append("save"), kill=lambda: calls.append("leave"))
    for update, at in (
        (15, 1000),  # a process that was killed has left rows later than its checkpoint
        (10, 2000),  # the next one has dropped them, and compiles
        (12, 3000),
    ):
        run.folder.metrics.write_text(f"update,env_steps,seconds\n{update},1,1\n")
        os.utime(run.folder.metrics, ns=(at, at))
        work.Worker(run, 0, process, run.lock(), 0, update=10, table=1000).stop()
    assert calls == ["leave", "leave", "save"]


def test_a_trial_under_way_says_when_it_was_last_heard_of(capsys):
    assert sweep("--trial", 2, vary=LRS) == 0
    assert started() == [(0.02, 0)]
    assert rows("trial", "status") == [("2", "finished"), ("1", "not started"), ("3", "not started")]
    run = opened(vary=LRS).run(2)
    (run.folder.checkpoints / "20").rmdir()
    os.utime(run.folder.metrics, (time.time() - 150, time.time() - 150))
    assert sweep("--table", vary=LRS) == 0
    assert re.search(r"last row\s+2:3\d ago", capsys.readouterr().out)
    assert rows("trial", "status")[0] == ("2", "unfinished")
    # One that compiles has its configuration and no rows yet.
    run.folder.metrics.unlink()
    (run.folder.checkpoints / "10").rmdir()
    for status in ("not started", "unfinished"):
        assert sweep("--table", vary=LRS) == 0
        assert rows("trial", "status")[0] == ("2", status)
        run.folder.config.touch()


DRIVER = f"""
import os, signal, sys, threading, time
from pathlib import Path
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.sweeps import work

from minimax_lib.commands.sweep import main
work.POLL = 0.02
def strike(numbers):
    while not Path("hangs").exists():
        time.sleep(0.02)
    for number in numbers:
        os.kill(os.getpid(), number)
        time.sleep(0.3)
def go(behaviour, *numbers):
    Path("behave.json").write_text('{{"0.02": "' + behaviour + '"}}')
    Path("hangs").unlink(missing_ok=True)
    threading.Thread(target=strike, args=[numbers], daemon=True).start()
    began = time.monotonic()
    words = ["toy.yaml", "--name", behaviour + str(int(numbers[0]))]
    print(main(words, train={STUB}), time.monotonic() - began < 20, flush=True)
go("hang", signal.SIGINT)
go("hang", signal.SIGTERM)
go("hang", signal.SIGHUP)
go("compiling", signal.SIGINT)
go("stubborn", signal.SIGINT, signal.SIGINT)
"""


@pytest.mark.deep
def test_signals_save_the_trials_and_a_second_one_always_works():
    """A separate process signals itself as soon as a trial hangs: one start of Python for all cases."""
    write(vary=LRS)
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, text=True, timeout=100, env=ENV)
    statuses = [line for line in done.stdout.splitlines() if line.endswith(("True", "False"))]
    assert statuses == ["130 True", "143 True", "129 True", "130 True", "130 True"], done.stderr
    assert "ended by SIGTERM; the same command goes on with runs/sweeps/hang15" in done.stderr
    assert "what was trained is saved" not in done.stderr
    assert done.stdout.count("interrupted: the newest checkpoint is that of update 10") == 3
    assert done.stdout.count("interrupted: there is no checkpoint yet") == 1
    # Of each sweep, the first trial was finished and the third never began. An interrupted one is not a failure.
    assert [lr for lr, _ in started()] == [0.01, 0.02] * 5
    assert not any("failure" in path.read_text() for path in Path("runs/sweeps").glob("*/journal.log"))
    for *_, process in starts():
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    behave()
    assert sweep("--name", "hang2", vary=LRS) == 0
    assert started()[10:] == [(0.02, 10), (0.03, 0)]


def test_a_slurm_script_runs_one_trial_a_task(here, monkeypatch, capsys):
    python = here / "my python"
    python.write_text('#!/bin/bash\nprintf "%s\\n" "$PWD" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert sweep("--settings.n_updates", 40, "--slurm", "my out.sh", "--name", "a b", vary=LRS) == 0
    script = Path("my out.sh").read_text()
    assert "start it with: sbatch 'my out.sh'\n" in script
    assert "#SBATCH --array=1-3\n" in script
    assert "#SBATCH --job-name=a_b\n" in script
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    env = os.environ | {"SLURM_ARRAY_TASK_ID": "3"}
    ran = subprocess.run(["bash", "../my out.sh"], cwd=elsewhere, env=env, capture_output=True, text=True, check=True)
    words = ["-m", "minimax_lib.commands.launch", "sweep", "toy.yaml", "--settings.n_updates", "40"]
    words += ["--name", "a b", "--trial", "3"]
    assert ran.stdout.splitlines() == [str(here), *words]
    assert parse(words[3:])[0].trial == 3
    assert not Path("runs").exists()
    assert "start it with sbatch 'my out.sh'\n" in capsys.readouterr().out


def test_dry_run_writes_nothing(capsys):
    assert sweep("--dry-run", vary=LRS) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["1", "2", "3"]
    assert "3 trials, 6 seeds, 60 updates in all" in printed[3]
    assert not Path("runs").exists()
    assert sweep("--trial", 1, vary=LRS) == 0
    before = (TOY / "journal.log").read_bytes()
    for vary in (LRS, {"ppo.lr": [0.5]}):
        assert sweep("--dry-run", vary=vary) == 0
    assert (TOY / "journal.log").read_bytes() == before


def test_the_last_rows_are_read_without_the_others(tmp_path):
    path, header = tmp_path / "metrics.csv", "update,seed,env_steps,seconds\n"
    assert last_rows(path, 2) == []
    rows = "".join(f"{i},0,{i},1\n" for i in range(5000)) + "5000,0,"
    for text, updates in ((header, []), (header + rows, ["4998", "4999"]), (header + "nonsense\n", [])):
        path.write_text(text)
        assert [row["update"] for row in last_rows(path, 2)] == updates


SHIPPED = shipped_sweeps()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_sweep_contains_the_published_run(name):
    asked = read_sweep(name)
    found = runs_of(asked)
    assert SHIPPED[name].read_text().startswith("# ")
    bases = read_yaml(SHIPPED[name])["config"]
    for base in [bases] if isinstance(bases, str) else bases.values():
        published = flat(to_dict(load_yaml(base))) | {"n_seeds": found[0].config.n_seeds, "report": False}
        assert published in [flat(to_dict(run.config)) for run in found]
    check_of(asked)(found[-1].config)
    assert not any("sweeps" in name for name in shipped())  # sweeps are not configurations


def test_the_page_names_every_flag_key_column_and_sweep():
    page = (ROOT / "docs" / "sweeps.md").read_text()
    assert sweep("--trial", 1, vary=LRS) == 0
    columns = [name for name in rows()[0] if name not in ("trial", "name", "ppo.lr")]
    keys = ["config", "settings", "vary", *(name for name in setting_hints(SweepKeys) if name != "score")]
    score = [f"score.{name}" for name in setting_hints(ScoreSettings)]
    for name in [*columns, *keys, *score, *SHIPPED]:
        assert f"`{name}`" in page, name
    for name in setting_hints(Command):
        assert f"`--{name.replace('_', '-')}" in page, name
    counts = dict(re.findall(r"^\| `(\w+)`.* \| (\d+) \|", page, re.MULTILINE))
    for name in SHIPPED.keys() & counts.keys():
        assert len(runs_of(read_sweep(name))) == int(counts[name]), name
    assert len(SHIPPED.keys() & counts.keys()) == len(SHIPPED) - 1  # two share a row
    for i, example in enumerate(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)):
        Path(f"{i}.yaml").write_text(example)
        assert main([f"{i}.yaml", "--dry-run"]) == 0


@pytest.mark.parametrize("how", READ | SAID)
@pytest.mark.parametrize("name", ["metrics.csv", "eval.csv"])
def test_tables_of_trials_that_are_not_as_they_were_are_told(how, name, tmp_path):
    run = made(settings=SETTINGS | {"n_seeds": 1})[0]
    run.folder.path.mkdir(parents=True)
    tasks = make_held_out(run.config.env, tasks_of_run(ScoreSettings().tasks, run.config.runner)).names
    run.folder.metrics.write_text("update,seed,env_steps,seconds\n2,0,200,1.5\n4,0,400,2.5\n6,0,600,3.5\n")
    scores = "".join(f"{update},0,{task},0.5\n" for update in (2, 4) for task in tasks)
    run.folder.evaluations.write_text(f"update,seed,task,solved_rate\n{scores}")
    as_it_was = result_of(run, (FINISHED, ""), ScoreSettings())
    assert (as_it_was.update, as_it_was.scores) == (6, (0.5,))
    path = run.folder.path / name
    path.write_bytes((READ.get(how) or SAID[how][0])(path.read_bytes()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = result_of(run, (FINISHED, ""), ScoreSettings())
    said = [str(warning.message) for warning in told]
    assert all(line.startswith(str(path)) for line in said)
    if how in READ:
        assert (found.update, found.scores, found.env_steps, said) == (6, (0.5,), 600, [])
    # The last rows of metrics.csv are enough: what is above them does not matter.
    assert how in READ or said or (name == "metrics.csv" and (found.update, found.env_steps) in ((6, 600), (4, 400)))


def test_a_table_without_scores_says_why():
    none, some = (SimpleNamespace(status=FINISHED, n_evaluations=n, scores=(0.5,)) for n in (0, 3))
    assert "No score: a trial whose eval.csv" in caption([none, some], few=False)
    assert "No score" not in caption([some], few=False)

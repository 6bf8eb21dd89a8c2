"""Sweeps: which runs a file asks for, how they are started, skipped, resumed and compared. Nothing is compiled."""

import csv
import importlib.util
import itertools
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import filelock
import numpy as np
import optuna
import pytest
import yaml

from minimax_lib.config import to_dict
from minimax_lib.config.files import read_yaml
from minimax_lib.config.shipped import shipped, shipped_sweeps
from minimax_lib.config.sweep import Between, ScoreSettings, SweepKeys, read_sweep, sweep_of
from minimax_lib.config.sweep_command import Command, parse
from minimax_lib.config.train import load_yaml
from minimax_lib.config.tree import flat, setting_hints
from minimax_lib.sweep import main
from minimax_lib.sweeps import work
from minimax_lib.sweeps.runs import check_of, short_names
from minimax_lib.sweeps.study import FINISHED, SweepStudy, combinations_of
from minimax_lib.sweeps.table import caption, last_rows
from minimax_lib.sweeps.work import Worker, environment, pin

ROOT = Path(__file__).parent.parent
TASKS = ("MiniMaze", "TrainingDistribution")
BASE = {
    "config": "maze/dr",
    "settings": {
        "env": {"height": 3, "width": 3, "n_walls": 2, "max_steps": 12},
        "n_updates": 20,
        "n_seeds": 2,
        "eval": {"every": 10, "tasks": list(TASKS)},
    },
    "score": {"tasks": list(TASKS)},
    "name": "toy",
}
# A training command of a few milliseconds. behave.json says what becomes of a learning rate; starts.txt records.
STUB = """
import fcntl, json, os, signal, sys, time
from pathlib import Path
import yaml

words = sys.argv[1:]
config = yaml.safe_load(Path(words[words.index("--config") + 1]).read_text())
assert "--resume" in words
lr, seeds, n = config["ppo"]["lr"], range(config["seed"], config["seed"] + config["n_seeds"]), config["n_updates"]
behaviours = json.loads(Path("behave.json").read_text())
how = behaviours.get(str(lr), behaviours.get("any", ""))
folder = Path(config["log_dir"]) / config["name"]
checkpoints = folder / "checkpoints"
checkpoints.mkdir(parents=True, exist_ok=True)
fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
begin = max((int(p.name) for p in checkpoints.iterdir()), default=0)
with open("starts.txt", "a") as file:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    file.write(json.dumps([lr, begin, time.time(), cores, os.getpid()]) + "\\\\n")

def save(update):
    (checkpoints / str(update)).mkdir(exist_ok=True)

def append(name, header, line):
    path = folder / name
    text = "" if path.exists() else header + "\\\\n"
    with path.open("a") as file:
        file.write(text + line + "\\\\n")

def leave(*_):
    save(max(begin, 10))
    sys.exit(143)

signal.signal(signal.SIGTERM, signal.SIG_IGN if how in ("stubborn", "compiling") else leave)
if how == "compiling":
    Path("hangs").touch()
    time.sleep(60)
print("compiling ...", flush=True)
for update in range(begin, n + 1, 10):
    for seed in seeds:
        append("metrics.csv", "update,seed,env_steps,seconds,steps_per_second",
               f"{update},{seed},{update * 100},{update / 2},50")
        for i, task in enumerate(config["eval"]["tasks"]):
            solved = lr * 100 + 0.01 * seed + 0.1 * i * (update == 10)
            append("eval.csv", "update,seed,maze,return,solved", f"{update},{seed},{task},{-solved},{solved}")
    if update == 10:
        save(10)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "fail":
            print("error: the loss of seed 0 is not finite at update 10; the newest checkpoint is that of update 10")
            print("and a last line")
            sys.exit(1)
        if how in ("hang", "stubborn"):
            Path("hangs").touch()
            time.sleep(60)
        if how == "slow":
            time.sleep(0.5)
save(n)
with open("starts.txt", "a") as file:
    file.write(json.dumps([lr, "end", time.time()]) + "\\\\n")
""".replace("\\\\", "\\")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty current folder, with a training command that does nothing in particular."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, "POLL", 0.02)
    (tmp_path / "stub.py").write_text(STUB)
    behave()
    return tmp_path


def behave(**how: str) -> None:
    """What is to become of learning rates: lr_0_01="fail"."""
    names = {name.removeprefix("lr_").replace("_", "."): what for name, what in how.items()}
    Path("behave.json").write_text(json.dumps(names))


def starts() -> list[list]:
    """What the stub recorded: [learning rate, update, time, cores, process]."""
    path = Path("starts.txt")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def started() -> list[tuple]:
    return [(lr, update) for lr, update, *_ in starts() if update != "end"]


def write(**keys) -> str:
    Path("toy.yaml").write_text(yaml.safe_dump(BASE | keys, sort_keys=False))
    return "toy.yaml"


def sweep(*words, **keys) -> int:
    return main([write(**keys), *map(str, words)], train=(sys.executable, "stub.py"))


def rows() -> list[dict[str, str]]:
    with open("runs/sweeps/toy/sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


def runs_of(asked) -> list:
    """The runs of all trials, unchecked but for their settings."""
    study = SweepStudy(asked, lambda config: None)
    return [study.run(number) for number in study.numbers]


def made(**keys) -> list:
    return runs_of(sweep_of(BASE | keys))


def journal(folder: str = "runs/sweeps/toy") -> list[list]:
    """What Optuna itself reads in the journal of the only study: [state, values, score] of each trial."""
    backend = optuna.storages.journal.JournalFileBackend(f"{folder}/journal.log")
    study = optuna.load_study(study_name=None, storage=optuna.storages.JournalStorage(backend))
    return [[trial.state.name, trial.params, trial.value] for trial in study.trials]


LRS = {"ppo.lr": [0.01, 0.02, 0.03]}


def test_a_grid_is_all_combinations_in_the_order_of_the_file():
    vary = {
        "ppo.lr": [0.1, "2e-1"],
        "runner": ["dr", {"name": "plr", "staleness": 0.25}],
        "ppo.gamma": [0.5, 0.75, 1.0],
    }
    found = made(vary=vary)
    expected = list(itertools.product([0.1, 0.2], ["dr", "plr"], [0.5, 0.75, 1.0]))
    assert [trial.number for trial in found] == list(range(1, 13))
    for trial, (lr, runner, gamma) in zip(found, expected, strict=True):
        values = flat(to_dict(trial.config))
        assert (values["ppo.lr"], values["runner.name"], values["ppo.gamma"]) == (lr, runner, gamma)
        assert values.get("runner.staleness", 0.25) == 0.25
        assert (values["env.height"], values["n_seeds"]) == (3, 2)


def test_a_setting_goes_with_the_name_that_is_chosen_beside_it_in_any_order():
    ways = [{"runner.staleness": [0.2, 0.4], "runner": ["plr"]}, {"runner": ["plr"], "runner.staleness": [0.2, 0.4]}]
    for vary in ways:
        assert [trial.config.runner.staleness for trial in made(vary=vary)] == [0.2, 0.4]


def test_what_a_trial_leaves_behind_is_said_once_before_it_is_trained(capsys):
    """BASE says nothing of the model: its configuration does."""
    vary = {"model": ["gru", "lstm", {"name": "lstm", "memory_width": 64, "memory_span": 30}], "ppo.lr": [0.1, 0.2]}
    said = "model is lstm, and what was said of gru does not count for it: memory_width 256 (was 64), "
    found = made(config="maze/cpu/dr", vary=vary)
    assert [line.startswith(said) for trial in found for line in trial.left_behind] == [True, True]
    assert [len(trial.left_behind) for trial in found] == [0, 0, 1, 1, 0, 0]
    assert sweep("--dry-run", config="maze/cpu/dr", vary=vary) == 0
    assert capsys.readouterr().err.count("warning: model is lstm") == 1


def test_several_configurations_each_with_everything_that_varies():
    found = made(config={"one": "maze/dr", "two": "maze/plr"}, vary={"ppo.lr": [0.1, 0.2]})
    assert [(trial.label, trial.config.ppo.lr) for trial in found] == [
        ("one", 0.1), ("one", 0.2), ("two", 0.1), ("two", 0.2)
    ]  # fmt: skip
    assert [type(trial.config.runner).__name__ for trial in found] == ["DR", "DR", "PLR", "PLR"]
    assert [trial.label for trial in made(config=["maze/dr", "maze/plr"])] == ["dr", "plr"]
    assert len({trial.name for trial in found}) == 4


def test_nothing_that_varies_is_one_trial():
    (trial,) = made()
    assert str(trial) == ""
    assert trial.config.n_updates == 20


def test_trials_have_no_report_unless_it_is_asked_for():
    Path("loud.yaml").write_text("report: true\n")
    asked = [{}, {"settings": BASE["settings"] | {"report": True}}, {"config": "loud.yaml"}]
    assert [made(**keys)[0].config.report for keys in asked] == [False, True, True]


def test_ranges_of_a_grid_are_spaced_evenly():
    assert Between(0.0, 1.0, n=5).spaced() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Between(1e-5, 1e-2, log=True, n=4).spaced() == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2], rel=1e-9)
    assert Between(1, 9, n=3).spaced() == [1, 5, 9]
    assert Between(1, 100, log=True, n=3).spaced() == [1, 10, 100]
    assert Between(0.123456, 0.987654, n=2).spaced() == [0.123456, 0.987654]  # the ends are kept as they are
    vary = {"ppo.lr": {"low": "1e-4", "high": "1e-2", "log": True, "n": 3}}
    assert [trial.config.ppo.lr for trial in made(vary=vary)] == [1e-4, 1e-3, 1e-2]


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
        assert min(shares) >= 0
        assert max(shares) <= 1
        assert np.quantile(shares, [0.2, 0.4, 0.6, 0.8]) == pytest.approx([0.2, 0.4, 0.6, 0.8], abs=0.045)
    for values, known in ((parallel, (1, 2, 3, 4)), (epochs, (1, 2, 5))):
        assert {type(x) for x in values} == {int}
        counts = [values.count(x) for x in known]
        assert sum(counts) == n
        assert all(abs(count / n - 1 / len(known)) < 0.055 for count in counts)


def test_random_trials_stay_when_there_are_more_of_them_or_the_file_is_in_another_order():
    vary = {"ppo.lr": {"low": 1e-4, "high": 1e-2, "log": True}, "ppo.gamma": [0.5, 0.9, 0.99]}
    few = made(sampler="random", n_trials=4, vary=vary)
    more = made(sampler="random", n_trials=9, vary=vary)
    turned = made(sampler="random", n_trials=4, vary=dict(reversed(vary.items())))
    other = made(sampler="random", n_trials=4, vary=vary, seed=1)
    assert [trial.config for trial in more[:4]] == [trial.config for trial in few]
    assert [trial.config for trial in turned] == [trial.config for trial in few]
    assert not {trial.config for trial in other} & {trial.config for trial in few}
    # Readable numbers: four digits.
    assert all(float(f"{trial.config.ppo.lr:.4g}") == trial.config.ppo.lr for trial in more)


def test_a_random_search_over_few_values_finds_each_once():
    found = made(sampler="random", n_trials=6, vary={"ppo.gamma": [0.5, 0.9], "ppo.n_epochs": {"low": 1, "high": 3}})
    assert len({trial.config for trial in found}) == 6


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"config": None}, "config is missing: name what every trial starts from"),
        ({"config": "maze/drr"}, "unknown config file 'maze/drr'"),
        ({"config": ["maze/dr", "maze/dr"]}, "config is .*: it must be a name"),
        ({"config": {"a b": "maze/dr", "c": "maze/plr"}}, "config has the label 'a b': it must be a word"),
        ({"varies": LRS}, r"unknown key 'varies'.*did you mean 'vary'"),
        ({"sampler": "gird"}, "unknown sampler 'gird'.*did you mean 'grid'"),
        ({"sampler": "tpe", "search": "tpe"}, "search and sampler are one key"),
        ({"prunner": "median"}, "unknown key 'prunner'.*did you mean 'pruner'"),
        ({"pruner": "mediam"}, "unknown pruner 'mediam'.*did you mean 'median'"),
        ({"seed": -1}, "seed is -1: it must be between 0 and"),
        ({"sampler": "tpe", "n_trials": 3}, "vary is empty: tpe needs something to choose"),
        ({"n_trials": 3}, "n_trials is 3, which is for random and tpe only"),
        ({"sampler": "random"}, "n_trials is missing"),
        ({"sampler": "random", "n_trials": 0, "vary": LRS}, "n_trials is 0: it must be between 1 and"),
        ({"sampler": "random", "n_trials": 4, "vary": LRS}, "n_trials is 4: vary has only 3 different trials"),
        ({"sampler": "random", "n_trials": 4}, "vary is empty"),
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
        ({"vary": {"ppo.lr": {"low": 1, "high": 2}}}, "vary.ppo.lr.n is missing"),
        ({"vary": {"ppo.lr": {"low": 2, "high": 1, "n": 2}}}, "vary.ppo.lr.low is 2: it must be less than high"),
        ({"vary": {"ppo.lr": {"low": 0, "high": 1, "n": 2, "log": True}}}, "vary.ppo.lr.low is 0: with log it must"),
        ({"vary": {"ppo.lr": {"low": 0, "hihg": 1, "n": 2}}}, "vary.ppo.lr.high has no default"),
        ({"vary": {"ppo.lr": {"low": "a", "high": 1, "n": 2}}}, "vary.ppo.lr.low is 'a': it must be an integer or"),
        ({"vary": {"ppo.lr": [0.1, -1]}}, r"trial 2 \(ppo.lr=-1\): ppo.lr is -1.0: it must be positive"),
        ({"vary": {"ppo.lrr": [0.1, 1]}}, r"trial 1 \(ppo.lrr=0.1\): unknown setting 'ppo.lrr'.*'ppo.lr'"),
        ({"vary": {"seed": list(range(101)), "ppo.lr": list(range(100))}}, "the grid has 10,100 trials"),
        ({"settings": {"eval.every": 0}}, "trial 1: eval.every is 0"),
        ({"score": {"tasks": []}}, "score.tasks is empty"),
        ({"score": {"measure": "solved"}}, "unknown score.measure 'solved'.*solved_rate"),
        ({"name": "a/b"}, "name is 'a/b': it must be the name of a folder"),
        ({"log_dir": ""}, "log_dir is ''"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_is_written(here, capsys, keys, message):
    before = sorted(here.iterdir())
    write(**keys)
    assert sweep("--jobs", 2, **keys) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: sweep 'toy.yaml': ")
    assert said.count("\n") == 1
    assert re.search(message, said)
    assert sorted(here.iterdir()) == sorted([*before, here / "toy.yaml"])
    assert not starts()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"score": {"tasks": ["benchmark"]}}, "eval.tasks is MiniMaze, TrainingDistribution, without"),
        ({"score": {"tasks": ["MiniMase"]}}, "'MiniMase': choose from"),
        (
            {"vary": {"ppo.n_minibatches": [1, 5]}},
            "trial 2 (ppo.n_minibatches=5): ppo.n_minibatches is 5",
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused_too(capsys, keys, message):
    assert sweep(**keys) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no file is named"),
        (["a.yaml", "b.yaml"], "2 files are named"),
        (["nothing.yaml"], "unknown sweep 'nothing.yaml'"),
        (["acel"], "did you mean 'accel'?"),
        (["toy.yaml", "--job", "2"], "unknown flag 'job'"),
        (["toy.yaml", "--jobs", "0"], "jobs is 0: it must be at least 1"),
        (["toy.yaml", "--trial", "4"], "trial is 4: the sweep has 3, counted from 1"),
        (["toy.yaml", "--trial", "one"], "trial is 'one': it must be an integer or none"),
        (["toy.yaml", "--dry-run", "--table"], "dry_run and table are both given"),
        (["toy.yaml", "--trial", "1", "--jobs", "2"], "jobs is 2, which means nothing with trial"),
        (["toy.yaml", "--table"], "the sweep has not begun"),
        (["toy.yaml", "--slurm", "toy.yaml"], "toy.yaml exists already"),
        (["toy.yaml", "--settings.ppo.lr", "1"], "ppo.lr is in settings and in vary"),
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
    (trial,) = runs_of(found)
    assert (command.jobs, trial.config.n_updates, trial.config.ppo.lr) == (3, 7, 0.1)
    assert (trial.config.n_seeds, found.keys.score.tasks) == (2, TASKS)  # the file's own
    assert (found.keys.score.evaluation, found.folder) == ("best", Path("runs/sweeps/other"))
    drawn = parse(["x.yaml", "--vary.ppo.lr", "{low: 1, high: 2}"])[2]
    assert drawn == {"vary": {"ppo.lr": {"low": 1, "high": 2}}}


def test_a_name_belongs_to_the_settings_and_to_nothing_else():
    known = {trial.config.ppo.lr: trial.name for trial in made(vary=LRS)}
    assert len(set(known.values())) == 3
    assert known[0.01].startswith("lr-0.01_")
    turned = {trial.config.ppo.lr: trial.name for trial in made(vary={"ppo.lr": ["3e-2", 0.04, 0.01]})}
    assert {lr: turned[lr] for lr in (0.01, 0.03)} == {lr: known[lr] for lr in (0.01, 0.03)}
    free = made(vary=LRS, settings=BASE["settings"] | {"checkpoint_every": 7, "report": False}, log_dir="elsewhere")
    assert [trial.name for trial in free] == list(known.values())
    for changed in ({"n_updates": 30}, {"n_seeds": 3}, {"ppo.gamma": 0.5}):
        others = {trial.name for trial in made(vary=LRS, settings=BASE["settings"] | changed)}
        assert not others & set(known.values())


def test_names_are_as_short_as_they_can_be():
    assert short_names(["ppo.lr", "runner.teacher.ppo.lr", "env.height"]) == {
        "ppo.lr": "ppo.lr", "runner.teacher.ppo.lr": "teacher.ppo.lr", "env.height": "height"
    }  # fmt: skip
    assert short_names(["seed", "runner.seed"]) == {"seed": "seed", "runner.seed": "runner.seed"}
    long = made(vary={"eval.tasks": [["TrainingDistribution", "MiniMaze", "Labyrinth", "Maze"]]}, settings={})
    assert len(long[0].name) < 100
    assert set(long[0].name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-+")


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
        assert Path("runs/sweeps/toy", row["name"], "eval.csv").exists()
    assert printed.index("3.000 3.010") < printed.index("1.000 1.010")
    assert "best: trial 3 (ppo.lr=0.03)" in printed
    # The file of a trial is the whole run, and the copy of the sweep is the whole sweep.
    folder = Path("runs/sweeps/toy")
    config = load_yaml(folder / "trials" / f"{found[0]['name']}.yaml")
    assert (config.ppo.lr, config.run_folder) == (0.03, folder / found[0]["name"])
    again = read_sweep(str(folder / "sweep.yaml"))
    assert again.folder == folder
    assert [trial.config for trial in runs_of(again)] == [trial.config for trial in made(vary=LRS)]


def test_a_table_that_is_too_wide_keeps_its_scores(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    many = LRS | {f"ppo.{name}": [value] for name, value in (("gamma", 0.75), ("gae_lambda", 0.5), ("clip_eps", 0.25))}
    many |= {"ppo.entropy_coef": [0.125], "ppo.max_grad_norm": [0.5], "ppo.value_coef": [0.25]}
    assert sweep(vary=many) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("│")]
    assert [line.split("│")[2].strip() for line in table] == ["3.005", "2.005", "1.005"]
    assert max(map(len, table)) <= 80
    at = lines.index("The settings of the trials:")
    expected = (
        "lr=0.03, gamma=0.75, gae_lambda=0.5, clip_eps=0.25, entropy_coef=0.125, max_grad_norm=0.5, value_coef=0.25"
    )
    assert lines[at + 1] == f"    3  {expected}"


def test_the_best_evaluation_counts_where_the_file_says_so():
    assert sweep(vary=LRS, score=BASE["score"] | {"evaluation": "best", "measure": "solved_rate"}) == 0
    # At update 10 the stub writes 0.1 more for the second of two tasks.
    assert [(row["scored_at"], float(row["score"])) for row in rows()] == [
        ("10", pytest.approx(x + 0.005 + 0.05)) for x in (3, 2, 1)
    ]
    assert sweep(vary=LRS, score={"tasks": ["MiniMaze"], "measure": "return"}) == 0
    assert [float(row["score"]) for row in rows()] == pytest.approx([-1.005, -2.005, -3.005])
    assert len(started()) == 3


def test_half_an_evaluation_does_not_count():
    assert sweep(vary=LRS) == 0
    (folder,) = Path("runs/sweeps/toy").glob("lr-0.03*")
    *lines, _ = (folder / "eval.csv").read_text().splitlines(keepends=True)
    for last in ("", "20,1,TrainingDistribution,nan,nan\n", "20,1,TrainingDistribution,x,x\n"):
        (folder / "eval.csv").write_text("".join(lines) + last)
        assert sweep("--table", vary=LRS) == 0
        assert (rows()[0]["trial"], rows()[0]["scored_at"], rows()[0]["n_evaluations"]) == ("3", "10", "2")


def test_finished_trials_are_skipped_new_ones_are_added_and_old_ones_are_left(capsys):
    assert sweep(vary=LRS) == 0
    kept = {path: path.read_bytes() for path in Path("runs/sweeps/toy").glob("lr-*/*.csv")}
    assert sweep(vary={"ppo.lr": [0.02, 0.04, 0.01]}) == 0
    printed = capsys.readouterr().out
    assert started() == [(0.01, 0), (0.02, 0), (0.03, 0), (0.04, 0)]
    assert "2 of 3 trials are finished already" in printed
    (gone,) = Path("runs/sweeps/toy").glob("lr-0.03*")
    assert f"left as they are, since the file does not ask for them now: {gone.name}" in printed
    assert {path: path.read_bytes() for path in kept} == kept
    assert [row["ppo.lr"] for row in rows()] == ["0.04", "0.02", "0.01"]
    # The file as it was is kept.
    assert read_yaml("runs/sweeps/toy/old_sweeps/sweep.yaml")["vary"] == LRS
    # A changed setting is another run.
    assert sweep(vary={"ppo.lr": [0.02]}, settings=BASE["settings"] | {"n_updates": 30}) == 0
    assert len(list(Path("runs/sweeps/toy").glob("lr-0.02*"))) == 2


def test_a_trial_that_fails_leaves_the_others_alone_and_is_tried_again(capsys):
    behave(lr_0_02="fail")
    assert sweep(vary=LRS) == 1
    printed = capsys.readouterr().out
    failure = "the loss of seed 0 is not finite at update 10; the newest checkpoint is that of update 10"
    assert f"failed after 0:00: {failure}" in printed
    assert [(row["trial"], row["status"], row["failure"]) for row in rows()] == [
        ("3", "finished", ""), ("1", "finished", ""), ("2", "failed", failure)
    ]  # fmt: skip
    assert rows()[2]["update"] == "10"
    assert sweep("--dry-run", vary=LRS) == 0
    assert f"failed: {failure}" in capsys.readouterr().out
    behave()
    assert sweep(vary=LRS) == 0
    assert started()[3:] == [(0.02, 10)]
    assert [row["status"] for row in rows()] == ["finished"] * 3


def test_a_trial_that_is_killed_leaves_the_others_alone_and_is_resumed():
    behave(lr_0_01="kill")
    assert sweep(vary=LRS) == 1
    assert rows()[2]["failure"] == "killed by SIGKILL (too little memory?)"
    behave()
    assert sweep(vary=LRS) == 0
    assert started()[3:] == [(0.01, 10)]


def test_a_command_that_cannot_start_is_a_failed_trial():
    assert main([write(vary=LRS)], train=(sys.executable, "-c", "raise SystemExit(2)")) == 1
    assert {row["failure"] for row in rows()} == {"it said nothing, with exit status 2"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_jobs_run_side_by_side_each_on_its_cores():
    behave(lr_0_01="slow", lr_0_02="slow", lr_0_03="slow")
    assert sweep("--jobs", 2, vary=LRS) == 0
    running, most = set(), 0
    for lr, update, *_ in sorted(starts(), key=lambda start: start[2]):
        running = running - {lr} if update == "end" else running | {lr}
        most = max(most, len(running))
    assert most == 2
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        shares = [set(start[3]) for start in starts() if start[1] == 0]
        halves = [set(cores[: len(cores) // 2]), set(cores[len(cores) // 2 :])]
        assert all(share in halves for share in shares[:2])
        assert shares[0] != shares[1]


def test_trials_share_the_memory_of_a_gpu(monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in environment(1)
    assert environment(3)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.300"
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.2")
    assert environment(3)["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2"


def test_several_processes_may_work_on_one_sweep(capsys):
    run = made(vary=LRS)[1]
    Path(run.lock().lock_file).parent.mkdir(parents=True)
    Path("runs/sweeps/toy/journal.log").touch()
    with filelock.FileLock(run.lock().lock_file):
        assert sweep(vary=LRS) == 0
    assert f"trial 2 ({run.name}) is trained by another process" in capsys.readouterr().out
    assert [lr for lr, _ in started()] == [0.01, 0.03]
    assert sweep(vary=LRS) == 0
    assert [lr for lr, _ in started()] == [0.01, 0.03, 0.02]


def test_what_another_process_has_done_in_the_meantime_is_not_done_again(capsys, monkeypatch):
    behave(lr_0_01="fail")
    assert sweep("--trial", 1, vary=LRS) == 1
    behave()
    taken = work.taken

    def done_first(run):
        if run.number == 2:
            (run.folder.checkpoints / "20").mkdir(parents=True)
        if run.number == 3:
            other = SweepStudy(sweep_of(BASE | {"vary": LRS}), lambda config: None)
            other.open(write=True)
            other.note_failure(3, "no luck")
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

    def stop_after(update: int, time: int) -> None:
        run.folder.metrics.write_text(f"update,env_steps,seconds\n{update},1,1\n")
        os.utime(run.folder.metrics, ns=(time, time))
        Worker(run, 0, process, run.lock(), 0, update=10, table=1000).stop()

    stop_after(15, 1000)  # a process that was killed has left rows later than its checkpoint
    stop_after(10, 2000)  # the next one has dropped them, and compiles
    stop_after(12, 3000)
    assert calls == ["leave", "leave", "save"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_a_trial_of_several_devices_keeps_the_cores_for_them(monkeypatch):
    given = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: given.append(cores))
    for n_devices in (1, 2, 3):
        pin(7, 1, 2, n_devices)
    assert given == [[2, 3], [2, 3]]


def test_a_trial_under_way_says_when_it_was_last_heard_of(capsys, monkeypatch):
    behave(lr_0_02="kill")
    assert sweep(vary=LRS) == 1
    (folder,) = Path("runs/sweeps/toy").glob("lr-0.02*")
    study = SweepStudy(sweep_of(BASE | {"vary": LRS}), lambda config: None)
    study.open(write=True)
    study.note_failure(2, None)
    os.utime(folder / "metrics.csv", (time.time() - 150, time.time() - 150))
    capsys.readouterr()
    assert sweep("--table", vary=LRS) == 0
    assert re.search(r"last row\s+2:3\d ago", capsys.readouterr().out)
    assert rows()[2]["status"] == "unfinished"
    # One that compiles has its configuration and no rows yet.
    (folder / "metrics.csv").unlink()
    shutil.rmtree(folder / "checkpoints")
    assert [row["status"] for row in (sweep("--table", vary=LRS), rows())[1]][2] == "not started"
    (folder / "config.yaml").touch()
    assert [row["status"] for row in (sweep("--table", vary=LRS), rows())[1]][2] == "unfinished"


TPE = {"sampler": "tpe", "n_trials": 16, "vary": {"ppo.lr": {"low": 1e-3, "high": 1.0}, "runner": ["dr", "plr"]}}


def test_tpe_looks_where_the_scores_are_high_and_goes_on_after_more_trials_are_asked_for(capsys):
    assert sweep("--dry-run", **TPE) == 0
    assert capsys.readouterr().out.count("its values are chosen when it begins  not started") == 16
    assert sweep(**TPE) == 0
    # The stub's score grows with the learning rate. Optuna's first ten trials are random.
    lrs = [lr for lr, _ in started()]
    assert len(set(lrs)) == 16
    assert statistics.mean(lrs[10:]) > statistics.mean(lrs[:10]) + 0.15
    assert [[state, value] for state, _, value in journal()] == [
        ["COMPLETE", pytest.approx(lr * 100 + 0.005, abs=1e-6)] for lr in lrs
    ]
    assert all(
        params["ppo.lr"] == pytest.approx(lr, rel=1e-3) for (_, params, _), lr in zip(journal(), lrs, strict=True)
    )
    assert float(rows()[0]["ppo.lr"]) == pytest.approx(max(lrs), rel=1e-4)
    assert sweep(**TPE | {"n_trials": 18}) == 0
    assert "16 of 18 trials are finished already" in capsys.readouterr().out
    assert [lr for lr, _ in started()][:16] == lrs
    assert len(started()) == 18


def test_what_tpe_could_choose_is_tried_before_anything_is_written(capsys):
    for vary, line in (
        ({"ppo.lr": {"low": -1, "high": 1.0}}, "trial 1 (ppo.lr=-1): ppo.lr is -1.0: it must be positive"),
        ({"ppo.lr": [0.1, 0.2], "ppo.n_minibatches": [1, 5]}, "trial 3 (ppo.lr=0.1, ppo.n_minibatches=5): "),
    ):
        assert sweep(**TPE | {"vary": vary}) == 2
        assert line in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_pruner_ends_trials_that_are_worse_than_the_median(capsys):
    """The seventh trial is worse than all before it. Optuna's rule needs five finished ones."""
    lrs = [0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.01]
    behave(lr_0_01="slow")
    assert sweep(vary={"ppo.lr": lrs}, pruner="median") == 0
    assert re.search(r"trial 7 \(lr-0.01_\w+\) ended early after 0:0\d, by median", capsys.readouterr().out)
    assert [state for state, *_ in journal()] == ["COMPLETE"] * 6 + ["PRUNED"]
    assert (rows()[6]["status"], rows()[6]["trial"]) == ("ended early", "7")
    assert sweep(vary={"ppo.lr": lrs}, pruner="median") == 0
    assert len(started()) == 7


def test_a_sweep_that_is_killed_goes_on_where_it_was(capsys):
    """`kill -9` leaves its trials running: they are passed over until they end, and then resumed with their values."""
    behave(lr_any="hang")
    asked = TPE | {"n_trials": 2}
    code = f"from minimax_lib.sweep import main; main([{write(**asked)!r}, '--jobs', '2'], train=({sys.executable!r}, 'stub.py'))"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL)
    wait_for(lambda: len(list(Path("runs/sweeps/toy").glob("lr-*/checkpoints/10"))) == 2)
    process.kill()
    process.wait()
    known = journal()
    assert [state for state, *_ in known] == ["RUNNING"] * 2
    assert sweep(**asked) == 0
    assert capsys.readouterr().out.count("is trained by another process") == 2
    for *_, orphan in starts():
        os.kill(orphan, signal.SIGKILL)
    behave()
    wait_for(lambda: sweep("--jobs", 2, **asked) == 0 and len(rows()) == 2 and rows()[1]["status"] == "finished")
    assert [params for _, params, _ in journal()] == [params for _, params, _ in known]
    lrs = [lr for lr, _ in started()[:2]]
    assert sorted(started()[2:]) == sorted((lr, 10) for lr in lrs)


def wait_for(condition) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_half_a_line_in_the_journal_is_cut_off_and_a_damaged_one_is_refused(capsys):
    assert sweep("--trial", 1, vary=LRS) == 0
    path = Path("runs/sweeps/toy/journal.log")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 6, "worker_i')
    assert sweep(vary=LRS) == 0
    assert path.read_bytes().startswith(whole)
    assert [state for state, *_ in journal()] == ["COMPLETE"] * 3
    path.write_bytes(b"nonsense\n" + whole)
    capsys.readouterr()
    assert sweep(vary=LRS) == 2
    assert capsys.readouterr().err.startswith("error: runs/sweeps/toy/journal.log is damaged (")


def test_a_folder_of_an_earlier_version_is_refused_and_left_as_it_is(capsys):
    folder = Path("runs/sweeps/toy")
    (folder / "trials").mkdir(parents=True)
    (folder / "sweep.yaml").write_text("config: maze/dr\n")
    for words in ([], ["--table"], ["--dry-run"], ["--trial", 1]):
        assert sweep(*words, vary=LRS) == 2
        said = capsys.readouterr().err
        assert said.startswith(
            "error: runs/sweeps/toy was made by an earlier minimax-sweep, which kept no journal.log: "
        )
        assert said.count("\n") == 1
    assert sorted(path.name for path in folder.rglob("*")) == ["sweep.yaml", "trials"]


def test_without_optuna_one_line_says_what_to_install(capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "optuna" else find(name, *rest)
    )
    assert sweep(vary=LRS) == 2
    assert capsys.readouterr().err == (
        'error: optuna is not installed, which chooses the trials: pip install "minimax-ued[sweep]"\n'
    )
    # The help, and all that is imported with the command, do without it.
    code = "import sys; sys.modules['optuna'] = None; from minimax_lib.sweep import main; main(['--help'])"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "--sampler {grid,random,tpe}" in done.stdout


def test_one_trial_alone():
    assert sweep("--trial", 2, vary=LRS) == 0
    assert started() == [(0.02, 0)]
    assert [(row["trial"], row["status"]) for row in rows()] == [
        ("2", "finished"), ("1", "not started"), ("3", "not started")
    ]  # fmt: skip


@pytest.mark.deep
def test_signals_save_the_trials_and_a_second_one_always_works(here):
    # A separate process, which signals itself as soon as a trial hangs: one start of Python for all cases.
    driver = """
import os, signal, sys, threading, time
from pathlib import Path
from minimax_lib.sweeps import work
from minimax_lib.sweep import main
work.POLL = 0.02
def send(*numbers):
    Path("hangs").unlink(missing_ok=True)
    def strike():
        while not Path("hangs").exists():
            time.sleep(0.02)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.3)
    threading.Thread(target=strike, daemon=True).start()
def go(behaviour, *numbers):
    Path("behave.json").write_text('{"0.02": "%s"}' % behaviour)
    send(*numbers)
    began = time.monotonic()
    words = ["toy.yaml", "--name", behaviour + str(int(numbers[0]))]
    print(main(words, train=(sys.executable, "stub.py")), time.monotonic() - began < 20, flush=True)
go("hang", signal.SIGINT)
go("hang", signal.SIGTERM)
go("hang", signal.SIGHUP)
go("compiling", signal.SIGINT)
go("stubborn", signal.SIGINT, signal.SIGINT)
"""
    write(vary=LRS)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", driver], capture_output=True, text=True, timeout=100, env=env)
    statuses = [line for line in done.stdout.splitlines() if line.endswith(("True", "False"))]
    assert statuses == ["130 True", "143 True", "143 True", "130 True", "130 True"], done.stderr
    assert "stopped, what was trained is saved; the same command goes on with runs/sweeps/hang2" in done.stderr
    assert done.stdout.count("interrupted: the newest checkpoint is that of update 10") == 3
    assert done.stdout.count("interrupted: there is no checkpoint yet") == 1
    # Of each sweep, the first trial was finished and the third never began. An interrupted one is no failure.
    assert [lr for lr, _ in started()] == [0.01, 0.02] * 5
    assert not any("failure" in path.read_text() for path in Path("runs/sweeps").glob("*/journal.log"))
    for *_, process in (start for start in starts() if start[1] != "end"):
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
    assert sweep("--settings.n_updates", 40, "--slurm", "out.sh", "--name", "a b", vary=LRS) == 0
    script = Path("out.sh").read_text()
    assert "#SBATCH --array=1-3\n" in script
    assert "#SBATCH --job-name=a_b\n" in script
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    env = os.environ | {"SLURM_ARRAY_TASK_ID": "3"}
    ran = subprocess.run(["bash", "../out.sh"], cwd=elsewhere, env=env, capture_output=True, text=True, check=True)
    words = ["-m", "minimax_lib.sweep", "toy.yaml", "--settings.n_updates", "40", "--name", "a b", "--trial", "3"]
    assert ran.stdout.splitlines() == [str(here), *words]
    assert parse(words[2:])[0].trial == 3
    assert not Path("runs").exists()
    assert "sbatch out.sh" in capsys.readouterr().out


def test_dry_run_writes_nothing(here, capsys):
    assert sweep("--dry-run", vary=LRS) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["1", "2", "3"]
    assert "3 trials, 6 seeds, 60 updates in all" in printed[3]
    assert not Path("runs").exists()


def test_two_trials_never_share_a_folder(capsys):
    vary = {"wandb.project": ["mazes", "a b", "a_b"]}
    assert sweep(vary=vary) == 2
    said = capsys.readouterr().err
    assert re.match(
        r"error: sweep 'toy.yaml': trials 2 and 3 would have one folder, project-a_b_\w+: leave out wandb.project, ",
        said,
    )
    assert not Path("runs").exists()


def test_a_place_that_cannot_be_written_to_is_refused(capsys):
    Path("runs").touch()
    assert sweep(vary=LRS) == 2
    assert capsys.readouterr().err == "error: cannot write to runs/sweeps/toy: Not a directory\n"
    assert sweep("--log-dir", ".", "--name", "toy.yaml", vary=LRS) == 2
    assert capsys.readouterr().err == "error: toy.yaml is a file: choose another name or log_dir\n"
    assert sweep("--slurm", "jobs/lr.sh", vary=LRS) == 2
    assert capsys.readouterr().err == "error: slurm is 'jobs/lr.sh': jobs is no folder\n"


def test_a_folder_with_other_files_is_refused(capsys):
    Path("runs/sweeps/toy").mkdir(parents=True)
    Path("runs/sweeps/toy/thesis.tex").touch()
    assert sweep(vary=LRS) == 2
    assert "holds files and no sweep (thesis.tex)" in capsys.readouterr().err


def test_plugins_and_the_cache_go_to_the_training_by_flag(here, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])  # the plugin's folder is added to it
    Path("mine.py").write_text("")
    settings = BASE["settings"] | {"plugins": ["mine"], "compilation_cache": "none"}
    echo = "import sys; print('error:', *sys.argv[1:]); sys.exit(1)"
    assert main([write(settings=settings)], train=(sys.executable, "-c", echo)) == 1
    (row,) = rows()
    file = f"runs/sweeps/toy/trials/{row['name']}.yaml"
    assert row["failure"] == f"--config {file} --resume --plugins mine --compilation-cache none"


def test_the_last_rows_are_read_without_the_others(tmp_path):
    path = tmp_path / "metrics.csv"
    assert last_rows(path, 2) == []
    path.write_text("update,seed,env_steps,seconds\n")
    assert last_rows(path, 2) == []
    path.write_text("update,seed,env_steps,seconds\n" + "".join(f"{i},0,{i},1\n" for i in range(5000)) + "5000,0,")
    assert [row["update"] for row in last_rows(path, 2)] == ["4998", "4999"]
    path.write_text("update,seed,env_steps,seconds\nnonsense\n")
    assert last_rows(path, 2) == []


SHIPPED = shipped_sweeps()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_sweep_contains_the_published_run(name):
    asked = read_sweep(name)
    found = runs_of(asked)
    assert SHIPPED[name].read_text().startswith("# ")
    bases = read_yaml(SHIPPED[name])["config"]
    for base in [bases] if isinstance(bases, str) else bases.values():
        published = flat(to_dict(load_yaml(base))) | {"n_seeds": found[0].config.n_seeds, "report": False}
        assert published in [flat(to_dict(trial.config)) for trial in found]
    check_of(asked)(found[-1].config)


def test_sweeps_are_no_configurations(capsys):
    assert {"accel", "robust_plr", "lstm_methods"} <= set(SHIPPED)
    assert not any("sweeps" in name for name in shipped())
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--jobs", "--slurm", "--vary.SETTING", "--score.evaluation", "--n-trials"))


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
    (example,) = re.findall(r"Write `lr.yaml`:\n\n```yaml\n(.*?)```", page, re.DOTALL)
    Path("lr.yaml").write_text(example)
    assert main(["lr.yaml", "--dry-run"]) == 0


def test_a_table_without_scores_says_why():
    def finished(n_evaluations):
        return SimpleNamespace(status=FINISHED, n_evaluations=n_evaluations, scores=(0.5,))

    assert "No score: a trial whose eval.csv" in caption([finished(0), finished(3)], few=False)
    assert "No score" not in caption([finished(3)], few=False)

"""The host's side of a run: what is refused, what is written, what is measured, and what is said."""

import dataclasses
import io
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from rich.console import Console
from toy_program import EVALUATION, SlowProgram, ToyRunner, toy_config, toy_experiment, toy_program

from minimax_lib.agents.ppo import PPO
from minimax_lib.commands import train
from minimax_lib.config import Config, load_yaml, save_yaml
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.evaluation.tables import Scores
from minimax_lib.experiment.loop import HeldOutEvaluation, RunStopped, finished
from minimax_lib.experiment.progress import Progress, Standing, duration
from minimax_lib.experiment.run import ExperimentRunner, free_settings
from minimax_lib.runners.devices import DeviceMesh
from minimax_lib.runners.seeds import MAX_STEPS, SeedRunner
from minimax_lib.store.checkpoint import Checkpoints, fingerprint
from minimax_lib.store.files import saved_updates
from minimax_lib.store.folder import FolderLost, RunFolder, RunRefused, differences
from minimax_lib.store.parameters import load_params
from minimax_lib.store.tables import read_table
from tests import zoo

experiment = toy_experiment


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The configuration of a finished run."""
    config = toy_config(tmp_path_factory.mktemp("done"))
    experiment(config).train()
    return config


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------------------------------------- what is written


def test_a_run_leaves_what_the_design_says(done):
    folder = done.run_folder
    assert load_yaml(folder / "config.yaml") == done
    columns, rows = read_table(folder / "metrics.csv")
    assert columns[:6] == ["update", "clock", "seed", "env_steps", "seconds", "steps_per_second"]
    assert columns[6:] == sorted(columns[6:])
    assert {"loss", "return", "solved_rate", "level/n_walls"} <= set(columns)
    assert len(rows) == 12 * 2
    columns, rows = read_table(folder / "eval.csv")
    assert columns == ["update", "seed", "task", "return", "solved_rate"]
    assert len(rows) == 5 * 2 * 2
    assert saved_updates(folder / "checkpoints") == [20, 24]  # the newest `keep_checkpoints`


def test_metrics_are_those_of_the_program(done):
    program = toy_program(done)
    state = program.init(done.seed)
    _, rows = read_table(done.run_folder / "metrics.csv")
    for update in (2, 4):
        state, report = program.run(state, update)
        for seed in (0, 1):
            row = next(row for row in rows if row["update"] == str(update) and row["seed"] == str(seed))
            for name, values in report.metrics.items():
                assert np.float32(row[name]) == values[seed]
            assert int(row["env_steps"]) == 5 * int(state.clock[seed])


def test_a_seed_is_evaluated_as_it_would_be_alone(done, tmp_path):
    alone = toy_config(tmp_path, seed=1, n_seeds=1)
    experiment(alone).train()
    _, together = read_table(done.run_folder / "eval.csv")
    _, single = read_table(alone.run_folder / "eval.csv")
    together = [row for row in together if row["seed"] == "1"]
    assert [row["update"] for row in together] == [row["update"] for row in single]
    np.testing.assert_allclose(
        [float(row["return"]) for row in together], [float(row["return"]) for row in single], rtol=1e-5
    )


def test_the_end_is_saved_and_evaluated_whatever_the_intervals(tmp_path):
    config = toy_config(tmp_path, n_updates=7, n_seeds=1, log_every=3, checkpoint_every=100, eval=Evaluation(every=100))
    state = experiment(config).train()
    assert np.asarray(state.students.n_updates).tolist() == [[7]]
    assert [row["update"] for row in read_table(config.run_folder / "metrics.csv")[1]] == ["3", "6", "7"]
    assert [row["update"] for row in read_table(config.run_folder / "eval.csv")[1]] == ["0", "0", "7", "7"]
    assert saved_updates(config.run_folder / "checkpoints") == [7]


def test_an_average_of_the_parameters_is_what_is_shown_and_goes_on_exactly(tmp_path, monkeypatch):
    """The evaluation, the archive and the report have the average; the state has both, also when it goes on."""
    reports = []
    monkeypatch.setattr("minimax_lib.experiment.run.final_report", lambda *args: reports.append(args))
    settings = {"n_updates": 8, "archive_every": 4, "report": True, "eval": Evaluation(every=4)}
    config = toy_config(tmp_path / "whole", **settings)
    state = experiment(config, averages=True).train()
    students = state.students
    assert (np.asarray(students.average["w"]) != np.asarray(students.params["w"])).all()
    assert {"average", "params"} <= {field.name for field in dataclasses.fields(students)}
    np.testing.assert_array_equal(reports[0][3]["w"], students.average["w"])
    np.testing.assert_array_equal(load_params(config.run_folder / "archive/update-8.npz")["w"], students.average["w"])
    held_out = HeldOutEvaluation(EVALUATION, config, DeviceMesh())
    rows = held_out.rows(8, held_out.evaluate(8, students.average))
    _, written = read_table(config.run_folder / "eval.csv")
    assert [float(row["return"]) for row in written[-4:]] == pytest.approx([float(row["return"]) for row in rows])
    begun = toy_config(tmp_path / "again", **(settings | {"n_updates": 4}))
    experiment(begun, averages=True).train()
    again = toy_config(tmp_path / "again", **settings, resume=True)
    assert fingerprint(experiment(again, averages=True).train()) == fingerprint(state)
    assert (again.run_folder / "eval.csv").read_bytes() == (config.run_folder / "eval.csv").read_bytes()


@pytest.fixture
def logged_compilations():
    """JAX logs what it compiles, in any thread."""
    jax.config.update("jax_log_compiles", True)
    yield
    jax.config.update("jax_log_compiles", False)


@pytest.mark.parametrize("resumed", [False, True])
def test_training_and_evaluation_are_compiled_once_each(tmp_path, caplog, logged_compilations, resumed):
    config = toy_config(tmp_path, n_updates=4, eval=Evaluation(every=2))
    if resumed:
        experiment(config).train()
        config = dataclasses.replace(config, n_updates=8, resume=True)
        caplog.clear()
    ExperimentRunner(config, SeedRunner(ToyRunner(), config.n_seeds), EVALUATION).train()
    compiled = r"Finished XLA compilation of jit\((\w+|<lambda>)\)"
    names = [found[1] for record in caplog.records if (found := re.match(compiled, record.getMessage()))]
    assert names.count("run_until") == 1
    assert names.count("evaluate_update") == 1


def test_without_evaluation(tmp_path):
    config = toy_config(tmp_path, n_updates=2, eval=Evaluation(every=0))
    experiment(config).train()
    assert not (config.run_folder / "eval.csv").exists()


def test_the_report_compares_the_first_with_the_last_parameters(tmp_path, monkeypatch, capsys):
    """Its numbers are kept as `minimax-evaluate` keeps them. The run is called finished when all of it is done."""
    reports = []
    scores = Scores(("A", "B"), (0,), {"solved_rate": np.array([[0.5, 1]]), "return": np.array([[0.25, 0.75]])})

    def report(*given):
        reports.append(given)
        print("the table")
        return scores, scores

    monkeypatch.setattr("minimax_lib.experiment.run.final_report", report)
    config = toy_config(tmp_path, n_updates=2, report=True)
    state = experiment(config).train()
    printed = capsys.readouterr().out
    assert printed.index("the table") < printed.index("is finished: 2 updates")
    (path,) = (config.run_folder / "evaluations").iterdir()
    found = {(row["task"], row["solved_rate"], row["return"], row["n_episodes"]) for row in read_table(path)[1]}
    assert found == {("A", "0.5", "0.25", "50"), ("B", "1.0", "0.75", "50")}
    ((given, _, untrained, trained, folder, *_),) = reports
    assert (given, folder) == (config, config.run_folder)
    np.testing.assert_array_equal(untrained["w"], toy_program(config).init(config.seed).students.params["w"])
    np.testing.assert_array_equal(trained["w"], state.students.params["w"])
    experiment(toy_config(tmp_path, n_updates=2, report=True, resume=True)).train()
    assert len(reports) == 1  # there was nothing to train, and the report is there
    path.unlink()  # the run was killed while the report was made
    experiment(toy_config(tmp_path, n_updates=2, report=True, resume=True)).train()
    assert len(reports) == 2
    np.testing.assert_array_equal(reports[1][3]["w"], trained["w"])
    assert path.exists()


def test_a_report_that_fails_is_not_a_training_that_failed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("minimax_lib.experiment.run.final_report", lambda *_: 1 // 0)
    config = toy_config(tmp_path, n_updates=2, report=True)
    assert experiment(config).run() == 0
    assert "the run is finished and saved" in capsys.readouterr().err


@pytest.fixture(params=["free", pytest.param("placed", marks=pytest.mark.deep)])
def restored(request, monkeypatch):
    """Restored states are tied to their device, which makes another program. "free": they are not, to save its time."""
    restore = Checkpoints.restore

    def freed(self, shape):
        found = restore(self, shape)
        return found and dataclasses.replace(found, state=zoo.on_device(found.state))

    if request.param == "free":
        monkeypatch.setattr(Checkpoints, "restore", freed)


@pytest.mark.usefixtures("restored")
def test_minimax_train_trains_evaluates_saves_and_goes_on_with_a_real_method(tmp_path, capsys):
    """Domain randomisation, from the command line to the files: two updates, then two more with --resume."""
    settings = {"n_updates": 2, "log_every": 1, "checkpoint_every": 2, "log_dir": str(tmp_path), "name": "run"}
    evaluation = {"every": 2, "tasks": ["TrainingDistribution"], "n_episodes": 3}
    config = zoo.config_of("dr", eval=evaluation, **settings)
    save_yaml(config, tmp_path / "dr.yaml")
    words = ["--config", str(tmp_path / "dr.yaml")]
    assert train.main(words) == 0
    assert load_yaml(config.run_folder / "config.yaml") == config
    before = {name: (config.run_folder / name).read_text() for name in ("metrics.csv", "eval.csv")}
    assert train.main([*words, "--resume", "--n-updates", "4"]) == 0
    assert "goes on from update 2" in capsys.readouterr().out
    assert saved_updates(config.run_folder / "checkpoints") == [2, 4]
    for name, updates in (("metrics.csv", [1, 2, 3, 4]), ("eval.csv", [0, 2, 4])):
        assert (config.run_folder / name).read_text().startswith(before[name])
        _, rows = read_table(config.run_folder / name)
        assert [(int(row["update"]), int(row["seed"])) for row in rows] == [(u, s) for u in updates for s in (0, 1)]
        assert all(0 <= float(row["solved_rate"]) <= 1 for row in rows)
    _, of_training = read_table(config.run_folder / "metrics.csv")
    assert [int(row["env_steps"]) for row in of_training[::2]] == [4 * 24 * update for update in (1, 2, 3, 4)]
    assert all(np.isfinite(float(row["loss"])) for row in of_training)
    assert {row["task"] for row in rows} == {"TrainingDistribution"}


# ---------------------------------------------------------------------------------------------- what is measured


class Recorder:
    """A program whose computation takes `seconds`, though its dispatch returns at once."""

    def __init__(self, config: Config, seconds: float):
        self._program = toy_program(config)
        self.runner, self.shape = self._program.runner, self._program.shape
        self.init, self.lower = self._program.init, self._program.lower
        self.env_steps = self._program.env_steps
        self._delay = jax.jit(lambda x: jax.pure_callback(lambda x: (time.sleep(seconds), x)[1], x, x))

    def run(self, state, target_updates, max_steps=MAX_STEPS):
        state, report = self._program.run(state, target_updates, max_steps)
        return state.replace(clock=self._delay(state.clock)), report


def test_steps_per_second_count_finished_work_and_no_compilation(tmp_path):
    config = toy_config(tmp_path, n_updates=12, log_every=4, eval=Evaluation(every=0))
    experiment(config, Recorder(config, 0.3)).train()
    _, rows = read_table(config.run_folder / "metrics.csv")
    steps = np.diff([0] + [int(row["env_steps"]) for row in rows if row["seed"] == "0"])
    speeds = [float(row["steps_per_second"]) for row in rows if row["seed"] == "0"]
    seconds = steps * config.n_seeds / np.array(speeds)
    assert (seconds >= 0.3).all()
    assert (seconds < 0.9).all()


def test_seconds_go_on_where_they_were(tmp_path):
    config = toy_config(tmp_path, n_updates=4, eval=Evaluation(every=0))
    experiment(config, Recorder(config, 0.2)).train()
    experiment(toy_config(tmp_path, n_updates=8, resume=True, eval=Evaluation(every=0))).train()
    seconds = [float(row["seconds"]) for row in read_table(config.run_folder / "metrics.csv")[1]]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0.4


def test_work_is_finished_when_it_is_returned_and_its_errors_are_its_own():
    slow = jax.jit(lambda x: jax.pure_callback(lambda x: (time.sleep(0.2), x)[1], x, x))
    jax.block_until_ready(slow(jnp.zeros(1)))
    began = time.perf_counter()
    finished(lambda: slow(jnp.zeros(1)))
    assert time.perf_counter() - began >= 0.2
    with pytest.raises(ZeroDivisionError):
        finished(lambda: 1 // 0)


# ---------------------------------------------------------------------------------------------- what stops a run


def test_a_loss_that_is_not_finite_stops_the_run_and_good_checkpoints_stay(tmp_path, capsys):
    config = toy_config(tmp_path)
    assert experiment(config, not_finite_at=11).run() == 1
    error = capsys.readouterr().err.splitlines()
    assert error == ["error: the loss of seed 0 is not finite at update 11; the newest checkpoint is that of update 8"]
    assert saved_updates(config.run_folder / "checkpoints") == [4, 8]
    assert {row["update"] for row in read_table(config.run_folder / "metrics.csv")[1]} == {"2", "4", "6", "8", "10"}


def test_parameters_that_are_not_finite_are_never_saved(tmp_path):
    """At update 8, where the loss was still finite and a checkpoint is due."""
    config = toy_config(tmp_path)
    with pytest.raises(RunStopped, match="the parameters are not finite at update 8") as stopped:
        experiment(config, overflows_at=8).train()
    assert stopped.value.status == 1
    assert saved_updates(config.run_folder / "checkpoints") == [4]


def test_a_dispatch_without_an_update_is_logged_and_the_run_goes_on(tmp_path):
    """As long as a level buffer fills up, say: here the first dispatches are cut off after one step each."""
    config = toy_config(tmp_path)
    n_cut = 40

    class Slow(SlowProgram):
        n_dispatches = 0

        def run(self, state, target_updates, max_steps=MAX_STEPS):
            self.n_dispatches += 1
            return super().run(state, target_updates, 1 if self.n_dispatches < n_cut else max_steps)

    experiment(config, Slow(toy_program(config), 0.0)).train()
    _, rows = read_table(config.run_folder / "metrics.csv")
    clocks = [int(row["clock"]) for row in rows if row["seed"] == "0"]
    assert clocks[: n_cut - 2] == list(range(1, n_cut - 1))  # the first call of all only loads the program
    updates = [int(row["update"]) for row in rows if row["seed"] == "0"]
    assert updates == sorted(updates)
    assert updates[-1] == 24
    assert len(set(updates)) < len(updates)  # some of them taught nothing


def test_a_level_buffer_that_never_fills_is_told_of_once(tmp_path, capsys):
    config = toy_config(tmp_path)

    class Waits(SlowProgram):
        n_dispatches = 0

        def run(self, state, target_updates, max_steps=MAX_STEPS):
            self.n_dispatches += 1
            waits = self.n_dispatches < 6
            state, report = super().run(state, 0 if waits else target_updates, max_steps)
            fill = {"buffer/fill": np.full(len(report.nonfinite), 0.072, np.float32)}
            weight = {"buffer/fill": np.ones(len(report.nonfinite), np.float32)}
            return state, report.replace(sums=report.sums | fill, weights=report.weights | weight)

    experiment(config, Waits(toy_program(config), 0.0)).train()
    said = capsys.readouterr().out
    assert said.count("warning: nothing has been learnt so far: the level buffer stays 7.2% full") == 1


def test_a_dispatch_is_bounded(tmp_path):
    config = toy_config(tmp_path, log_every=3)
    bounds = []

    class Bounded(SlowProgram):
        def run(self, state, target_updates, max_steps=MAX_STEPS):
            bounds.append(max_steps)
            return super().run(state, target_updates, max_steps)

    experiment(config, Bounded(toy_program(config), 0.0)).train()
    assert set(bounds[1:]) == {30}


# ---------------------------------------------------------------------------------------------- what is refused


def test_a_folder_with_a_run_is_taken_only_to_resume_it(done, capsys):
    before = contents(done.run_folder)
    assert experiment(done).run() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "already holds a run" in error
    assert "--resume" in error
    assert "--name" in error
    assert contents(done.run_folder) == before


def test_a_run_is_not_made_shorter_than_it_is(tmp_path):
    config = toy_config(tmp_path, n_updates=4, eval=Evaluation(every=0))
    experiment(config).train()
    before = (config.run_folder / "config.yaml").read_text()
    with pytest.raises(RunRefused, match="n_updates is 2, and it has had 4 updates already: give at least as many"):
        experiment(dataclasses.replace(config, n_updates=2, resume=True)).train()
    assert (config.run_folder / "config.yaml").read_text() == before


def test_resume_of_nothing_starts(tmp_path):
    config = toy_config(tmp_path, n_updates=2, resume=True)
    assert experiment(config).run() == 0
    assert not load_yaml(config.run_folder / "config.yaml").resume  # a wish of the moment, not of the run


def test_another_configuration_is_refused_with_what_differs(done, capsys):
    before = contents(done.run_folder)
    other = toy_config(done.log_dir, resume=True, seed=3, ppo=PPO(lr=0.5))
    assert experiment(other).run() == 2
    error = capsys.readouterr().err
    assert "seed was 0 and is now 3" in error
    assert "ppo.lr was 0.0001 and is now 0.5" in error
    assert "resume was" not in error
    assert error.count("\n") == 1
    assert contents(done.run_folder) == before


def test_what_does_not_alter_the_training_may_differ(done, tmp_path):
    shutil.copytree(done.run_folder, tmp_path / "copy")
    free = {"log_every": 5, "checkpoint_every": 7, "keep_checkpoints": 3, "compilation_cache": "none"}
    assert experiment(toy_config(tmp_path, name="copy", resume=True, **free)).run() == 0
    assert "n_updates" in free_settings(done)
    assert "n_updates" not in free_settings(toy_config(tmp_path, ppo=PPO(lr_final=0.0)))
    assert "n_updates" not in free_settings(toy_config(tmp_path, ppo=PPO(entropy_coef_final=0.0)))


def test_a_longer_run_is_refused_where_the_learning_rate_depends_on_its_length(tmp_path):
    scheduled = {"ppo": PPO(lr_final=0.0), "n_updates": 2}
    experiment(toy_config(tmp_path, **scheduled)).train()
    why = re.escape(
        "n_updates was 2 and is now 4 (ppo.lr_final is 0.0, which is reached after all of n_updates, so that a run of "
        "another length differs from its first update on; keep n_updates, or train the longer run under another --name)"
    )
    longer = toy_config(tmp_path, **(scheduled | {"n_updates": 4, "resume": True}))
    with pytest.raises(RunRefused, match=f"with another configuration: {why}$"):
        experiment(longer).train()
    # Another way to ask for it: the number is edited in config.yaml.
    save_yaml(dataclasses.replace(longer, resume=False), longer.run_folder / "config.yaml")
    with pytest.raises(RunRefused, match=rf"with another configuration: {why} \(config.yaml has been edited"):
        experiment(longer).train()
    # With other settings that differ, the message still says where the run's own are.
    faster = dataclasses.replace(longer, ppo=PPO(lr=0.5, lr_final=0.0))
    save_yaml(dataclasses.replace(longer, n_updates=2, resume=False), longer.run_folder / "config.yaml")
    with pytest.raises(RunRefused, match=rf"{why}; ppo.lr was 0.0001 and is now 0.5 \(--config .* gives the run's own"):
        experiment(faster).train()


def test_a_folder_in_use_is_refused_with_its_owner(tmp_path, capsys):
    config = toy_config(tmp_path)
    with RunFolder(config.run_folder).owned():
        assert experiment(config).run() == 2
    assert f"is in use by process {os.getpid()}" in capsys.readouterr().err
    assert experiment(toy_config(tmp_path, n_updates=2)).run() == 0


@pytest.mark.deep
def test_a_folder_in_use_is_refused_with_the_process_that_uses_it(tmp_path, capsys):
    config = toy_config(tmp_path)
    code = f"""
import sys, time; from pathlib import Path; from minimax_lib.store.folder import RunFolder
with RunFolder(Path({str(config.run_folder)!r})).owned():
    print("mine", flush=True); sys.stdin.read()
"""
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout.readline() == "mine\n"
        assert experiment(config).run() == 2
        assert f"is in use by process {owner.pid}" in capsys.readouterr().err
    finally:
        owner.kill()
        owner.wait()
    assert experiment(toy_config(tmp_path, n_updates=2)).run() == 0  # the lock died with its owner


def test_nobody_comes_in_because_the_lock_was_deleted(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.owned():
        for name in (".lock", ".owner"):
            (folder.path / name).unlink()
            with pytest.raises(RunRefused, match="is in use by"), RunFolder(folder.path).owned():
                pass
    with RunFolder(folder.path).owned():
        pass


def test_files_of_a_run_that_were_deleted_are_made_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.owned():
        folder.admit({"seed": 1}, resume=False, free=())
        before = contents(folder.path)
        assert folder.repaired() == []
        for names in ([".lock"], [".owner"], ["config.yaml"], [".lock", ".owner"], [".lock", "config.yaml"]):
            for name in names:
                (folder.path / name).unlink()
            assert folder.repaired() == names
            assert contents(folder.path) == before


def test_what_a_person_wrote_into_a_configuration_is_kept(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.owned():
        assert folder.admit({"seed": 1}, resume=False, free=()) is None
        folder.config.write_text("# my best run\nseed: 1\n")
        assert folder.admit({"seed": 1}, resume=True, free=()) is None
        assert folder.config.read_text() == "# my best run\nseed: 1\n"
        kept = folder.admit({"seed": 2}, resume=True, free=())
        assert kept is not None
        assert kept.read_text() == "# my best run\nseed: 1\n"
        assert folder.config.read_text() == "seed: 2\n"
        assert folder.admit({"seed": 3}, resume=True, free=()) is None  # as a run wrote it


def test_a_folder_that_another_process_has_taken_over_is_lost(tmp_path):
    """As where it was moved away, and a run of the same name begun."""
    folder, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with folder.owned():
        folder.admit({"seed": 1}, resume=False, free=())
        folder.path.rename(tmp_path / "moved")
        with pytest.raises(FolderLost, match="has been taken away"):
            folder.repaired()
        with other.owned():
            other.admit({"seed": 2}, resume=False, free=())
            before = contents(other.path)
            with pytest.raises(FolderLost, match=f"has been taken over by process {os.getpid()}"):
                folder.repaired()
            assert contents(other.path) == before
            assert other.repaired() == []


class Meddler:
    """A program at whose `call`-th dispatch something happens."""

    def __init__(self, config: Config, call: int, meddle):
        self._program = toy_program(config)
        self.runner, self.shape = self._program.runner, self._program.shape
        self.init, self.lower = self._program.init, self._program.lower
        self.env_steps = self._program.env_steps
        self._left, self._meddle = call, meddle

    def run(self, state, target_updates, max_steps=MAX_STEPS):
        self._left -= 1
        if self._left == 0:
            self._meddle()
        return self._program.run(state, target_updates, max_steps)


@pytest.mark.deep
def test_a_run_whose_folder_was_moved_ends_in_one_line_and_goes_on_there(done, tmp_path, capsys):
    config = toy_config(tmp_path)
    meddler = Meddler(config, 7, lambda: config.run_folder.rename(tmp_path / "moved"))
    assert experiment(config, meddler).run() == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {config.run_folder} has been taken away while the run was under way")
    assert error.count("\n") == 1
    # The write that was under way may have made its place again, which is not a run and no work of somebody else.
    assert not (config.run_folder / "metrics.csv").exists()
    assert experiment(toy_config(tmp_path, name="moved", resume=True)).run() == 0
    kept = [{k: row[k] for k in ("clock", "seed", "loss")} for row in read_table(tmp_path / "moved" / "metrics.csv")[1]]
    whole = read_table(done.run_folder / "metrics.csv")[1]
    assert kept == [{k: row[k] for k in ("clock", "seed", "loss")} for row in whole]


@pytest.mark.parametrize("names", [["config.yaml", "eval.csv"], ["notes.txt"], ["checkpoints"], ["metrics.csv"]])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_with_files_of_somebody_else_is_left_alone(tmp_path, capsys, names, resume):
    config = toy_config(tmp_path, resume=resume)
    config.run_folder.mkdir()
    for name in names:
        if name == "checkpoints":
            (config.run_folder / name).mkdir()
            (config.run_folder / name / "model.pt").write_text("")
        else:
            (config.run_folder / name).write_text("theirs: 1\n")
    before = contents(config.run_folder)
    assert experiment(config).run() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(config.run_folder) in error
    if "metrics.csv" not in names:
        assert f"holds files and no run ({', '.join(names)})" in error
        assert "--name" in error
    assert contents(config.run_folder) == before


def test_links_in_a_folder_are_replaced_and_not_written_through(done, tmp_path):
    shutil.copytree(done.run_folder, tmp_path / "run")
    (tmp_path / "mine.txt").write_text("mine\n")
    for name in (".owner", "config.yaml.partial", "metrics.csv.partial"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        (tmp_path / "run" / name).symlink_to(tmp_path / "mine.txt")
    assert experiment(toy_config(tmp_path, n_updates=26, resume=True)).run() == 0
    assert (tmp_path / "mine.txt").read_text() == "mine\n"


def test_a_folder_with_nothing_of_a_persons_is_taken(tmp_path):
    config = toy_config(tmp_path, n_updates=2)
    (config.run_folder / "checkpoints" / "8.orbax-checkpoint-tmp").mkdir(parents=True)
    (config.run_folder / ".DS_Store").write_text("")
    assert experiment(config).run() == 0


def test_a_run_that_was_killed_before_it_wrote_anything_can_be_started_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.owned():
        folder.admit({"seed": 1}, resume=False, free=())
        folder.evaluations.write_text("update\n")
    assert experiment(toy_config(tmp_path, n_updates=2)).run() == 0


def test_names_that_are_no_updates_are_no_checkpoints(done, tmp_path):
    shutil.copytree(done.run_folder, tmp_path / "run")
    for name in ("\u0669", "\u00b2", "007", "+9", "9.5", "99-1"):
        (tmp_path / "run" / "checkpoints" / name).mkdir()
    assert saved_updates(tmp_path / "run" / "checkpoints") == [20, 24]
    assert experiment(toy_config(tmp_path, n_updates=26, resume=True)).run() == 0
    assert saved_updates(tmp_path / "run" / "checkpoints") == [24, 26]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert experiment(toy_config(tmp_path / "file")).run() == 2
    assert "cannot write to" in capsys.readouterr().err
    if os.geteuid() != 0:  # root writes anywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        assert experiment(toy_config(tmp_path / "locked")).run() == 2
        assert "Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "why"), [(None, "it has no config.yaml"), ("{", "config file"), ("- 1", "config file")]
)
def test_a_run_without_a_readable_configuration_is_refused(done, tmp_path, text, why):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("update\n")
    if text is not None:
        folder.config.write_text(text)
    with pytest.raises(RunRefused, match=f"cannot resume .*: {why}") as refused:
        folder.admit({"seed": 1}, resume=True, free=())
    assert "\n" not in str(refused.value)


def test_differences_are_those_after_saving():
    given = {"a": {"b": (1, 2), "c": 1}, "new": 1}
    assert differences(yaml.safe_load("{a: {b: [1, 2], c: 2}, old: x}"), given) == {
        "a.c": (2, 1),
        "new": ("not set", 1),
        "old": ("x", "not set"),
    }


# ---------------------------------------------------------------------------------------------- curves


def read_curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Name -> (step, value) pairs of all event files in a folder: records of length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    curves: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            event, content = Event.FromString(content[12 : 12 + length]), content[16 + length :]
            for value in event.summary.value:
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def test_curves_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    config = toy_config(tmp_path, n_updates=6, tensorboard=True)
    experiment(config).train()
    for seed in (0, 1):
        curves = read_curves(config.run_folder / "tensorboard" / f"seed_{seed}")
        for name, table in (("loss", "metrics.csv"), ("return", "metrics.csv"), ("Up/return", "eval.csv")):
            column = name.rpartition("/")[2]
            rows = [row for row in read_table(config.run_folder / table)[1] if row["seed"] == str(seed)]
            rows = [row for row in rows if row.get("task", "Up") == "Up"]
            np.testing.assert_allclose(
                curves[name], [(int(row["update"]), float(row[column])) for row in rows], rtol=1e-6
            )


def test_tensorboard_without_its_package_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'needs tensorboardX, which is not installed: pip install .*\[tensorboard\]"'):
        experiment(toy_config(tmp_path, tensorboard=True))


# ---------------------------------------------------------------------------------------------- what is said


def test_the_progress_line():
    standing = Standing(1200, 30000, 34567.8, 3723.4, 0.4567, 0.615)
    assert str(standing) == "update 1,200/30,000  34,568 steps/s  1:02:03 left  return 0.457  solved 62%"
    assert str(Standing(0, 5)) == "update 0/5"
    assert str(Standing(2, 5, training_return=-0.5, alive=0.666)) == "update 2/5  return -0.500  alive 67%"
    assert [duration(seconds) for seconds in (0.4, 59.6, 3600)] == ["0:00", "1:00", "1:00:00"]


def test_plain_lines_are_few_and_the_last_standing_is_among_them():
    out = io.StringIO()
    with Progress(Console(file=out, width=200)) as progress:
        progress.doing("compiling")
        for update in range(1, 100):
            progress.doing("training")
            progress.stands(Standing(update, 99))
        progress.say("[done]")
    lines = out.getvalue().splitlines()
    assert lines == ["compiling ...", "training ...", "update 1/99", "update 99/99", "[done]"]


def test_the_live_line_in_a_terminal():
    out = io.StringIO()
    with Progress(Console(file=out, width=100, force_terminal=True)) as progress:
        progress.stands(Standing(7, 99))
        progress.doing("evaluating")
        progress.say("a line that stays")
    assert "update 7/99" in out.getvalue()
    assert "evaluating" in out.getvalue()
    assert "a line that stays" in out.getvalue()


def test_the_live_line_fits_into_eighty_characters_and_counts_the_seconds(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("minimax_lib.experiment.progress.time.monotonic", lambda: now[0])
    progress = Progress(Console(file=io.StringIO(), width=80, force_terminal=True))
    assert not re.search("[0-9]", progress._line().plain)  # nothing has begun yet, and so no time is shown
    progress.doing("compiling the training and the evaluation")
    now[0] = 83.0
    assert str(progress._line()).endswith("compiling the training and the evaluation  1:23")
    standing = Standing(29_999, 30_000, 1_234_567.8, 372_340.4, -0.4567, 0.615)
    progress.stands(standing)
    for activity in ("training", "evaluating", "saving"):
        progress.doing(activity)
        line = str(progress._line())
        assert len(line) <= 80
        assert "update 29,999/30,000" in line
    assert "103:25:40 left" in line
    assert standing.within(30) == "update 29,999/30,000"

"""Runs that are killed, stopped or hindered at any moment can be resumed and end as if nothing had happened.

The runs are toy ones in child processes (`forked_runs.py`), so that many moments can be tried. One costs 1.5 seconds of
the processor: one moment of each kind is for everybody, the others are deep.
"""

import asyncio
import gc
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import crash
import pytest
from crash import DISPATCH, SAVE, Runs, assert_same_run, copied, final_state, interrupted, table
from toy_program import EVALUATION, toy_config, toy_program

from minimax_lib.config import load_yaml
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.store import tables as writer
from minimax_lib.store.checkpoint import hush_failed_writes, placed
from minimax_lib.store.files import saved_updates


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def whole(runs):
    """The folder of a run that nothing disturbed."""
    assert runs({"name": "whole"}) == 0
    return runs.folder / "whole"


def test_an_undisturbed_run_has_every_row_once(whole):
    rows = table(whole / "metrics.csv")
    assert [(int(row["update"]), int(row["seed"])) for row in rows] == [(u, s) for u in range(2, 25, 2) for s in (0, 1)]
    assert all(int(row["env_steps"]) == 5 * int(row["clock"]) for row in rows)
    evaluated = [(int(row["update"]), row["seed"], row["task"]) for row in table(whole / "eval.csv")]
    updates = (0, 6, 12, 18, 24)
    assert evaluated == [(u, s, m) for u in updates for s in "01" for m in ("Up", "Down")]
    assert final_state(whole)[0] == 24


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "n"), [(kind, 6 if "killed" in kind else 4) for kind in crash.KINDS])
def test_some_of_what_the_crash_command_tries_holds(runs, whole, kind, n):
    """All of it: `python tests/crash.py`."""
    attempts = list(crash.KINDS[kind](runs, whole, random.Random(20260725), n))
    assert attempts
    assert [(attempt.what, attempt.wrong) for attempt in attempts if attempt.wrong] == []


@pytest.mark.deep
def test_an_attempt_that_does_not_hold_is_told(runs, whole):
    """The crash command's own checks can fail."""
    assert runs({"name": "other", "seed": 5}) == 0
    attempt = crash.Attempt.of("another seed", lambda: assert_same_run(runs.folder / "other", whole))
    assert attempt.wrong
    damaged, copy = (whole / "eval.csv").read_bytes()[:50], runs.folder / "lossy"
    shutil.copytree(whole, copy)
    (copy / "eval.csv").write_bytes(damaged)
    with pytest.raises(AssertionError):
        crash.assert_nothing_lost(copy, whole, "eval.csv", damaged, "", 8)


APPEND, REPLACE = "minimax_lib.store.tables:append_durably", "minimax_lib.store.files:os.replace"
MOMENTS = {
    "before a row": [[APPEND, 6, "kill_before"]],
    "in the middle of a row": [[APPEND, 7, "kill_half"]],
    "in the middle of the first row": [[APPEND, 2, "kill_half"]],
    "in the middle of an evaluation's rows": [[APPEND, 9, "kill_half"]],
    "between the rows and their checkpoint": [[SAVE, 3, "kill_before"]],
    "while a checkpoint is being written": [[SAVE, 3, "kill_after"]],
    "while the first checkpoint is being written": [[SAVE, 1, "kill_after"]],
    "while the last checkpoint is being written": [[SAVE, 6, "kill_after"]],
    "as a checkpoint is about to appear": [["orbax.checkpoint._src.path.async_path:rename", 3, "kill_before"]],
    "as an old checkpoint is deleted": [["shutil:rmtree", 1, "kill_before"]],
    # The first one is the signature of the process. The configuration is as it was, so it is not written again.
    "before a table is cut back": [[SAVE, 3, "kill_before"], [REPLACE, 2, "kill_before"]],
    "after a table is cut back": [[SAVE, 3, "kill_before"], [REPLACE, 2, "kill_after"]],
    "before the other table is cut back": [[SAVE, 3, "kill_before"], [REPLACE, 3, "kill_before"]],
}


def deep_but_for(first: str, others: Iterable[str]) -> list[Any]:
    return [first, *(pytest.param(name, marks=pytest.mark.deep) for name in others if name != first)]


@pytest.mark.parametrize("moment", deep_but_for("in the middle of a row", MOMENTS))
def test_killed_at_the_worst_moment_and_resumed_it_is_the_same_run(runs, whole, moment):
    name = moment.replace(" ", "-")
    for fault in MOMENTS[moment]:
        assert runs({"name": name, "resume": True}, fault=fault) == -signal.SIGKILL
    assert runs({"name": name, "resume": True}) == 0
    assert_same_run(runs.folder / name, whole)


@pytest.mark.parametrize(
    ("name", "status"),
    [
        pytest.param("SIGINT", 130, marks=pytest.mark.deep),
        ("SIGTERM", 143),
        pytest.param("SIGHUP", 129, marks=pytest.mark.deep),
    ],
)
def test_a_signal_saves_and_leaves_and_the_resumed_run_is_the_same(runs, whole, name, status):
    """At update 10, where no checkpoint is due."""
    slow = {"program": {"seconds": 0.01}}
    assert runs({"name": name}, fault=[DISPATCH, 6, name], **slow) == status
    assert f"{name}: saving at the end of this interval" in runs.output
    assert runs.output.splitlines()[-1].startswith(f"{name}: saved at update 10 of 24; --resume continues")
    assert final_state(runs.folder / name)[0] == 10
    assert runs({"name": name, "resume": True}) == 0
    assert_same_run(runs.folder / name, whole)


@pytest.mark.deep
def test_a_second_ctrl_c_leaves_at_once(runs, whole):
    """In the middle of a dispatch that would take a minute."""
    settings = {"name": "hasty", "resume": True}
    fault = [DISPATCH, 6, "SIGINT SIGINT hang"]
    status, seconds = runs.timed(settings, fault=fault, program={"seconds": 0.01})
    assert status == 130
    assert seconds < 30
    assert "interrupted; the newest checkpoint is that of update 8" in runs.output
    assert runs(settings) == 0
    assert_same_run(runs.folder / "hasty", whole)


@pytest.mark.deep
def test_a_second_ctrl_c_leaves_although_python_has_no_turn(runs, whole):
    """The main thread waits in C, as for XLA or a disk, where no handler of a signal is called."""
    settings = {"name": "stuck", "resume": True}
    status, seconds = runs.timed(settings, fault=[SAVE, 3, "stuck"], kill_after=40)
    assert status == 130, runs.output
    assert seconds < 30
    assert runs.output.splitlines()[-1] == f"interrupted; --resume continues {runs.folder / 'stuck'}"
    assert runs(settings) == 0
    assert_same_run(runs.folder / "stuck", whole)


@pytest.mark.deep
def test_a_signal_before_the_first_update_leaves_nothing_to_lose(runs):
    status = runs({"name": "early"}, fault=[DISPATCH, 1, "SIGTERM"], program={"seconds": 0.01})
    assert status == 143
    assert "nothing to save" in runs.output
    assert runs({"name": "early"}) == 0  # no --resume needed


@pytest.mark.deep
@pytest.mark.parametrize(("function", "call"), [(APPEND, 8), ("minimax_lib.store.checkpoint:check_space", 3)])
def test_a_full_disk_ends_the_run_in_one_line_and_nothing_is_lost(runs, whole, function, call):
    settings = {"name": f"full-{call}", "resume": True}
    assert runs(settings, fault=[function, call, "no_space"]) == 1
    assert_full_disk_is_told(runs.output)
    assert runs(settings) == 0
    assert_same_run(runs.folder / settings["name"], whole)


def assert_full_disk_is_told(output: str) -> None:
    error = [line for line in output.splitlines() if line.startswith("error:")]
    assert len(error) == 1
    assert "No space left on device" in error[0]
    assert "the newest checkpoint is that of update" in error[0]
    assert "Traceback" not in output


def test_a_full_disk_ends_a_run_in_this_process_in_one_line_too(whole, tmp_path, monkeypatch, capsys):
    append, n_calls = writer.append_durably, itertools.count(1)

    def full(path: Path, text: str) -> None:
        if next(n_calls) == 8:
            raise OSError(28, "No space left on device", str(path))
        append(path, text)

    config = toy_config(tmp_path, name="full", resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(writer, "append_durably", full)
        assert ExperimentRunner(config, toy_program(config), EVALUATION).run() == 1
    assert_full_disk_is_told("".join(capsys.readouterr()))
    assert ExperimentRunner(config, toy_program(config), EVALUATION).run() == 0
    assert_same_run(tmp_path / "full", whole)


@pytest.mark.deep
def test_a_write_that_fails_in_the_background_is_told_in_one_line(runs, whole):
    """orbax writes the parts of a state side by side, and all of them fail."""
    assert runs({"name": "no-room"}, fault=[SAVE, 6, "no_room"]) == 1
    devices, *before, last = runs.output.splitlines()
    assert devices.startswith("cpu: ")
    assert last.startswith("error: a checkpoint could not be written: ")
    assert re.search("File too large|os_error_code='27'", last), last  # orbax's message depends on which part is first
    assert all(line.startswith("update") or line.endswith("...") for line in before), runs.output
    assert runs({"name": "no-room", "resume": True}) == 0
    assert_same_run(runs.folder / "no-room", whole)


class Ending:
    """Something that fails when nobody is left to hear of it."""

    def __init__(self, error: Exception):
        self.error = error

    def __del__(self):
        raise self.error


def test_what_a_failed_write_leaves_behind_is_not_reported_and_bugs_are(monkeypatch, caplog):
    """The errors that orbax leaves at random: of tasks that nobody asks, and of event loops that are closed."""
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(str(unraisable.exc_value)))
    hush_failed_writes.__wrapped__()
    for error in (RuntimeError("Event loop is closed"), RuntimeError("a bug")):
        Ending(error)
    assert reported == ["a bug"]

    # A read that orbax has begun and given up, as Python reports it.
    names: dict = {}
    exec(compile("async def read(): pass", "/site-packages/orbax/checkpoint/reading.py", "exec"), names)
    unawaited = names["read"]()
    sys.unraisablehook(SimpleNamespace(exc_value=OSError("not read"), object=unawaited))
    unawaited.close()
    assert reported == ["a bug"]

    async def fails():
        raise OSError("no space left on device")

    loop = asyncio.new_event_loop()
    task = loop.create_task(fails())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del task
    gc.collect()
    assert caplog.records == []


@pytest.mark.deep  # test_checkpoint.py has damage of all kinds
def test_a_damaged_newest_checkpoint_costs_time_and_nothing_else(runs, whole):
    folder = copied(runs, interrupted(runs), "damaged")
    settings = {"name": "damaged", "resume": True}
    before, newest = saved_updates(folder / "checkpoints")
    for file in folder.glob(f"checkpoints/{newest}/state/**/d/*"):
        file.write_bytes(file.read_bytes()[:10])
    assert runs(settings) == 0
    assert f"the checkpoint of update {newest} is damaged" in runs.output
    assert f"goes on from update {before}" in runs.output
    assert (folder / "damaged_checkpoints" / str(newest)).is_dir()
    assert_same_run(folder, whole)


def test_all_checkpoints_damaged_is_refused_and_nothing_is_touched(runs):
    folder = copied(runs, interrupted(runs), "hopeless")
    settings = {"name": "hopeless", "resume": True}
    for state in folder.glob("checkpoints/*/state*"):
        shutil.rmtree(state)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")}
    for _ in range(2):  # the second time too
        assert runs(settings) == 2
        assert runs.output.splitlines()[-1].startswith(f"error: cannot resume {folder}: no checkpoint in")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.csv")} == before


def test_resuming_a_finished_run_says_so(runs, whole):
    before = (whole / "metrics.csv").read_bytes()
    assert runs({"name": "whole", "resume": True}) == 0
    assert "is finished already" in runs.output
    assert (whole / "metrics.csv").read_bytes() == before


@pytest.mark.deep
def test_a_longer_run_from_a_finished_one_is_the_long_run(runs, whole):
    """The short run's end is a multiple of the log interval, so that even the rows agree."""
    assert runs({"name": "short", "n_updates": 12}) == 0
    assert runs({"name": "short", "n_updates": 24, "resume": True}) == 0
    assert_same_run(runs.folder / "short", whole)


REAL = """
env: {name: AMaze, height: 4, width: 4, n_walls: 3, max_steps: 12}
model: ff
runner: {name: dr, n_parallel: 4, n_steps: 12}
ppo: {n_epochs: 2, lr_final: 0.0}
eval: {every: 10, tasks: [TrainingDistribution], n_episodes: 2}
n_updates: 30
log_every: 1
report: false
checkpoint_every: 3
"""


def start(folder: Path, name: str, *flags: str) -> subprocess.Popen:
    """The real command on a real configuration."""
    root = Path(__file__).parent.parent
    command = [sys.executable, str(root / "train.py"), "--config", str(folder / "real.yaml"), "--name", name, *flags]
    command += ["--log-dir", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)


def wait_for_update(folder: Path, update: int) -> None:
    """Returns when metrics.csv has come that far."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        rows = table(folder / "metrics.csv")
        if rows and int(rows[-1]["update"]) >= update:
            return
        time.sleep(0.01)
    raise TimeoutError(f"update {update} was not reached")


@pytest.mark.deep
def test_the_real_command_killed_and_resumed_is_the_same_run(tmp_path):
    """Domain randomisation in AMaze with a scheduled learning rate."""
    (tmp_path / "real.yaml").write_text(REAL)
    whole = start(tmp_path, "whole")
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    killed = start(tmp_path, "killed", "--resume")
    wait_for_update(tmp_path / "killed", 8)
    killed.kill()
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    resumed = start(tmp_path, "killed", "--resume")
    output, _ = resumed.communicate()
    assert resumed.returncode == 0, output
    assert "goes on from update" in output

    config = load_yaml(tmp_path / "real.yaml")
    shape = placed(SeedRunner(make_runner(config), config.n_seeds).shape)
    assert_same_run(tmp_path / "killed", tmp_path / "whole", shape)

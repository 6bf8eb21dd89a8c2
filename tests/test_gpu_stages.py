"""What `benchmarks/gpu.py` does around its measurements, with stages that take no time."""

import argparse
import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import batch_size
import common
import gpu
import needs
import stages as stages_module
from gpu_stages import LONGEST, METHODS, all_stages
from stages import ROOT, Stage, Stages, last_words, run_until

from minimax_lib.commands.train import check
from minimax_lib.config import parse
from minimax_lib.config.evaluate import parse as parse_evaluate

PAIR = (float("nan"), float("inf"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(stages_module, "POLL", 0.02)
    monkeypatch.setattr(stages_module, "TO_LEAVE", 0.2)


def within(out: Path, seconds: float) -> Stages:
    return Stages(out, time.monotonic() + seconds)


def writes(name: str, text: str = "x", **more) -> Stage:
    """A stage that appends to its file."""
    code = f"open(r'{{out}}/{name}.json', 'a').write('{text}')"
    return Stage(name, ("-c", code), f"{name}.json", 0.0, **more)


def fails(name: str) -> Stage:
    return Stage(name, ("-c", "print('on the way'); raise ValueError('no such card')"), f"{name}.json", 0.0)


def sleeps(name: str, minutes: float = 0.0, **more) -> Stage:
    return Stage(name, ("-c", "import time; time.sleep(60)"), f"{name}.json", minutes, **more)


def test_a_stage_is_done_once_and_again_if_its_command_or_its_file_is_another(tmp_path):
    for _ in range(2):
        within(tmp_path, 60).run([writes("one")])
    assert (tmp_path / "one.json").read_text() == "x"
    within(tmp_path, 60).run([writes("one", "y")])
    assert (tmp_path / "one.json").read_text() == "xy"
    (tmp_path / "one.json").unlink()
    within(tmp_path, 60).run([writes("one", "y")])
    assert (tmp_path / "one.json").read_text() == "y"


def test_a_failure_is_one_line_and_the_next_stage_begins(tmp_path, capsys):
    stages = within(tmp_path, 60)
    all_of_them = [fails("bad"), writes("after_bad", after="bad"), writes("good")]
    stages.run(all_of_them)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bad: failed")]
    assert len(lines) == 1
    assert lines[0].endswith("status 1: ValueError: no such card (bad.log)")
    assert stages.failed(all_of_them) == ["bad"]
    assert stages.missing(all_of_them) == ["bad (failed)", "after_bad"]
    assert (tmp_path / "good.json").exists()
    assert not (tmp_path / "after_bad.json").exists()


def test_a_stage_that_leaves_no_file_has_failed(tmp_path):
    stages, stage = within(tmp_path, 60), Stage("none", ("-c", "pass"), "none.json", 0.0)
    stages.run([stage])
    assert stages.failed([stage]) == ["none"]


def test_no_stage_begins_that_does_not_fit_but_a_shorter_one_does(tmp_path, capsys):
    stages = within(tmp_path, 30)
    stages.run([sleeps("long", minutes=1.0), writes("short")])
    assert "long: left out, it needs about 1.0 minutes, and 0.5 are left" in capsys.readouterr().out
    assert "long" not in stages.record
    assert stages.is_done(writes("short"))


def test_a_stage_that_was_cut_off_is_given_more_time(tmp_path, monkeypatch):
    monkeypatch.setattr(stages_module, "PART", 0.0)
    stage = sleeps("slow", minutes=0.1 / 60)
    stages = within(tmp_path, 60)
    stages.run([stage])
    assert stages.record["slow"]["status"] == "stopped"
    assert stages._needed(stage) >= 1.5 * 0.2


def test_a_training_stops_at_the_end_of_the_time_and_is_not_done(tmp_path):
    stage = sleeps("run", resumes=True, to_save=0.2, progress=lambda out: "update 7 of 30")
    stages = within(tmp_path, 0.4)
    stages.run([stage])
    assert stages.record["run"]["status"] == "stopped"
    assert stages.missing([stage]) == ["run (update 7 of 30)"]
    assert stages._left() > -5


def test_a_command_that_has_done_enough_may_save(tmp_path):
    code = f"""
import time
try:
    open(r'{tmp_path}/begun', 'w').close()
    time.sleep(60)
except KeyboardInterrupt:
    open(r'{tmp_path}/saved', 'w').close()
"""
    command = [sys.executable, "-c", code]
    assert run_until(command, tmp_path / "log", 60, enough=(tmp_path / "begun").exists, to_save=30) is None
    assert (tmp_path / "saved").exists()


def test_what_does_not_leave_is_killed_with_all_that_it_has_started(tmp_path):
    code = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
open(r'{tmp_path}/child.partial', 'w').write(str(child.pid))
import os; os.replace(r'{tmp_path}/child.partial', r'{tmp_path}/child')
time.sleep(60)
"""
    began = time.monotonic()
    run_until([sys.executable, "-c", code], tmp_path / "log", 60, enough=(tmp_path / "child").exists, to_save=0.1)
    assert time.monotonic() - began < 30
    child = Path(f"/proc/{(tmp_path / 'child').read_text()}/stat")
    for _ in range(100):  # until it is reaped
        if not child.exists() or child.read_text().split()[2] == "Z":
            break
        time.sleep(0.02)
    else:
        pytest.fail("the child runs on")


def test_ctrl_c_stops_the_stage_is_recorded_and_passed_on(tmp_path):
    stage, stages = sleeps("run"), within(tmp_path, 60)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        stages.run([stage])
    assert json.loads((tmp_path / "stages.json").read_text())["run"]["status"] == "stopped"


def test_a_second_ctrl_c_leaves_nothing_behind(tmp_path):
    code = f"""
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
open(r'{tmp_path}/pid.partial', 'w').write(str(os.getpid()))
os.replace(r'{tmp_path}/pid.partial', r'{tmp_path}/pid')
time.sleep(60)
"""

    def begun() -> bool:
        there = (tmp_path / "pid").exists()
        if there:  # the first Ctrl-C is what `run_until` sends then
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return there

    with pytest.raises(KeyboardInterrupt):
        run_until([sys.executable, "-c", code], tmp_path / "log", 60, enough=begun, to_save=60)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_background_job_and_its_stages_hear_signals(tmp_path):
    code = f"""
import sys, time
sys.path[:0] = [r'{ROOT}', r'{ROOT / "benchmarks"}']
from pathlib import Path
from stages import run_until, terminated_as_interrupted
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
with terminated_as_interrupted():
    run_until([sys.executable, '-c', child], Path(r'{tmp_path}/log'), 60)
"""
    # A shell starts its background jobs like this.
    job = subprocess.Popen(
        [sys.executable, "-c", code], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )
    assert job.wait() == 0
    assert (tmp_path / "log").read_text() == "True\n"


def test_the_last_words_of_a_log_are_those_of_the_error():
    log = "compiling\nTraceback (most recent call last):\n  File\njax.errors.JaxRuntimeError: OOM\n--------\nbye"
    assert last_words(log) == "jax.errors.JaxRuntimeError: OOM"
    assert last_words("one\ntwo\n") == "two"
    assert last_words("") == "it printed nothing"


def options(small: bool) -> argparse.Namespace:
    return argparse.Namespace(small=small, models=("lstm", "s5"), methods=METHODS, seeds=2, n_updates=100)


def test_the_most_telling_stages_come_first_and_each_fits_in_a_call():
    stages = all_stages(options(small=False))
    names = [stage.name for stage in stages]
    assert names[:6] == ["agreement", "env_short", "train_short", "gaps_short", "one_seed", "one_seed_evaluation"]
    assert names[-1] == "batch_size"
    assert len(set(names)) == len(names)
    assert all(stage.minutes <= LONGEST for stage in stages)
    assert sum(stage.minutes for stage in stages[:4]) <= LONGEST
    assert [stage.name for stage in stages if stage.resumes] == [
        name for name in names if f"{name}_evaluation" in names or name == "batch_size"
    ]


@pytest.mark.parametrize("small", [False, True])
def test_the_commands_of_all_stages_are_possible(small):
    for stage in all_stages(options(small)):
        script, *words = [word.format(out="out") for word in stage.words]
        assert (ROOT / script).exists()
        if script == "train.py":
            config = parse(words)
            assert config.name == stage.name
            check(config)
        if script == "evaluate.py":
            assert parse_evaluate(words).run == (f"out/runs/{stage.after}",)
        if script.endswith("batch_size.py"):
            assert batch_size.parsed(words).out == Path("out/batch_size.json")


def test_small_reaches_every_kind_of_stage():
    full, small = ({stage.words[0] for stage in all_stages(options(small))} for small in (False, True))
    assert full == small


def test_what_is_not_installed_is_named_at_once_with_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "missing", lambda: ["distrax>=0.1.9", "gast"])
    assert gpu.main(["--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: not installed: distrax>=0.1.9, gast; where there is a network: python3 -m pip")
    assert "'distrax>=0.1.9' gast;" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--minutes", "0"], "--minutes is 0: it must be more than 0"),
        (["--only", "one_sed"], "did you mean 'one_seed'?"),
        (["--n-updates", "-1"], "--n-updates is -1: it must be more than 0"),
    ],
)
def test_bad_input_is_refused(words, why, capsys):
    with pytest.raises(SystemExit) as stopped:
        gpu.main(words)
    assert stopped.value.code == 2
    assert why in capsys.readouterr().err


def test_without_an_accelerator_nothing_runs(tmp_path, monkeypatch, capsys):
    facts = {"platform": "cpu", "device": "cpu", "versions": {"jax": "1", "python": "3"}}
    monkeypatch.setattr(gpu, "probed", lambda environment: facts)
    assert gpu.main(["--out", str(tmp_path)]) == 2
    assert "jax sees no accelerator" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_stages_share_compiled_programs_and_have_the_cpu_too(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")
    found = gpu.surroundings(tmp_path)
    assert found["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "cache")
    assert found["JAX_PLATFORMS"] == "cuda,cpu"
    assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.5"
    assert found["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)


def test_the_end_says_what_is_done_what_is_missing_and_how_to_go_on(tmp_path, monkeypatch, capsys):
    facts = {"platform": "gpu", "device": "card", "versions": {"jax": "1", "python": "3"}}
    monkeypatch.setattr(gpu, "probed", lambda environment: facts)
    monkeypatch.setattr(gpu, "all_stages", lambda args: [writes("one"), fails("two")])
    words = ["--minutes", "1", "--out", str(tmp_path / "a b")]
    assert gpu.main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"gpu: card; jax 1, python 3; 1 minutes; {tmp_path / 'a b'}"
    assert lines[-3:] == [
        "done: one",
        "missing: two (failed)",
        f"to go on: python benchmarks/gpu.py --minutes 1 --out '{tmp_path / 'a b'}'",
    ]


def requirements_of_setup() -> list[str]:
    """INSTALL of setup.py, without running it."""
    found: dict = {}
    for node in ast.parse((ROOT / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("JAX", "INSTALL"):
            exec(compile(ast.Module([node], []), "setup.py", "exec"), found)
    return found["INSTALL"]


def test_needs_lists_what_setup_asks_for():
    assert [f"{name}{asked}" for name, (asked, *_) in needs.PACKAGES.items()] == requirements_of_setup()
    assert needs.missing() == []


def test_only_what_a_missing_package_needs_is_missing_too():
    def there(module: str) -> bool:
        return module not in ("tensorflow_probability", "gast", "tree", "wrapt", "simplejson")

    lacking = needs.missing(there, lambda name, asked: False)
    assert lacking == ["tfp-nightly>=0.26.0.dev20260101", "gast", "dm-tree", "wrapt"]
    assert needs.missing(lambda module: True, lambda name, asked: name == "flax") == ["flax>=0.12"]
    assert needs.numbers("0.26.0.dev20260101") == (0, 26, 0)


def test_a_copy_without_git_names_its_sources(monkeypatch):
    monkeypatch.setattr(common.shutil, "which", lambda name: None)
    assert common.revision().startswith("no git; sha256 of minimax_lib: ")


def test_numbers_of_two_devices_are_compared():
    from agreement import difference_of_change, judged, largest_difference, share_that_differs

    nan, inf = PAIR
    assert share_that_differs({"a": arrays(1, 2, nan)}, {"a": arrays(1, 3, nan)}) == pytest.approx(1 / 3)
    assert largest_difference(arrays(1, -inf, nan), arrays(1.5, -inf, nan)) == 0.5
    assert largest_difference(arrays(1, 2), arrays(1, nan)) == inf
    assert largest_difference(arrays(-inf), arrays(2)) == inf
    before, theirs = arrays(0, 0), arrays(3, 4)
    assert difference_of_change(before, theirs, theirs) == 0.0
    assert difference_of_change(before, arrays(3, 3), theirs) == pytest.approx(0.2)
    assert judged("dr", "highest", "value at step 0", 1e-5)["agrees"]
    assert not judged("dr", "highest", "value at step 0", 1e-2)["agrees"]
    assert not judged("dr", "highest", "value at step 0", nan)["agrees"]


def arrays(*numbers: float):
    import jax.numpy as jnp

    return jnp.asarray(numbers, jnp.float32)


def study(tmp_path: Path, *words: str) -> argparse.Namespace:
    return batch_size.parsed(["--runs", str(tmp_path), "--n-seeds", "2", "--n-steps", "256", *words])


def test_a_solved_rate_counts_from_the_first_of_two_evaluations():
    assert batch_size.reached_at({0: 0.1, 10: 0.6, 20: 0.4, 30: 0.5, 40: 0.9}, 0.5) == 30
    assert batch_size.reached_at({0: 0.1, 10: 0.6}, 0.5) is None
    assert batch_size.reached_at({}, 0.5) is None


def test_the_length_of_a_run_is_its_steps_but_not_too_few_updates(tmp_path):
    args = study(tmp_path, "--env-steps", "1e8", "--least-updates", "2000")
    assert batch_size.Cell("dr", 32, 1e-4).length(args) == (12_000, 240)
    assert batch_size.Cell("dr", 2048, 1e-4).length(args) == (2000, 40)
    few = study(tmp_path, "--env-steps", "1", "--least-updates", "20")
    assert batch_size.Cell("dr", 2048, 1e-4).length(few) == (20, 1)


@pytest.mark.parametrize("method", batch_size.METHODS)
def test_the_runs_of_the_study_are_possible(tmp_path, method):
    config = parse(batch_size.Cell(method, 2048, 3e-4).flags(study(tmp_path)))
    assert (config.runner.n_parallel, config.ppo.lr, config.n_seeds) == (2048, 3e-4, 2)
    assert config.n_updates % config.eval.every == config.eval.every % config.log_every == 0
    if method == "paired":
        assert config.runner.teacher.ppo.lr == 3e-4


def test_the_runs_of_the_study_may_be_those_of_another_folder(tmp_path):
    flags = batch_size.Cell("dr", 512, 2e-3).flags(study(tmp_path, "--configs", "maze/cpu"))
    config = parse(flags)
    assert (config.model.memory_width, config.runner.n_parallel, config.ppo.lr) == (64, 512, 2e-3)


def test_a_cell_is_read_from_the_tables_of_its_run(tmp_path):
    args = study(tmp_path, "--solved-rate", "0.5")
    cell = batch_size.Cell("dr", 32, 1e-4)
    assert not batch_size.is_finished(cell, args)
    folder = tmp_path / cell.name
    folder.mkdir()
    rates = {(10, 0): (1, 0.2), (10, 1): (0, 0.2), (20, 0): (1, 0.4), (20, 1): (0, 1), (30, 0): (1, 1), (30, 1): (1, 1)}
    rows = [f"{n},{seed},{task},{r}" for (n, seed), both in rates.items() for task, r in zip("AB", both, strict=True)]
    # The last line is still being written.
    (folder / "eval.csv").write_text("\n".join(["update,seed,task,solved_rate", *rows]) + "\n40,0,A,0.")
    trained = [f"{n},{seed},{n * 100},{n}" for n in (10, 20, 30) for seed in (0, 1)]
    (folder / "metrics.csv").write_text("\n".join(["update,seed,env_steps,seconds", *trained]) + "\n")
    found = batch_size.result_of(cell, args)
    # Seed 0 from update 10 on (.6, .7), seed 1 from update 20 on (.5, 1).
    assert (found["reached"], found["updates"], found["env_steps"], found["seconds"]) == (2, 15, 1500, 15)
    assert found["best_rate"] == 1.0
    assert found["finished"]


def test_the_table_has_the_best_learning_rate_of_each_method_and_size():
    row = {"method": "dr", "rows": 32, "seeds": 2, "seconds": 90.0, "best_rate": 0.7}
    rows = [
        row | {"lr": 1e-4, "reached": 1, "updates": 10, "env_steps": 1e6},
        row | {"lr": 3e-4, "reached": 2, "updates": 30, "env_steps": 3e6},
        row | {"lr": 1e-3, "reached": 2, "updates": 20, "env_steps": 2e6},
        row | {"rows": 64, "lr": 1e-4, "reached": 0, "updates": None, "env_steps": None, "seconds": None},
    ]
    assert batch_size.markdown(rows).splitlines()[2:] == [
        "| dr | 32 | 0.001 | 2 of 2 | 20 | 2 | 1.5 | 0.70 |",
        "| dr | 64 | 0.0001 | 0 of 2 | - | - | - | 0.70 |",
    ]


def test_a_study_with_an_unknown_method_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        batch_size.main(["--methods", "pairde"])
    assert stopped.value.code == 2
    assert "did you mean 'paired'?" in capsys.readouterr().err

"""How commands start and leave: output that cannot be written, and signals at any moment."""

import contextlib
import importlib
import io
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minimax_lib.commands import launch
from minimax_lib.output import Unfailing

ROOT = Path(__file__).parent.parent
ENV = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
# Each ends soon, and has something to say.
WORDS = {
    "train": ["--list", "agents"],
    "evaluate": ["--run", "é→"],
    "plot": ["é→"],
    "draw": ["é→"],
    "play": ["--run", "é→"],
    "report": ["é→"],
    "sweep": ["é→"],
}
LIMIT = 100  # seconds


def started(command: str, *words: str, **more) -> subprocess.Popen:
    words = [sys.executable, "-m", "minimax_lib.commands.launch", command, *words]
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENV} | more
    return subprocess.Popen(words, **more)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Not ignored, as it is where a shell runs these tests in the background: processes inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_every_way_to_a_command_goes_through_one_door():
    scripts = re.findall(r'"minimax-(\w+)=([\w.]+):(\w+)"', (ROOT / "setup.py").read_text())
    assert [name for name, _, _ in scripts] == list(launch.COMMANDS) == list(WORDS)
    for name, module, function in scripts:
        assert (module, function) == ("minimax_lib.commands.launch", name)
        code = (ROOT / "minimax_lib" / "commands" / f"{name}.py").read_text()
        assert code.endswith(f"    sys.exit(launch.{name}())\n")
    for name in ("train", "evaluate"):
        assert f"from minimax_lib.commands.launch import {name}\n" in (ROOT / f"{name}.py").read_text()


def test_nothing_slow_is_imported_before_signals_are_taken_over():
    code = (
        "import sys; import minimax_lib.commands.launch; print({'jax', 'numpy', 'rich', 'yaml'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True).stdout == "set()\n"


# ------------------------------------------------------------------------------------------------------------- output


def unfailing(number: int, encoding: str = "ascii") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(Unfailing(number, "x")), encoding, "replace", line_buffering=True)


@pytest.fixture(params=["full", "closed pipe", "closed file"])
def lost(request):
    """A stream whose every write fails."""
    if request.param == "full":
        number = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, number = os.pipe()
        os.close(reader)
    stream = unfailing(number)
    if request.param == "closed file":
        os.close(number)
    yield stream
    with contextlib.suppress(OSError):
        os.close(number)


@pytest.mark.parametrize("command", WORDS)
def test_lost_output_changes_no_exit_status(command, lost, monkeypatch, tmp_path, capfd):
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(f"minimax_lib.commands.{command}").main
    statuses = []
    for stream in (sys.stdout, lost):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        for words in (WORDS[command], ["--help"]):
            try:
                statuses.append(main(words))
            except SystemExit as error:
                statuses.append(error.code)
    assert statuses[:2] == statuses[2:] == [0 if command == "train" else 2, 0]
    assert capfd.readouterr().err.count("\n") <= 1 + statuses.count(2)


def test_letters_that_a_terminal_does_not_have_are_replaced():
    reader, writer = os.pipe()
    stream = unfailing(writer)
    print("a → b…", file=stream)
    assert os.read(reader, 100) == b"a ? b?\n"
    os.close(writer)
    os.close(reader)


LINES = """
import sys
from minimax_lib.output import guard_output
guard_output()
print("a → b\\udcff")
print("é", file=sys.stderr)
print("x" * 100_000)
"""


@pytest.mark.parametrize(
    ("place", "status", "out", "err"),
    [
        ("", 0, b"a ? b?\n", rb"\xe9"),
        (">&-", 0, b"", rb"\xe9"),
        ("2>&-", 0, b"a ? b?\n", b""),
        ("<&- >&- 2>&-", 0, b"", b""),
        (">/dev/full", 0, b"", b"warning: standard output cannot be written: No space left on device\n"),
        ("2>/dev/full", 0, b"a ? b?\n", b""),
        ("| head -n 1; exit ${PIPESTATUS[0]}", 0, b"a ? b?\n", rb"\xe9"),
    ],
)
def test_a_process_prints_wherever_its_output_goes(place, status, out, err):
    command = f"{sys.executable} -c '{LINES}' {place}"
    env = ENV | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, timeout=LIMIT)
    assert done.returncode == status
    assert done.stdout.startswith(out)
    assert bool(out) == bool(done.stdout)
    assert err in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr


@pytest.mark.deep
@pytest.mark.parametrize("command", WORDS)
def test_a_command_in_a_terminal_without_letters(command, tmp_path):
    process = started(command, *WORDS[command], cwd=tmp_path, env=ENV | {"PYTHONIOENCODING": "ascii", "TERM": "dumb"})
    out, err = process.communicate(timeout=LIMIT)
    assert "Traceback" not in out + err
    assert process.returncode == (0 if command == "train" else 2)


@pytest.mark.deep
def test_a_table_too_wide_for_the_terminal_is_printed_after_the_work(tmp_path):
    words = ["--run", "maze/dr", "--tasks", "SmallCorridor", "Labyrinth", "--n-episodes", "2"]
    env = ENV | {"PYTHONIOENCODING": "ascii", "COLUMNS": "20", "TERM": "dumb"}
    process = started("evaluate", *words, cwd=tmp_path, env=env)
    out, err = process.communicate(timeout=600)
    assert (process.returncode, "written: " in out, "Traceback" in err) == (0, True, False), err


# ------------------------------------------------------------------------------------------------------------ signals

SAID = {"SIGINT": "interrupted", "SIGTERM": "ended by SIGTERM", "SIGHUP": "ended by SIGHUP"}
STATUS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}


def await_handlers(process: subprocess.Popen) -> None:
    """Returns when the process has taken over SIGTERM."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        if caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.005)
    raise AssertionError("no handler")


def assert_left(process: subprocess.Popen, name: str) -> None:
    """The process leaves with the status and the one line of a signal."""
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == STATUS[name], err
    if f"{name}: saving at the end" in err:  # on a fast machine, the training had begun
        assert err.count("\n") <= 3, err
        assert err.splitlines()[-1].startswith((f"{name}: nothing to save", f"{name}: saved at")), err
    else:
        assert (err.count("\n"), err.startswith(SAID[name])) == (1, True), err


MOMENTS = [0.0, 0.2, 0.8, *(pytest.param(moment, marks=pytest.mark.deep) for moment in (0.1, 0.4, 1.2, 1.8, 2.5))]


@pytest.fixture
def many(tmp_path):
    """A file of a sweep, and words for each command that keep it busy for a while."""
    (tmp_path / "many.yaml").write_text("config: maze/dr\nvary: {seed: {min: 0, max: 10000}}\ntrials: 1000\n")
    busy = ["--run", "maze/dr", "--compilation-cache", "none"]
    evaluate = [*busy, "--n-episodes", "500"]
    return {
        "train": ["--config", "maze/dr", "--n-updates", "10"],
        "evaluate": evaluate,
        "plot": ["maze/dr"],
        "draw": ["maze/dr", "--what", "episodes", "--compilation-cache", "none"],
        "report": ["maze/dr", "--compilation-cache", "none"],
        "sweep": ["many.yaml", "--dry-run"],
    }


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "command",
    ["evaluate", *(pytest.param(name, marks=pytest.mark.deep) for name in WORDS if name not in ("evaluate", "play"))],
)
def test_a_signal_at_any_moment_is_one_line_and_its_status(command, moment, many, tmp_path):
    names = list(SAID) if command != "evaluate" or moment else ["SIGHUP"]
    name = names[int(10 * moment) % len(names)]
    process = started(command, *many[command], cwd=tmp_path)
    await_handlers(process)
    time.sleep(moment)
    process.send_signal(signal.Signals[name])
    if process.wait(LIMIT) in (0, 1, 2):
        pytest.skip("the command has ended before the signal")
    assert_left(process, name)


STUCK = """
import sys, time, types
from minimax_lib.commands import launch
def main():
    print("begun", flush=True)
    time.sleep(0.01)
    {body}
module = types.ModuleType("minimax_lib.commands.train")
module.main = main
sys.modules["minimax_lib.commands.train"] = module
launch.PATIENCE = {patience}
sys.exit(launch.train())
"""
# As on a busy machine: the thread that listens hears of the signal before Python calls the handler.
HEARD = """
    import os, signal
    wakeup = signal.set_wakeup_fd(-1)
    os.write(wakeup, bytes([signal.SIGTERM]))
    time.sleep(0.2)
    signal.set_wakeup_fd(wakeup)
"""
TIDY = "\n    try: time.sleep(60)\n    finally: print('tidied up', flush=True)"
BODIES = {
    "python": "time.sleep(60)",
    "tidied up": TIDY,
    "tidied up, and heard first": HEARD + TIDY,
    "swallowed": "\n    while True:\n        try: time.sleep(60)\n        except BaseException: pass",
    "another error": "\n    try: time.sleep(60)\n    except BaseException: raise RuntimeError('of C')",
    "a destructor": "\n    class A:\n        def __del__(self): time.sleep(60)\n    A(); time.sleep(60)",
    "threads": "\n    import threading; threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(60)",
}


EVERY_TIME = ("python", "tidied up, and heard first", "swallowed")


@pytest.mark.parametrize(
    "body", [*EVERY_TIME, *(pytest.param(b, marks=pytest.mark.deep) for b in BODIES if b not in EVERY_TIME)]
)
def test_whatever_a_command_does_a_signal_ends_it(body):
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK.format(body=BODIES[body], patience=10 if body.startswith("tidied") else 0.3)],
        env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.6)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (143, "ended by SIGTERM\n")
    assert out == ("tidied up\n" if body.startswith("tidied") else "")


def test_a_hangup_that_is_ignored_stays_ignored():
    code = STUCK.format(body="time.sleep(1); print('done')", patience=0.3)
    ignoring = ["bash", "-c", 'trap "" HUP; exec "$@"', "bash", sys.executable, "-c", code]
    process = subprocess.Popen(ignoring, env=ENV, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=20)[0] == "done\n"

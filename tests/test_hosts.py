"""Two processes on this host train together, save together, and neither hangs when the other is lost."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import minimax_lib
from minimax_lib.envs.matrix_game import MatrixGame
from minimax_lib.envs.registry import FAMILIES, register_env
from minimax_lib.runners.hosts import (
    Hosts,
    all_or_none,
    check_devices,
    check_equal,
    check_port,
    is_first,
    join,
    largest,
    n_cores,
    readable,
)
from minimax_lib.store.files import saved_updates
from minimax_lib.store.tables import read_table

ROOT = Path(__file__).parent.parent
LIMIT = 240  # seconds, for a machine that is busy
CONFIG = {
    "env": {"name": "AMaze", "height": 4, "width": 4, "n_walls": 2, "max_steps": 8},
    "model": "ff",
    "runner": {"name": "plr", "n_parallel": 8, "n_steps": 8, "capacity": 32, "min_fill": 0.25, "robust": False},
    "ppo": {"n_epochs": 1},
    "eval": {"every": 4, "tasks": ["TrainingDistribution"], "n_episodes": 1},
    "n_updates": 8,
    "n_devices": 4,
    "log_every": 2,
    "checkpoint_every": 4,
    "report": False,
}
SELF_PLAY = CONFIG | {
    "plugins": ["game_for_two"],
    "env": {"name": "MatrixGame"},
    "model": {"name": "ff", "dense_width": 8},
    "runner": {"name": "selfplay", "n_parallel": 16, "n_steps": 2, "capacity": 2, "every": 2, "n_opponents": 2},
    "eval": {"every": 0},
    "n_updates": 6,
}
GAME_FOR_TWO = """
from minimax_lib.envs.matrix_game import MatrixGame
from minimax_lib.envs.registry import register_env

register_env("MatrixGame", MatrixGame)
"""


class Pair:
    """The command on two processes with two devices each; `output[i]` is what process i said."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        lost_timeout: int = 60,
        own: tuple[Sequence[str], Sequence[str]] = ((), ()),
        config: Mapping[str, Any] = CONFIG,
    ):
        """`own[i]` are flags of process i alone."""
        port = free_port()
        joined = ["--distributed", "--hosts.coordinator", f"localhost:{port}", "--hosts.n-processes", "2"]
        joined += ["--hosts.lost-timeout", str(lost_timeout)]
        flags = (*flags, *joined)
        self.processes = [start(folder, 2, *flags, *own[i], "--hosts.process", str(i), config=config) for i in (0, 1)]

    def finish(self) -> list[int]:
        """The statuses of both; neither is left behind."""
        try:
            self.output = [process.communicate(timeout=LIMIT)[0] for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        return [process.returncode for process in self.processes]


def start(folder: Path, n_devices: int | None, *flags: str, config: Mapping[str, Any] = CONFIG) -> subprocess.Popen:
    """The command in its own process, with `n_devices` devices; None: it has to see to that itself."""
    xla = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    xla += [f"--xla_force_host_platform_device_count={n_devices}"] if n_devices else []
    file = folder / "config.json"  # JSON is YAML
    file.write_text(json.dumps(config))
    command = [sys.executable, str(ROOT / "train.py"), "--config", str(file), "--log-dir", str(folder), *flags]
    environment = os.environ | {"XLA_FLAGS": " ".join(xla), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment
    )


def alone(folder: Path, *flags: str, n_devices: int | None = 4, config: Mapping[str, Any] = CONFIG) -> tuple[int, str]:
    """(status, output) of the command in one process."""
    process = start(folder, n_devices, *flags, config=config)
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    return process.returncode, output


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


AGREEING = """
import sys

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from minimax_lib.runners import hosts

process = int(sys.argv[1])
hosts.join(hosts.Hosts(coordinator=sys.argv[2], n_processes=2, process=process), {"seed": 1, "hosts.process": process})
assert hosts.is_one_of_several()
assert hosts.is_first() == (process == 0)
assert hosts.largest(10 + process) == 11
try:
    with hosts.all_or_none():
        if process == 1:
            raise OSError("a full disk")
except (OSError, RuntimeError) as error:
    print(type(error).__name__, error)
hosts.wait_for_all()
sharding = NamedSharding(jax.make_mesh((2,), ("row",)), PartitionSpec("row"))
rows = jax.make_array_from_callback((2, 3), sharding, lambda _: np.full((1, 3), process))
assert not hosts.is_readable(rows)
print(np.asarray(hosts.readable({"rows": rows})["rows"]).tolist())
"""


@pytest.mark.deep
def test_two_processes_agree_on_what_only_one_of_them_knows():
    """Which of them is first, the largest number, an error in one of them, and the rows of an array."""
    command = [sys.executable, "-c", AGREEING]
    environment = os.environ | {"XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    coordinator = f"localhost:{free_port()}"
    processes = [
        subprocess.Popen(
            [*command, str(i), coordinator],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment,
        )
        for i in (0, 1)
    ]  # fmt: skip
    try:
        output = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    said = [[line for line in text.splitlines() if not line.startswith("[Gloo]")] for text in output]
    rows = "[[0, 0, 0], [1, 1, 1]]"
    assert said == [["RuntimeError another process could not do it", rows], ["OSError a full disk", rows]]
    assert [process.returncode for process in processes] == [0, 0]


def updates(folder: Path) -> list[int]:
    return [int(row["update"]) for row in read_table(folder / "metrics.csv")[1]]


def wait_for_checkpoint(pair: Pair, folder: Path) -> None:
    """Returns when there is one, or when a process has ended."""
    deadline = time.monotonic() + LIMIT
    while not saved_updates(folder / "checkpoints") and all(process.poll() is None for process in pair.processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of runs in which two processes have finished `run`."""
    folder = tmp_path_factory.mktemp("hosts")
    pair = Pair(folder, "--name", "run")
    assert pair.finish() == [0, 0], pair.output
    assert "is finished: 8 updates" in pair.output[0]
    assert "update" not in pair.output[1]  # only the first process speaks
    return folder


@pytest.mark.deep
def test_two_processes_train_as_one_and_only_the_first_writes(done):
    """The same rows of levels on the same four devices in one process: the same run, to rounding."""
    status, output = alone(done, "--name", "alone")
    assert status == 0, output
    assert updates(done / "run") == [2, 4, 6, 8]
    assert saved_updates(done / "run" / "checkpoints") == [4, 8]
    together, single = (read_table(done / name / "metrics.csv")[1] for name in ("run", "alone"))
    for a, b in zip(together, single, strict=True):
        for name in ("env_steps", "clock", "return", "episodes", "loss", "buffer/fill"):
            np.testing.assert_allclose(float(a[name]), float(b[name]), rtol=1e-2, atol=1e-4, err_msg=name)


@pytest.mark.deep
def test_what_two_processes_saved_goes_on_in_one(done):
    shutil.copytree(done / "run", done / "copy")
    status, output = alone(done, "--name", "copy", "--resume", "--n-updates", "10")
    assert status == 0, output
    assert "goes on from update 8" in output
    assert updates(done / "copy") == [2, 4, 6, 8, 10]


@pytest.mark.deep
def test_a_bank_of_opponents_goes_on_in_two_processes_as_in_one(tmp_path):
    """Two processes go on from the checkpoint before the last one. Another copy joins, and another one leaves."""
    (tmp_path / "game_for_two.py").write_text(GAME_FOR_TWO)
    named = ("--plugins", "game_for_two")
    status, output = alone(tmp_path, "--name", "alone", *named, config=SELF_PLAY)
    assert status == 0, output
    shutil.copytree(tmp_path / "alone", tmp_path / "pair")
    shutil.rmtree(tmp_path / "pair" / "checkpoints" / "6")
    pair = Pair(tmp_path, "--name", "pair", "--resume", *named, config=SELF_PLAY)
    assert pair.finish() == [0, 0], pair.output
    assert "goes on from update 4" in pair.output[0]
    together, single = (read_table(tmp_path / name / "metrics.csv")[1] for name in ("pair", "alone"))
    assert [row["update"] for row in together] == [row["update"] for row in single] == ["2", "4", "6"]
    assert float(single[-1]["games/ended"]) == 16  # the first game of each row
    for name in set(single[-1]) - {"seconds", "steps_per_second"}:
        one, other = float(together[-1][name]), float(single[-1][name])
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-4, err_msg=name)
    register_env("MatrixGame", MatrixGame)
    try:
        runs = [minimax_lib.load_run(tmp_path / name, plugins=()) for name in ("pair", "alone")]
        assert [(run.update, run.copies) for run in runs] == 2 * [(6, (1, 2))]
        for of in (lambda run: run, lambda run: run.copy(1), lambda run: run.copy(2)):
            jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), *[of(run).params for run in runs])
        records = [run.curriculum.bank.record for run in runs]
        jax.tree.map(np.testing.assert_array_equal, *records)
    finally:
        FAMILIES.pop(MatrixGame)


@pytest.mark.deep
def test_a_run_that_is_there_is_refused_by_both(done):
    pair = Pair(done, "--name", "run")
    assert pair.finish() == [2, 2], pair.output
    assert "already holds a run" in pair.output[0]
    assert "the first process of the run has refused it" in pair.output[1]


@pytest.mark.deep
def test_a_signal_to_one_process_saves_and_ends_both(done):
    pair = Pair(done, "--name", "stopped", "--n-updates", "1000000")
    try:
        wait_for_checkpoint(pair, done / "stopped")
        pair.processes[1].send_signal(signal.SIGTERM)
    finally:
        statuses = pair.finish()
    assert statuses == [143, 143], pair.output
    assert "SIGTERM: saved at update" in pair.output[0]
    assert saved_updates(done / "stopped" / "checkpoints")[-1] == updates(done / "stopped")[-1]


@pytest.mark.deep
def test_a_lost_process_ends_the_run_and_the_last_checkpoint_is_whole(done):
    pair = Pair(done, "--name", "lost", "--n-updates", "1000000", lost_timeout=10)
    try:
        wait_for_checkpoint(pair, done / "lost")
        pair.processes[1].kill()
    finally:
        statuses = pair.finish()
    assert statuses[1] == -signal.SIGKILL, pair.output
    assert statuses[0] not in (0, 2)
    assert "left before the end, as all do when one is lost; --resume continues" in pair.output[0].splitlines()[-1]
    newest = saved_updates(done / "lost" / "checkpoints")[-1]
    status, output = alone(done, "--name", "lost", "--resume", "--n-updates", str(newest + 2))
    assert status == 0, output
    assert f"goes on from update {newest:,}" in output
    assert "damaged" not in output


@pytest.mark.deep
def test_processes_with_different_settings_are_refused_by_name(tmp_path):
    """Each would train by its own, and the gradients would be averaged."""
    own = (["--ppo.lr", "0.5"], ["--n-updates", "9"])
    pair = Pair(tmp_path, "--name", "different", own=own)
    assert pair.finish() == [2, 2], pair.output
    line = (
        "error: processes 0 and 1 of the run have different settings: ppo.lr is 0.5 and 0.0001; n_updates is 8 and 9 "
        "(start all of them with the same flags)\n"
    )
    assert pair.output == [line, line]
    assert not (tmp_path / "different").exists()


BLIND = """
import sys
from minimax_lib.store import checkpoint

read = checkpoint.words_of

def words_of(path):
    if path.name == "8" and sys.argv[-1] == "1":
        raise OSError("process 1 does not see it")
    return read(path)

checkpoint.words_of = words_of
"""


@pytest.mark.deep
def test_what_one_process_cannot_read_none_does_and_nobody_hangs(done):
    shutil.copytree(done / "run", done / "seen")
    (done / "blind.py").write_text(BLIND)
    pair = Pair(done, "--name", "seen", "--resume", "--plugins", "blind", "--n-updates", "8")
    assert pair.finish() == [0, 0], pair.output
    assert "the checkpoint of update 8 is damaged (another process could not do it)" in pair.output[0]
    assert "seen is finished: 8 updates" in pair.output[0]  # from update 4 on, which both could read
    assert saved_updates(done / "seen" / "checkpoints") == [4, 8]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            ["--hosts.coordinator", "localhost:{port}", "--hosts.n-processes", "2", "--hosts.process", "1"],
            "error: the processes of the run have not come together in 1 seconds (--hosts.start-timeout): start all 2 "
            "of them with --hosts.coordinator localhost:{port}, the address of the first\n",
        ),
        (
            ["--hosts.coordinator", "localhost:{port}"],
            "error: the processes of the run do not come together: Number of processes must be defined. (give "
            "--hosts.n-processes, --hosts.process: JAX does not find it here)\n",
        ),
    ],
)
def test_a_missing_process_or_count_is_one_line_and_status_2(tmp_path, flags, line):
    port = free_port()
    flags = [flag.format(port=port) for flag in flags]
    assert alone(tmp_path, "--distributed", "--hosts.start-timeout", "1", *flags) == (2, line.format(port=port))


@pytest.mark.deep
def test_ctrl_c_while_the_others_are_awaited(tmp_path):
    address = ("127.0.0.1", free_port())
    coordinator = ["--hosts.coordinator", f"localhost:{address[1]}", "--hosts.n-processes", "2", "--hosts.process", "0"]
    process = start(tmp_path, None, "--distributed", *coordinator)
    deadline = time.monotonic() + LIMIT
    with socket.socket() as peer:
        while peer.connect_ex(address):  # until the first process listens
            assert time.monotonic() < deadline
            time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=LIMIT)[0] == "interrupted before the run began\n"
    assert process.returncode == 130


@pytest.mark.deep
def test_ctrl_c_while_the_thread_that_connects_is_started():
    """It used to reach the end of the interpreter, which waited for that thread for ever."""
    code = """
import threading
from minimax_lib.runners import hosts

def interrupted(thread):
    raise KeyboardInterrupt

threading.Thread.start = interrupted
hosts._connect(hosts.Hosts(coordinator="localhost:1", n_processes=2, process=0))
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert (ended.returncode, ended.stderr) == (130, "interrupted before the run began\n")


# ---------------------------------------------------------------------------------------------- one process


def test_settings_are_compared_by_name():
    """Where a process finds the others, and which of them it is, may differ; nothing else may."""
    same = {"seed": 1, "hosts.process": 0, "hosts.coordinator": "localhost:1", "hosts.n_processes": 3}
    check_equal([same, same | {"hosts.process": 1}, same | {"hosts.process": 2, "hosts.coordinator": "here:1"}])
    message = "processes 0 and 2 of the run have different settings: hosts.n_processes is 3 and None"
    with pytest.raises(ValueError, match=message):
        check_equal([same, same, same | {"hosts.n_processes": None}])
    others = dict.fromkeys("abcde", 1)
    with pytest.raises(ValueError, match="a is None and 1; b is None and 1; c is None and 1, and 2 more"):
        check_equal([same, same | others])


@pytest.fixture
def connecting(monkeypatch):
    """A function that joins two processes where JAX does what it says, instead of looking for the other."""
    left = []

    def leave(status: int) -> None:
        left.append(status)
        raise SystemExit(status)

    def connect(initialize: Callable[[], None], **hosts: Any) -> None:
        monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: initialize())
        join(Hosts(coordinator="localhost:1", process=1, start_timeout=1, **hosts), {})

    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    monkeypatch.setattr(os, "_exit", leave)
    return connect


def test_a_process_that_does_not_come_is_one_line_and_status_2(connecting, capsys):
    ended = threading.Event()
    try:
        with pytest.raises(SystemExit, match="2"):
            connecting(ended.wait, n_processes=2)
    finally:
        ended.set()
    assert capsys.readouterr().err == (
        "error: the processes of the run have not come together in 1 seconds (--hosts.start-timeout): start all 2 of "
        "them with --hosts.coordinator localhost:1, the address of the first\n"
    )


def test_what_jax_does_not_find_is_said_with_the_flags_that_say_it(connecting):
    def initialize() -> None:
        raise ValueError("Number of processes must be defined.")

    message = r"must be defined. \(give --hosts.n-processes: JAX does not find it here\)"
    with pytest.raises(ValueError, match=message):
        connecting(initialize)


def test_ctrl_c_while_the_thread_starts_is_one_line_and_status_130(connecting, monkeypatch, capsys):
    def interrupted(thread: threading.Thread) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(SystemExit, match="130"):
        connecting(lambda: None, n_processes=2)
    assert capsys.readouterr().err == "interrupted before the run began\n"


def test_processes_have_equally_many_devices():
    check_devices([0, 0, 1, 1])
    with pytest.raises(ValueError, match="the same number of devices: there are 2 in process 0, 1 in process 1"):
        check_devices([0, 0, 1])


def test_a_port_of_another_program_is_refused():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} cannot be opened here .address already in use., choose"):
            check_port(Hosts(coordinator=f"localhost:{port}", n_processes=2, process=0))
        check_port(Hosts(coordinator=f"localhost:{port}", n_processes=2, process=1))  # there it is the first process's
    check_port(Hosts(coordinator=f"localhost:{port}", n_processes=2, process=0))


def test_one_process_agrees_with_itself():
    assert is_first()
    assert largest(7) == 7
    tree = {"x": jax.numpy.arange(3)}
    assert readable(tree) is tree
    with pytest.raises(RuntimeError, match="mine"), all_or_none():
        raise RuntimeError("mine")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coordinator": "localhost"}, "hosts.coordinator is 'localhost': it must be host:port"),
        ({"coordinator": ":1"}, "hosts.coordinator is ':1': it must be host:port"),
        ({"coordinator": "a:٩"}, "hosts.coordinator is 'a:٩': it must be host:port"),
        ({"coordinator": "a:0"}, "hosts.coordinator is 'a:0': its port must be from 1 to 65535"),
        ({"coordinator": "a:65536"}, "hosts.coordinator is 'a:65536': its port must be from 1 to 65535"),
        ({"n_processes": 2, "process": 2}, "hosts.process is 2: it must be from 0 to 1"),
        ({"n_processes": 0}, "hosts.n_processes is 0: it must be at least 1"),
        ({"lost_timeout": 0}, "hosts.lost_timeout is 0: it must be at least 1"),
    ],
)
def test_processes_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Hosts(**settings)


# ----------------------------------------------------------------------------------------- cores as devices

N_CORES = n_cores()


@pytest.mark.deep
@pytest.mark.skipif(N_CORES < 2, reason="needs two cores")
def test_the_cores_of_a_machine_without_accelerators_are_devices_when_asked_for(tmp_path):
    status, output = alone(tmp_path, "--n-devices", "2", "--name", "cores", "--n-updates", "2", n_devices=None)
    assert status == 0, output
    assert updates(tmp_path / "cores") == [2]
    status, output = alone(tmp_path, "--n-devices", str(8 * N_CORES), "--runner.n-parallel", "1024", n_devices=None)
    assert (status, output) == (2, f"error: --n-devices is {8 * N_CORES}: there are {N_CORES} (cpu)\n")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, min(2, N_CORES)),
        pytest.param({"XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, 5, marks=pytest.mark.deep),
        pytest.param({"JAX_NUM_CPU_DEVICES": "3"}, 3, marks=pytest.mark.deep),
    ],
)
def test_who_has_said_how_many_devices_there_are_is_obeyed(variables, expected):
    code = (
        "import jax; from minimax_lib.runners import hosts; hosts.make_devices_of_cores(2); print(jax.device_count())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | variables
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=True)
    assert int(found.stdout) == expected

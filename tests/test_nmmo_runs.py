"""Runs of Neural MMO with 128 agents and a memory: many seeds, two devices, kill -9, and exact resumption."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from minimax_lib.store.parameters import load_params
from minimax_lib.store.tables import read_table

N_UPDATES = 6
COMMAND = f"""--env NMMO --env.preset mini --env.n-players 128 --env.max-steps 32 --env.stop-below 4
--model nmmo --model.size tiny --model.memory lstm --runner dr --runner.n-parallel 2 --runner.n-steps 8
--ppo.n-epochs 1 --ppo.n-minibatches 2 --n-updates {N_UPDATES} --log-every 1 --checkpoint-every 1 --archive-every 6
--eval.every 0 --no-report --resume""".split()
TIMING = ("seconds", "steps_per_second")

pytestmark = pytest.mark.deep


def started(folder: Path, name: str, *flags: str, devices: int = 1) -> subprocess.Popen:
    words = [*COMMAND, "--log-dir", str(folder), "--name", name, "--n-devices", str(devices), *flags]
    environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    return subprocess.Popen([sys.executable, "train.py", *words], cwd=Path(__file__).parents[1], env=environment)


def finished(folder: Path, name: str, *flags: str, devices: int = 1) -> Path:
    """The folder of a run that has been trained to its end."""
    assert started(folder, name, *flags, devices=devices).wait() == 0
    return folder / name


def of_seed(run: Path, seed: int) -> list[dict[str, str]]:
    """The rows of a seed in metrics.csv, without what differs from one time to the next."""
    rows = [row for row in read_table(run / "metrics.csv")[1] if row["seed"] == str(seed)]
    return [{name: value for name, value in row.items() if name not in TIMING} for row in rows]


def parameters(run: Path) -> dict[str, np.ndarray]:
    return load_params(run / "archive" / f"update-{N_UPDATES}.npz")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A run of the seeds 0 and 1 in one program."""
    return finished(tmp_path_factory.mktemp("runs"), "both", "--n-seeds", "2")


def test_a_seed_beside_another_is_the_seed_alone(both):
    alone = finished(both.parent, "alone", "--seed", "1")
    rows, wanted = of_seed(alone, 1), of_seed(both, 1)
    assert len(rows) == N_UPDATES
    for row, other in zip(rows, wanted, strict=True):
        assert {name: float(x) for name, x in row.items()} == pytest.approx(
            {name: float(x) for name, x in other.items()}, rel=1e-3, abs=1e-5, nan_ok=True
        )
    assert of_seed(both, 0) != of_seed(both, 1)


def test_a_run_that_was_killed_ends_as_one_that_was_not(both):
    run = started(both.parent, "killed", "--n-seeds", "2")
    checkpoints, patience = both.parent / "killed" / "checkpoints", time.monotonic() + 500
    while not list(checkpoints.glob("update-2*")) and not list(checkpoints.glob("2*")):
        assert run.poll() is None
        assert time.monotonic() < patience
        time.sleep(0.02)
    run.send_signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    killed = finished(both.parent, "killed", "--n-seeds", "2")
    for seed in (0, 1):
        assert of_seed(killed, seed) == of_seed(both, seed)
    np.testing.assert_equal(parameters(killed), parameters(both))


def test_two_devices_share_the_worlds(both):
    shared = finished(both.parent, "shared", devices=2)
    rows = of_seed(shared, 0)
    assert len(rows) == N_UPDATES
    # Nobody has died in the first steps, and all that live are counted.
    assert rows[0]["env_steps"] == of_seed(both, 0)[0]["env_steps"] == "2048"
    assert all(np.isfinite(float(row[name])) for row in rows for name in ("loss", "entropy", "grad_norm"))

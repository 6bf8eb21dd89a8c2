"""A plugin that was written for the package of November 2026 (revision 93aa71f) runs unchanged."""

import subprocess
import sys
from pathlib import Path

import pytest

from minimax_lib.store.tables import read_table

PLUGIN = Path(__file__).parent / "data" / "plugin_of_november_2026"  # docs/examples/drift as it was then
CHECK = "import sys; from minimax_lib import train; train.check(train.parse(sys.argv[1:]))"
SMALL = """
    --plugins drift --env Drift --env.max-steps 4 --model fading --model.width 4 --runner.n-parallel 4
    --runner.n-steps 4 --ppo.n-epochs 1 --eval.every 2 --eval.n-episodes 4 --n-updates 2 --no-report
"""
METHODS = {
    "dr": "",
    "plr": "--runner.score squared_td_error --runner.capacity 8 --runner.generator warmup",
    "accel": "--runner.n-edits 3 --runner.capacity 8",
    "warmup": "--runner.rate 0.1",
    "paired": "--runner.teacher.model.gaussian squashed",
}


def run_python(*words):
    # In another process: importing the plugin registers its parts for good.
    done = subprocess.run([sys.executable, *words], cwd=PLUGIN, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_parts_fit_together():
    run_python("-c", CHECK, *SMALL.split(), "--runner", "warmup", "--runner.rate", "0.1")


@pytest.mark.deep
def test_its_parts_pass_their_checks():
    run_python("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "checks_of_drift.py")  # fails if it finds none


@pytest.mark.deep
@pytest.mark.parametrize("method", METHODS)
def test_it_trains_and_is_evaluated(method, tmp_path):
    where = f"--runner {method} --log-dir {tmp_path} --name run {METHODS[method]}"
    run_python("-m", "minimax_lib.train", *SMALL.split(), *where.split())
    assert read_table(tmp_path / "run" / "metrics.csv")[1][-1]["update"] == "2"
    assert {row["task"] for row in read_table(tmp_path / "run" / "eval.csv")[1]} >= {"Calm", "Against"}

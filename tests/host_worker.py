"""A student whose results follow from the task and the time alone, and a process that goes on from a saved state."""

import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from minimax_lib.portable.host import Host
from minimax_lib.portable.scoring import Scoring
from minimax_lib.tasks import TSCL, ListedPLR

N_TASKS = 12
CORES = {"plr": ListedPLR(N_TASKS, alpha=0.5), "tscl": TSCL(N_TASKS)}
N_ROWS = 4


def new_host(name: str) -> Host:
    return Host(CORES[name], seed=3, scoring=Scoring(score="one_step_td"), flush=8)


def play(host: Host, first: int, last: int) -> np.ndarray:
    """The tasks of the steps `first` to `last`: some attempts end at each, and every 20 steps there are scores."""
    drawn: list[Any] = []
    for step in range(first, last):
        rng = np.random.default_rng(step)
        n = int(rng.integers(1, 4))
        tasks = host.draw(n)
        drawn.extend(tasks)
        host.report(tasks, rng.random(n) < 0.5, rng.random(n) * tasks, rng.integers(1, 9, n))
        if step % 20 == 19:
            shape = (5, N_ROWS)
            done = rng.random(shape) < 0.3
            task = rng.integers(0, N_TASKS, shape)
            host.report_rollout(task, rng.random(shape), rng.random(shape), done, rng.random(N_ROWS))
        row_task, reward, row_done = rng.integers(0, N_TASKS, N_ROWS), rng.random(N_ROWS), rng.random(N_ROWS) < 0.1
        host.report_steps(row_task, reward, row_done, progress=reward, value=rng.random(N_ROWS))
    return np.asarray(drawn)


if __name__ == "__main__":
    assert jax.default_backend() == "cpu"
    folder = Path(sys.argv[1])
    for name in CORES:
        host = new_host(name)
        host.load_state_dict(np.load(folder / f"{name}_state.npz"))
        tasks = play(host, 500, 1000)
        np.savez(folder / f"{name}_rest.npz", tasks=tasks, weights=host.weights())

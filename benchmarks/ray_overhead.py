"""What task curricula cost where Ray steps the environments, in turns with a loop on Ray without them.

    python benchmarks/ray_overhead.py --out FILE

Two workers, which are actors of Ray, step 64 environments each (`Burning` of peers/task_loop.py, as slow as NetHack,
episodes of 150 to 249 steps). With a curriculum, each environment is a `RemoteTaskEnv`, and one more actor chooses the
tasks. Each program has its own workers, which take turns: A B, then B A. Seconds are those of the processor, of all
processes of Ray together. An overhead is that of one pair of turns; the table has the median and the quartiles.
It needs the extra `ray`, and the PyPI package `psutil`.
"""

import argparse
import json
import statistics
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import ray
from common import environment_facts

sys.path.append(str(Path(__file__).parent / "peers"))

from side_by_side import HERE as PEERS
from task_loop import N_TASKS, make_env

from minimax_lib.portable.task_ray import RemoteTaskEnv, task_server
from minimax_lib.tasks import LearningProgress, Online, Uniform
from minimax_lib.tasks.spaces import Discrete

SPACE = Discrete(N_TASKS)
CORES = {
    "uniform": Uniform(N_TASKS),
    "learning progress from training": Online(LearningProgress(N_TASKS), every=1000, uniform=0.25),
}


class Worker:
    """A few environments, stepped one after another, as a runner of RLlib does."""

    def __init__(self, server: Any, n_envs: int, bits: int):
        envs = [make_env(Namespace(env="burning", bits=bits)) for _ in range(n_envs)]
        if server is not None:
            envs = [RemoteTaskEnv(env, server, SPACE, lambda task: {"options": {"task": task}}) for env in envs]
        self.envs = envs
        for env in self.envs:
            env.reset()

    def turn(self, n_steps: int) -> None:
        """So many steps of each."""
        for _ in range(n_steps):
            for env in self.envs:
                _, _, terminated, truncated, _ = env.step(0)
                if terminated or truncated:
                    env.reset()


def processor_seconds() -> float:
    """Of this process and all that it has begun, which are Ray's, up to now."""
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


class Program:
    """The workers of one program."""

    def __init__(self, core: Any, args: Namespace):
        self.server = None if core is None else task_server(core, SPACE)
        remote = ray.remote(num_cpus=1)(Worker)
        self.workers = [remote.remote(self.server, args.n_envs // 2, args.bits) for _ in range(2)]
        self._args = args

    def turn(self) -> float:
        """Microseconds of the processor for a step of one environment."""
        begun = processor_seconds()
        ray.get([worker.turn.remote(self._args.steps) for worker in self.workers])
        if self.server is not None:
            ray.get(self.server.told.remote())  # what was sent to the actor belongs to this turn
        time.sleep(0.1)  # Ray's own processes clear up
        return (processor_seconds() - begun) / self._args.steps / self._args.n_envs * 1e6


def row_of(name: str, plain: Program, other: Program, n: int) -> dict[str, Any]:
    """One line of the table."""
    pairs = []
    for i in range(n):
        order = (plain, other) if i % 2 == 0 else (other, plain)
        took = {program: program.turn() for program in order}
        pairs.append((took[plain], took[other]))
    overheads = [100 * (with_it / without - 1) for without, with_it in pairs]
    low, median, high = statistics.quantiles(overheads, n=4) if n > 1 else overheads * 3
    extra = statistics.median(with_it - without for without, with_it in pairs)
    without = statistics.median(pair[0] for pair in pairs)
    row = {"program": name, "plain": without, "extra": extra, "overhead": median, "quartiles": [low, high]}
    print(f"| {name} | {without:.1f} | {extra:.2f} | {median:.1f}% | {low:.1f} to {high:.1f}% |", flush=True)
    return row | {"pairs": np.round(pairs, 2).tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-envs", type=int, default=128, help="of both workers together")
    parser.add_argument("--bits", type=int, default=100, help="work in a step: 100 is 75 microseconds")
    parser.add_argument("--steps", type=int, default=512, help="of each environment in a turn")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of turns")
    parser.add_argument("--out", type=Path, help="file for the results, in JSON")
    args = parser.parse_args()
    known = {"env_vars": {"PYTHONPATH": str(PEERS)}}  # so that the workers find task_loop.py
    ray.init(num_cpus=2 * (1 + len(CORES)), include_dashboard=False, log_to_driver=False, runtime_env=known)
    plain, rows = Program(None, args), []
    plain.turn()
    for name, core in CORES.items():
        other = Program(core, args)
        for _ in range(3):
            other.turn()
        rows.append(row_of(name, plain, other, args.rounds))
    if args.out:
        result = {"benchmark": "ray_overhead", "facts": environment_facts(), "ray": ray.__version__, "rows": rows}
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    ray.shutdown()


if __name__ == "__main__":
    main()

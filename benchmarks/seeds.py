"""What a seed costs when several share one program: time a step and compiled memory, at S = 1, 2, 4, 8.

The programs take turns, so that a load that comes and goes falls on all of them. Memory is what the compiled dispatch
needs beside its code: state in place, outputs and temporaries (`memory_analysis`).

    python benchmarks/seeds.py [--seeds 1 2 4 8] [--rounds 5] [--steps 4] > benchmarks/results/seeds_cpu.json
"""

import argparse
import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import environment_facts

from minimax_lib.config.schema import from_dict
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner

SMALL = {"n_parallel": 8, "n_steps": 64}
SETTINGS: dict[str, Any] = {
    "model": {"name": "lstm", "memory_width": 64},
    "ppo": {"n_epochs": 2},
}
METHODS: dict[str, dict[str, Any]] = {
    "dr": {"name": "dr"} | SMALL,
    "plr": {"name": "plr", "robust": False, "capacity": 256, "min_fill": 0.1} | SMALL,
}


class Training:
    """`n_seeds` seeds of one method."""

    def __init__(self, method: str, n_seeds: int):
        runner = make_runner(from_dict(SETTINGS | {"runner": METHODS[method]}))
        self.n_seeds = n_seeds
        self.program = SeedRunner(runner, n_seeds)
        self.state = self.program.init(0)
        lowered = jax.jit(self.program.run_until, donate_argnums=0).lower(self.state, jnp.int32(0), jnp.int32(0))
        memory = lowered.compile().memory_analysis()
        kept = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        self.bytes = kept + memory.temp_size_in_bytes
        self.seconds: list[float] = []
        self.dispatch(1)

    def dispatch(self, n_steps: int) -> float:
        """Seconds a step."""
        began = time.perf_counter()
        self.state, report = jax.block_until_ready(self.program.run(self.state, 2**30, n_steps))
        assert int(report.n_steps) == n_steps
        assert np.isfinite(report.metrics["loss"]).all()
        return (time.perf_counter() - began) / n_steps


def measured(method: str, seeds: list[int], rounds: int, steps: int) -> list[dict[str, float]]:
    """One row for each number of seeds; times are medians over the rounds."""
    trainings = [Training(method, n) for n in seeds]
    for _ in range(rounds):
        for training in trainings:
            training.seconds.append(training.dispatch(steps))
    times = [float(np.median(training.seconds)) for training in trainings]
    return [
        {
            "n_seeds": training.n_seeds,
            "step_ms": round(1e3 * seconds, 2),
            "step_ms_a_seed": round(1e3 * seconds / training.n_seeds, 2),
            "share_of_separate_runs": round(seconds * trainings[0].n_seeds / (times[0] * training.n_seeds), 3),
            "memory_mb_a_seed": round(training.bytes / 1e6 / training.n_seeds, 2),
        }
        for training, seconds in zip(trainings, times, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()
    results = {method: measured(method, args.seeds, args.rounds, args.steps) for method in METHODS}
    print(json.dumps({"settings": SETTINGS | SMALL, "results": results, **environment_facts()}, indent=2))


if __name__ == "__main__":
    main()

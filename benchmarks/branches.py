"""Whether branches stay branches under vmap: robust PLR on 8 seeds, with replay probability 0.5 and with 1.0.

With replay probability 0.5, half of the steps only score new levels. If the update were a `select` instead of a branch,
both would cost the same. If it is a branch, a step with 0.5 costs its rollout and half an update. The two programs take
turns.

    python benchmarks/branches.py [--seeds 8] [--rounds 5] [--steps 10] > benchmarks/results/branches.json
"""

import argparse
import dataclasses
import json
import time

import jax
import numpy as np
from common import environment_facts

from minimax_lib.config import Config
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.envs.maze import AMaze
from minimax_lib.models.settings import LSTM
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner


class Program:
    """One training run, timed a few steps at a time."""

    def __init__(self, config: Config, n_seeds: int):
        self.program = SeedRunner(make_runner(config), n_seeds)
        self.state = self.program.init(0)
        self.seconds: list[float] = []
        self.updates: list[float] = []

    def run(self, n_steps: int) -> tuple[float, int]:
        """(seconds, updates) of `n_steps` steps."""
        before = int(self.state.students.n_updates.min())
        start = time.perf_counter()
        self.state, report = jax.block_until_ready(self.program.run(self.state, 2**30, n_steps))
        seconds = time.perf_counter() - start
        assert int(report.n_steps) == n_steps
        assert np.isfinite(report.metrics["return"]).any()
        return seconds, int(self.state.students.n_updates.min()) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()

    small = PLR(capacity=128, min_fill=0.25, n_steps=128, rollouts_per_batch=1)
    env = AMaze(max_steps=64)  # every rollout finishes an episode, so the buffers fill at once
    config = Config(env=env, model=LSTM(memory_width=64), runner=small)
    programs = {
        probability: Program(
            dataclasses.replace(config, runner=dataclasses.replace(small, replay_prob=probability)), args.seeds
        )
        for probability in (0.5, 1.0)
    }
    for program in programs.values():
        program.run(20)  # compiles, and fills the buffers
    rows: dict[float, list[tuple[float, int]]] = {probability: [] for probability in programs}
    for _ in range(args.rounds):
        for probability, program in programs.items():
            rows[probability].append(program.run(args.steps))

    per_step = {p: np.median([seconds / args.steps for seconds, _ in rows[p]]) for p in rows}
    shares = {p: sum(updates for _, updates in rows[p]) / (args.rounds * args.steps) for p in rows}
    ratios = [a[0] / b[0] for a, b in zip(rows[0.5], rows[1.0], strict=True)]
    result = {
        "what": f"robust PLR, {args.seeds} seeds in one vmap, LSTM 64, 32 levels x 128 steps, 5 epochs",
        "seconds_per_step": {str(p): round(float(s), 4) for p, s in per_step.items()},
        "share_of_steps_with_an_update": {str(p): round(s, 3) for p, s in shares.items()},
        "ratio_pairs": [round(r, 3) for r in ratios],
        "ratio_median": round(float(np.median(ratios)), 3),
        **environment_facts(),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

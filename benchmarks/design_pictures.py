"""Pictures of the levels that a teacher designs early and late in a small run, which a CPU does in minutes.

    python benchmarks/design_pictures.py [--updates 1500] [--seed 0] [--out docs/images/paired_designs.png]

PAIRED on 9x9 mazes with 20 wall steps and small networks, entropy bonus 0.01 for the teacher. A row of pictures a
stage: six designs of one batch, with the shortest path. Prints the course of the run as a table:
payment, regret, path and share of solvable levels of the designs, and how often the protagonist solves them.
"""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

from minimax_lib.agents.ppo import PPO
from minimax_lib.config import Config
from minimax_lib.curricula.designed import PAIRED, Teacher
from minimax_lib.envs.maze import AMaze, render
from minimax_lib.models.settings import LSTM
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner

SHOWN = 6
COLUMNS = ("teacher/reward", "level/new/n_walls", "level/new/shortest_path", "level/new/solvable", "solved_rate")


def configuration(n_updates: int) -> Config:
    teacher = Teacher(
        model=LSTM(conv_filters=32, embedding_width=10, memory_width=64), ppo=PPO(lr=5e-4, entropy_coef=0.01)
    )
    return Config(
        env=AMaze(height=9, width=9, n_walls=20, max_steps=100),
        model=LSTM(memory_width=64),
        runner=PAIRED(n_parallel=32, n_steps=128, teacher=teacher),
        ppo=PPO(lr=5e-4, entropy_coef=1e-3),
        n_updates=n_updates,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/images/paired_designs.png"))
    args = parser.parse_args()

    runner = make_runner(configuration(args.updates))
    program = SeedRunner(runner)

    @jax.jit
    def designs(state: Any) -> tuple[Any, Any]:
        one = jax.tree.map(lambda x: x[0], state)
        shared, key = runner.keys(one)
        _, batch = runner.curriculum.propose(shared, key, one.clock, one.curriculum, runner.students(one))
        return batch.levels, jax.vmap(runner.env.level_metrics)(batch.levels)

    state = program.init(args.seed)
    levels, captions = [], []
    print("| update | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
    for target in (0, args.updates // 5, args.updates):
        n_done = int(state.students.n_updates.min())
        for update in np.linspace(n_done, target, 4, dtype=int)[1:] if target else []:
            state, report = program.run(state, int(update))
            cells = [f"{float(report.metrics[name][0]):.2f}" for name in COLUMNS]
            print(f"| {update} | " + " | ".join(cells) + " |", flush=True)
        drawn, facts = jax.device_get(designs(state))
        levels.append(jax.tree.map(lambda x: x[:SHOWN], drawn))
        for i in range(SHOWN):
            path = f"path {facts['shortest_path'][i]:.0f}" if facts["solvable"][i] else "unsolvable"
            captions.append(f"update {target}: {path}")
    stacked = jax.tree.map(lambda *xs: np.concatenate(xs), *levels)
    print(render.save(render.draw_levels(stacked, captions, columns=SHOWN, cell=16), args.out))


if __name__ == "__main__":
    main()

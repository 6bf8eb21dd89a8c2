"""Pictures of the levels that a teacher designs early and late in a small run. It takes minutes on a CPU.

    python benchmarks/design_pictures.py [--updates 1500] [--seed 0] [--out docs/images/paired_designs.png]

Trains PAIRED on 9x9 mazes with 20 wall steps and small networks. The teacher's entropy bonus is 0.01. Each row of the
picture is one stage: six designs with the same random numbers. The script also prints the course of the run as a table:
payment, regret, path and share of solvable levels of the designs, and how often the protagonist solves them.
"""

import argparse
import tempfile
from pathlib import Path

from minimax_lib import load_run
from minimax_lib.agents.ppo import PPO
from minimax_lib.config import Config
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.envs.maze import AMaze, render
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.models.settings import LSTM
from minimax_lib.pictures.galleries import designs

N_STAGES = 5
COLUMNS = ("teacher/reward", "level/new/n_walls", "level/new/shortest_path", "level/new/solvable", "solved_rate")


def configuration(n_updates: int, seed: int, folder: Path) -> Config:
    teacher = Teacher(
        model=LSTM(conv_filters=32, embedding_width=10, memory_width=64), ppo=PPO(lr=5e-4, entropy_coef=0.01)
    )
    return Config(
        env=AMaze(height=9, width=9, n_walls=20, max_steps=100),
        model=LSTM(memory_width=64),
        runner=PAIRED(n_parallel=32, n_steps=128, teacher=teacher),
        ppo=PPO(lr=5e-4, entropy_coef=1e-3),
        eval=Evaluation(every=0),
        seed=seed,
        n_updates=n_updates,
        log_every=n_updates // N_STAGES,
        checkpoint_every=n_updates // N_STAGES,
        keep_checkpoints=N_STAGES + 1,
        log_dir=str(folder),
        name="paired",
        report=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/images/paired_designs.png"))
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        config = configuration(args.updates, args.seed, Path(folder))
        ExperimentRunner(config).train()
        run = load_run(config.run_folder)
        print("| update | " + " | ".join(COLUMNS) + " |\n|" + "---|" * (len(COLUMNS) + 1))
        for i, update in enumerate(run.metrics["update"]):
            cells = [f"{run.metrics[name][i]:.2f}" for name in COLUMNS]
            print(f"| {update:.0f} | " + " | ".join(cells) + " |")
        stages = [load_run(config.run_folder, checkpoint=update) for update in run.checkpoints]
        print(render.save(designs(stages), args.out))


if __name__ == "__main__":
    main()

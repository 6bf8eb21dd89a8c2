"""A small comparison for a CPU: DR, robust PLR and parallel ACCEL, with the same updates, network and three seeds.

    python benchmarks/compare_methods.py [--n-updates 400] [--n-seeds 3] [--log-dir runs/compare]

Trains the runs that are missing (`--resume`). Then it prints a Markdown table:

* solved rates at the end, on fresh training levels and on held-out mazes: mean ± standard deviation over the seeds,
  which is not an interval
* the shortest path of the levels that the students learnt from, early and late

At scale, the methods should lead to training levels with longer paths. This table is only small evidence of that.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from minimax_lib.commands.train import main as train
from minimax_lib.store.tables import read_table

BUFFER = ["--runner.capacity", "512", "--runner.min-fill", "0.25"]
METHODS = {
    "DR": ["--runner", "dr"],
    "robust PLR": ["--runner", "plr", *BUFFER],
    "parallel ACCEL": ["--runner", "accel", "--runner.parallel", *BUFFER],
}
LEARNT_FROM = {"DR": "new", "robust PLR": "replay", "parallel ACCEL": "replay"}
TASKS = ("TrainingDistribution", "SixteenRooms", "Labyrinth", "StandardMaze")


def flags(method: str, args: argparse.Namespace) -> list[str]:
    """The command line of one method."""
    common = ["--config", "configs/maze/cpu/dr.yaml", "--n-updates", str(args.n_updates)]
    common += ["--n-seeds", str(args.n_seeds), "--log-dir", args.log_dir, "--name", folder(method)]
    common += ["--eval.tasks", *TASKS, "--eval.n-episodes", "50", "--eval.every", str(args.n_updates)]
    return [*common, "--no-report", "--resume", *METHODS[method]]


def folder(method: str) -> str:
    return method.lower().replace(" ", "-")


def row(method: str, args: argparse.Namespace) -> str:
    """The row of a finished run in the table."""
    run = Path(args.log_dir) / folder(method)
    solved = defaultdict(list)
    for line in read_table(run / "eval.csv")[1]:
        if int(line["update"]) == args.n_updates:
            solved[line["task"]].append(float(line["solved_rate"]))
    metrics = read_table(run / "metrics.csv")[1]
    name = f"level/{LEARNT_FROM[method]}/shortest_path"
    early, late = (paths(metrics, name, *span) for span in ((0, 0.25), (0.75, 1)))
    seconds = max(float(line["seconds"]) for line in metrics)
    cells = [f"{100 * np.mean(solved[task]):.0f} ± {100 * np.std(solved[task]):.0f}" for task in TASKS]
    return f"| {method} | " + " | ".join([*cells, f"{early:.1f}", f"{late:.1f}", f"{seconds:.0f}"]) + " |"


def paths(metrics: list[dict[str, str]], name: str, start: float, end: float) -> float:
    """Mean shortest path of the levels learnt from, over a part of the run."""
    last = max(int(line["update"]) for line in metrics)
    return float(np.nanmean([float(m[name]) for m in metrics if start * last < int(m["update"]) <= end * last]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n-updates", type=int, default=400)
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--log-dir", default="runs/compare")
    args = parser.parse_args()
    for method in METHODS:
        status = train(flags(method, args))
        if status:
            return status
    print(f"Solved rates in percent, mean ± standard deviation over {args.n_seeds} seeds:\n")
    titles = [*TASKS, "path, first quarter", "path, last quarter", "seconds"]
    print("| method | " + " | ".join(titles) + " |\n|" + "---|" * (len(titles) + 1))
    for method in METHODS:
        print(row(method, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())

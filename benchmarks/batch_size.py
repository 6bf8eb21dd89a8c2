"""Updates and environment steps until a fixed solved rate, for batches of 32 to 2,048 rows.

    python benchmarks/batch_size.py --out benchmarks/results/batch_size_h200.json
    python benchmarks/batch_size.py --configs maze/cpu --methods dr robust_plr accel --rows 32 128 512 \\
        --lrs 1e-3 2e-3 4e-3 --env-steps 2e7 --least-updates 300 --n-seeds 1 --solved-rate 0.8 \\
        --more "--ppo.lr-final none --ppo.entropy-coef-final none --ppo.ema-decay 0" \\
        --out benchmarks/results/batch_size_cpu.json

The first command is for a GPU, and takes days. The second is for a CPU. It is the study of Jiang et al. 2023
(minimax), section 4 and figure 8, with two differences:

* The solved rate is that on the validation mazes, not on those of the benchmark: learning rates are chosen by it.
* The learning rates are those that the paper chose for some method (3e-5, 1e-4, 3e-4), and 1e-3 for large batches. In
  PAIRED, the teacher has the students' rate.

A cell is one method, number of rows and learning rate. It is a run of the published configuration in `--runs`, with all
its seeds; `--configs` names others. It ends when every seed has reached the solved rate in two evaluations in a row, of
which the first counts, or when it has had its updates. All cells have about as many evaluations, so that luck favours
none. Ctrl-C saves and stops; the same command goes on.
"""

import argparse
import csv
import dataclasses
import functools
import json
import math
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stages import ROOT, TO_SAVE, last_words, run_until, say, terminated_as_interrupted

from minimax_lib.registry import unknown_name
from minimax_lib.store.files import write_atomically

METHODS = ("dr", "robust_plr", "accel", "paired")
ROWS = (32, 64, 128, 256, 512, 1024, 2048)
RATES = (3e-5, 1e-4, 3e-4, 1e-3)
N_EVALUATIONS = 50
IN_A_ROW = 2  # evaluations: one alone may be luck
TO_SAVE_RUN = TO_SAVE - 10.0  # whoever stops this script must still see it end
TITLES = ("method", "rows", "learning rate", "reached by", "updates", "million steps", "minutes", "best rate")


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run of the study."""

    method: str
    rows: int
    lr: float

    @property
    def name(self) -> str:
        return f"{self.method}-{self.rows}-{self.lr:g}"

    def length(self, args: argparse.Namespace) -> tuple[int, int]:
        """(updates of the run, updates from one evaluation to the next). The first is a multiple of the second."""
        wanted = max(args.least_updates, int(args.env_steps) // (self.rows * args.n_steps))
        every = max(1, wanted // N_EVALUATIONS)
        every = every // 10 * 10 or every  # a multiple of an interval
        return wanted // every * every, every

    def flags(self, args: argparse.Namespace) -> list[str]:
        n_updates, every = self.length(args)
        found = ["--config", f"{args.configs}/{self.method}", "--name", self.name]
        found += ["--log-dir", str(args.runs.resolve())]
        found += ["--runner.n-parallel", str(self.rows), "--runner.n-steps", str(args.n_steps)]
        found += ["--ppo.lr", f"{self.lr:g}", "--n-seeds", str(args.n_seeds), "--n-updates", str(n_updates)]
        if self.method == "paired":
            found += ["--runner.teacher.ppo.lr", f"{self.lr:g}"]
        found += ["--eval.every", str(every), "--eval.tasks", *args.tasks, "--log-every", str(min(10, every))]
        found += ["--checkpoint-every", str(every), "--keep-checkpoints", "1", "--no-report", "--resume"]
        return found + shlex.split(args.more)


def table_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table that may be growing: whole lines only. Empty if there is none yet."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return list(csv.DictReader(whole.splitlines()))


def rates_of(evaluations: Iterable[dict[str, str]]) -> dict[int, dict[int, float]]:
    """Seed -> update -> mean solved rate over the tasks."""
    found: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in evaluations:
        found[int(row["seed"])][int(row["update"])].append(float(row["solved_rate"]))
    return {seed: {n: statistics.mean(r) for n, r in sorted(by.items())} for seed, by in found.items()}


def reached_at(rates: dict[int, float], least: float) -> int | None:
    """The first update from which `IN_A_ROW` evaluations gave at least this rate; None if there is none."""
    updates = sorted(rates)
    for i, update in enumerate(updates[: len(updates) - IN_A_ROW + 1]):
        if all(rates[one] >= least for one in updates[i : i + IN_A_ROW]):
            return update
    return None


def result_of(cell: Cell, args: argparse.Namespace) -> dict[str, Any]:
    """What is known of a cell so far. Medians are over the seeds that reached the rate."""
    folder = args.runs / cell.name
    rates = rates_of(table_of(folder / "eval.csv"))
    reached = {seed: reached_at(by, args.solved_rate) for seed, by in rates.items()}
    trained = table_of(folder / "metrics.csv")
    at = {(int(row["seed"]), int(row["update"])): row for row in trained}
    hits = [(update, at.get((seed, update))) for seed, update in reached.items() if update is not None]
    last = max((int(row["update"]) for row in trained), default=0)
    known = [row for _, row in hits if row]
    return {
        "method": cell.method,
        "rows": cell.rows,
        "lr": cell.lr,
        "seeds": args.n_seeds,
        "reached": len(hits),
        "updates": statistics.median(update for update, _ in hits) if hits else None,
        "env_steps": statistics.median(int(row["env_steps"]) for row in known) if known else None,
        "seconds": statistics.median(float(row["seconds"]) for row in known) if known else None,
        "best_rate": round(max((statistics.mean(x) for x in by_update(rates)), default=0.0), 3),
        "trained_updates": last,
        "finished": len(hits) == args.n_seeds or last >= cell.length(args)[0],
    }


def is_finished(cell: Cell, args: argparse.Namespace) -> bool:
    return result_of(cell, args)["finished"]


def by_update(rates: dict[int, dict[int, float]]) -> list[list[float]]:
    """The rates of all seeds at each update that all have reached."""
    shared = set.intersection(*(set(by) for by in rates.values())) if rates else set()
    return [[by[update] for by in rates.values()] for update in sorted(shared)]


def best(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each method and number of rows, the cell that most seeds solved in the fewest updates."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for one in results:
        groups[one["method"], one["rows"]].append(one)
    return [min(group, key=lambda x: (-x["reached"], x["updates"] or 0, -x["best_rate"])) for group in groups.values()]


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """The best cells as a table."""
    lines = ["| " + " | ".join(TITLES) + " |", "|" + "---|" * len(TITLES)]
    for one in best(results):
        steps, seconds = one["env_steps"], one["seconds"]
        cells = [one["method"], one["rows"], f"{one['lr']:g}", f"{one['reached']} of {one['seeds']}"]
        cells += [one["updates"] or "-", f"{steps / 1e6:.3g}" if steps else "-"]
        cells += [f"{seconds / 60:.1f}" if seconds else "-", f"{one['best_rate']:.2f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def facts() -> dict[str, Any]:
    """Of its own process: jax in this one would take the accelerator's memory from the runs."""
    done = subprocess.run([sys.executable, ROOT / "benchmarks" / "common.py"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: jax does not start: {last_words(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS, help=f"of {', '.join(METHODS)}")
    parser.add_argument("--configs", default="maze", help="what stands before the method in a configuration's name")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--lrs", type=float, nargs="+", default=RATES, help="learning rates")
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--n-steps", type=int, default=256, help="steps of a rollout")
    parser.add_argument("--env-steps", type=float, default=1e8, help="length of a run, in steps of the batch's rows")
    parser.add_argument("--least-updates", type=int, default=2000, help="of a run, however many rows it has")
    parser.add_argument("--solved-rate", type=float, default=0.5, help="on the tasks, to be reached")
    parser.add_argument("--tasks", nargs="+", default=["validation"])
    parser.add_argument("--more", default="", help='more flags of train.py for every run, as "--model.memory-width 64"')
    parser.add_argument("--runs", type=Path, default=Path("runs/batch_size"), help="folder of the runs")
    parser.add_argument("--out", type=Path, help="file for the results as JSON, kept up to date as they come")
    args = parser.parse_args(argv)
    for method in args.methods:
        if method not in METHODS:
            parser.error(str(unknown_name("method", method, METHODS)))
    for name in ("rows", "lrs"):
        for value in getattr(args, name):
            if not value > 0:
                parser.error(f"--{name} has {value:g}: it must be more than 0")
    for name in ("n_seeds", "n_steps", "env_steps", "least_updates"):
        if not getattr(args, name) >= 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name):g}: it must be at least 1")
    if not 0 < args.solved_rate <= 1:
        parser.error(f"--solved-rate is {args.solved_rate:g}: it must be more than 0 and at most 1")
    return args


def study(args: argparse.Namespace) -> int:
    """The exit status, after all cells: 1 if one has failed."""
    cells = [Cell(m, rows, lr) for m in args.methods for rows in args.rows for lr in args.lrs]
    about = {"benchmark": "batch_size", **facts(), "solved_rate": args.solved_rate, "tasks": list(args.tasks)}
    args.runs.mkdir(parents=True, exist_ok=True)
    failed, results = [], []
    for i, cell in enumerate(cells):
        log = args.runs / f"{cell.name}.log"
        if not is_finished(cell, args):
            command = [sys.executable, "train.py", *cell.flags(args)]
            enough = functools.partial(is_finished, cell, args)
            status = run_until(command, log, math.inf, enough=enough, to_save=TO_SAVE_RUN)
            if status:
                failed.append(cell.name)
                say(f"{cell.name}: failed with status {status}: {last_words(log.read_text())}")
        results.append(result_of(cell, args))
        say(f"{i + 1} of {len(cells)}: {json.dumps(results[-1])}")
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(args.out, json.dumps(about | {"rows": results}, indent=1) + "\n")
    print(markdown(results))
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    args = parsed(argv)
    with terminated_as_interrupted():
        try:
            return study(args)
        except KeyboardInterrupt:
            say("stopped: the same command goes on")
            return 130


if __name__ == "__main__":
    sys.exit(main())

"""Learning curves of variants of one configuration, with the same seeds: does a change make learning worse?

    python benchmarks/learning_curves.py --variant float32= --variant "bfloat16=--model.dtype bfloat16" \\
        --n-seeds 3 --out benchmarks/results/bfloat16_cpu.json

A variant is NAME=FLAGS of `train.py`. To compare revisions, run the script in a checkout of each, with one variant and
a common `--log-dir`. Then run it once with both names: runs that exist are not trained again. The result holds:

* for each seed, the mean training return and solved rate of each tenth of the run
* for each seed, the solved rate over the evaluation tasks at the end
* for each variant, the difference of its mean over the run from that of the first variant, paired by seed, with its
  standard error. This is not an interval: a few seeds are too few for one.

The script fails if a run learnt nothing.
"""

import argparse
import json
import math
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from common import environment_facts

from minimax_lib.store.tables import read_table

N_SPANS = 10


def train(name: str, flags: str, args: argparse.Namespace) -> Path:
    """The folder of a variant, which is trained unless its run is complete."""
    command = [sys.executable, "train.py", "--config", args.config, "--n-seeds", str(args.n_seeds)]
    command += ["--log-dir", str(args.log_dir), "--name", name, "--no-report", "--resume", *shlex.split(flags)]
    subprocess.run(command, check=True)
    return args.log_dir / name


def spans(metrics: list[dict[str, str]], column: str) -> dict[str, list[float]]:
    """For each seed, the mean of a column over each tenth of the run."""
    last = max(int(row["update"]) for row in metrics)
    values: dict[str, list[list[float]]] = defaultdict(lambda: [[] for _ in range(N_SPANS)])
    for row in metrics:
        span = min(N_SPANS * int(row["update"]) // (last + 1), N_SPANS - 1)
        values[row["seed"]][span].append(float(row[column]))
    return {seed: [round(float(np.nanmean(part)), 4) for part in parts] for seed, parts in values.items()}


def solved_at_end(evaluations: list[dict[str, str]]) -> dict[str, float]:
    """For each seed, the mean solved rate over the tasks of the last evaluation."""
    last = max(int(row["update"]) for row in evaluations)
    rates = defaultdict(list)
    for row in evaluations:
        if int(row["update"]) == last:
            rates[row["seed"]].append(float(row["solved_rate"]))
    return {seed: round(float(np.mean(values)), 4) for seed, values in rates.items()}


def curve(run: Path) -> dict[str, Any]:
    """The results of a run."""
    metrics = read_table(run / "metrics.csv")[1]
    found = {"return": spans(metrics, "return"), "solved_rate": spans(metrics, "solved_rate")}
    for seed, returns in found["return"].items():
        assert returns[-1] > returns[0], f"{run}, seed {seed} has learnt nothing"
    return found | {"solved_on_tasks_at_end": solved_at_end(read_table(run / "eval.csv")[1])}


def difference(values: np.ndarray, base: np.ndarray) -> dict[str, float]:
    """Mean difference of paired seeds, with its standard error."""
    differences = values - base
    error = differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return {"mean": round(float(differences.mean()), 4), "standard_error": round(float(error), 4)}


def summary(curves: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Each variant compared with the first."""
    found: dict[str, Any] = {}
    measures = {
        "return over the run": lambda one: np.array([np.mean(parts) for parts in one["return"].values()]),
        "return in the last tenth": lambda one: np.array([parts[-1] for parts in one["return"].values()]),
        "solved on tasks at the end": lambda one: np.array(list(one["solved_on_tasks_at_end"].values())),
    }
    first = next(iter(curves.values()))
    for name, one in curves.items():
        found[name] = {}
        for what, measure in measures.items():
            found[name][what] = {"mean": round(float(measure(one).mean()), 4)}
            if one is not first:
                found[name][what]["minus_first"] = difference(measure(one), measure(first))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/maze/cpu/dr.yaml")
    parser.add_argument("--variant", action="append", required=True, metavar="NAME=FLAGS", dest="variants")
    parser.add_argument("--n-seeds", type=int, default=3)
    parser.add_argument("--log-dir", type=Path, default=Path("runs/learning_curves"))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for variant in args.variants:
        if "=" not in variant:
            parser.error(f"--variant {variant!r} is not NAME=FLAGS")
    facts = environment_facts()
    curves = {}
    for variant in args.variants:
        name, _, flags = variant.partition("=")
        curves[name] = curve(train(name, flags, args))
    result = {"benchmark": "learning_curves", **facts, "variants": args.variants, "config": args.config}
    result |= {"summary": summary(curves), "curves": curves}
    print(json.dumps(result["summary"], indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

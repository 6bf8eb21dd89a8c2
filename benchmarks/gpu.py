"""All measurements on an accelerator, with one command that can be stopped and called again.

    pip install -e ".[test,plots]" "jax[cuda13]" && python benchmarks/gpu.py --hours 8 --out benchmarks/results/h200

Each stage is a command of this repository in a process of its own, and leaves a file. A stage whose file exists is not
run again. Training runs resume from their checkpoints. When the hours are over, the running stage is stopped as by
Ctrl-C, so it saves its state. The next call does the rest. The stages, in order:

1. `env`: steps per second of the environment, up to a million environments.
2. `train`: seconds per update of every method and model, with parts; DR over numbers of seeds, and over batch sizes;
   the rates of the card (`floor`); the gaps between kernels (`gaps`); DR with fewer and with more CUDA graphs.
3. `one_seed`, `ten_seeds`: 30,000 updates of DR, wall-clock.
4. `<method>`: the published 60-block configurations, `--seeds` seeds each, then `evaluate.py` on the benchmark.
5. `table`: the solved rates beside the published ones (Jiang et al. 2023), as Markdown.
"""

import argparse
import csv
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

METHODS = ("dr", "robust_plr", "parallel_plr", "accel", "parallel_accel", "paired")
PUBLISHED = {  # mean solved rate over the suite after 30,000 updates, 10 runs: minimax (Jiang et al. 2023), LSTM and S5
    "dr": (".55 ± .05", ".58 ± .05"),
    "paired": (".63 ± .04", ".58 ± .06"),
    "robust_plr": (".82 ± .02", ".68 ± .04"),
    "parallel_plr": (".80 ± .02", ".71 ± .03"),
    "accel": (".83 ± .02", ".74 ± .04"),
    "parallel_accel": (".78 ± .03", ".79 ± .03"),
}
GRAPHS = {  # what XLA puts into CUDA graphs: nothing, or more than by default
    "none": "",
    "loops": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
}
ENV_SIZES = ("1", "32", "256", "1024", "4096", "65536", "262144", "1048576")


class Stages:
    """Runs commands until the time is up."""

    def __init__(self, out: Path, hours: float):
        self.out = out
        self.end = time.monotonic() + 3600 * hours

    def run(self, name: str, *words: str, xla_flags: str = "") -> bool:
        """Whether the stage is done, now or before. Its output is in NAME.log, its time in NAME.done."""
        done = self.out / f"{name}.done"
        if done.exists():
            print(f"{name}: done already", flush=True)
            return True
        left = self.end - time.monotonic()
        if left <= 0:
            print(f"{name}: no time left, call again", flush=True)
            return False
        print(f"{name}: {' '.join(words)}", flush=True)
        start = time.monotonic()
        with (self.out / f"{name}.log").open("a") as log:
            flags = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {xla_flags}".strip()}
            command = [sys.executable, *words]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | flags)
            try:
                status = process.wait(timeout=left)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)  # a training run saves and exits
                process.wait()
                print(f"{name}: stopped, call again", flush=True)
                return False
        took = time.monotonic() - start
        print(f"{name}: status {status} after {took:.0f} s", flush=True)
        if status == 0:
            done.write_text(f"{took:.1f} seconds: {xla_flags} python {' '.join(words)}\n")
        return status == 0


def measure(stages: Stages) -> None:
    """Speed of the environment and of training."""
    out = stages.out
    sizes = ("--sizes", *ENV_SIZES, "--steps", str(2**28))
    stages.run("env", "benchmarks/env_throughput.py", *sizes, "--out", f"{out}/env_throughput.json")
    train = "benchmarks/train_throughput.py"
    models = ("--models", "lstm", "s5", "ff", "--breakdown")
    stages.run("train", train, *models, "--out", f"{out}/train_throughput.json")
    seeds = ("--methods", "dr", "robust_plr", "--seeds", "1", "2", "4", "8", "16", "32", "64")
    stages.run("train_seeds", train, *seeds, "--out", f"{out}/train_seeds.json")
    for n in (32, 128, 512, 2048):
        batch = ("--methods", "dr", "robust_plr", "--n-parallel", str(n))
        stages.run(f"train_batch_{n}", train, *batch, "--out", f"{out}/train_batch_{n}.json")
    stages.run("memory", "benchmarks/memory.py", "--out", f"{out}/memory.json")
    stages.run("floor", "benchmarks/floor.py", "--out", f"{out}/floor.json")
    stages.run(
        "gaps", "benchmarks/gaps.py", "--models", "lstm", "s5", "--seeds", "1", "10", "--out", f"{out}/gaps.json"
    )
    for name, kinds in GRAPHS.items():
        flag = f"--xla_gpu_enable_command_buffer={kinds}"
        stages.run(f"graphs_{name}", train, "--methods", "dr", "--out", f"{out}/graphs_{name}.json", xla_flags=flag)


def train(stages: Stages, name: str, config: str, n_seeds: int, n_updates: int) -> bool:
    """Trains a published configuration, from its last checkpoint if there is one."""
    where = ("--log-dir", f"{stages.out}/runs", "--name", name, "--resume", "--no-report")
    sizes = ("--n-seeds", str(n_seeds), "--n-updates", str(n_updates), "--log-every", "100")
    return stages.run(name, "train.py", "--config", f"configs/maze/{config}.yaml", *sizes, *where)


def published(stages: Stages, args: argparse.Namespace) -> None:
    """The published configurations, and their solved rates on the held-out suite."""
    for model in args.models:
        for method in args.methods:
            name = method if model == "lstm" else f"s5_{method}"
            if train(stages, name, name, args.seeds, args.n_updates):
                run = f"{stages.out}/runs/{name}"
                stages.run(f"{name}_evaluation", "evaluate.py", "--run", run, "--tasks", "benchmark")


def solved_rates(run: Path) -> np.ndarray:
    """Mean solved rate over the suite for each seed, from the newest evaluation. Empty if there is none."""
    files = sorted((run / "evaluations").glob("update*-benchmark*.csv"), key=lambda file: file.stat().st_mtime)
    by_seed = defaultdict(list)
    for row in csv.DictReader(files[-1].open()) if files else []:
        by_seed[row["seed"]].append(float(row["solved_rate"]))
    return np.array([np.mean(rates) for rates in by_seed.values()])


def table(out: Path) -> str:
    """Our rates beside the published ones, for every run that has been evaluated."""
    lines = ["| method | model | seeds | solved, mean ± standard error | published |", "|---|---|---|---|---|"]
    for prefix, column, model in (("", 0, "LSTM"), ("s5_", 1, "S5")):
        for method, theirs in PUBLISHED.items():
            rates = solved_rates(out / "runs" / f"{prefix}{method}")
            if len(rates):
                error = rates.std(ddof=1) / np.sqrt(len(rates)) if len(rates) > 1 else np.nan
                cells = (method, model, len(rates), f"{rates.mean():.2f} ± {error:.2f}", theirs[column])
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--models", nargs="+", choices=("lstm", "s5"), default=("lstm",))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--n-updates", type=int, default=30_000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    stages = Stages(args.out, args.hours)
    measure(stages)
    train(stages, "one_seed", "dr", 1, args.n_updates)
    train(stages, "ten_seeds", "dr", 10, args.n_updates)
    published(stages, args)
    text = table(args.out)
    (args.out / "table.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()

"""All measurements on an accelerator, with one command that can be stopped and called again.

    pip install -e ".[plots]" "jax[cuda13]"
    python benchmarks/gpu.py --minutes 9 --out benchmarks/results/h200     # again and again, or:
    python benchmarks/gpu.py --hours 8 --out benchmarks/results/h200
    python benchmarks/gpu.py --small --out /tmp/small                      # tries all stages, on a CPU too

Each stage is a command of this repository in its own process, and leaves a file in the folder. A stage that is
done is not run again. A stage that fails says so in one line, and the next one begins. No stage begins if its estimate
does not fit in the time left. Trainings stop at the end of the time with a checkpoint, and go on with the next call.
The most telling stages come first:

1. `agreement`: whether training on the accelerator agrees with the CPU.
2. `env_short`: environment steps per second at three sizes.
3. `train_short`: seconds per update of DR and robust PLR, with 1 and 10 seeds.
4. `gaps_short`: how much of such an update the device computes, and how much it waits.
5. `one_seed`: 30,000 updates of DR; then its solved rates on the benchmark mazes.
6. The rest of the speed: the environment up to a million copies; every method and model, with parts; many seeds; large
   batches; memory; the rates of the card (`floor`); more gaps; Neural MMO alone and in training; a few updates of
   GridWorld, LaserTag and BipedalWalker; DR with fewer and with more CUDA graphs.
7. `<method>`: the published 60-block configurations with `--seeds` seeds, each with its solved rates on the benchmark.
   `table.md` puts them beside the published ones (Jiang et al. 2023).
8. The walker's published ACCEL and DR with three seeds, and MultiRoom's PLR and uniform sampling with ten, each with
   its evaluation.
9. `batch_size`: updates and steps to a fixed solved rate, for 32 to 2,048 rows.

`--only` chooses stages, and `--list` shows them. The folder holds everything, the compiled programs (`cache`) and the
checkpoints (`runs`) included. So it can be copied to another machine between two calls.
"""

import argparse
import csv
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package need not be installed

from gpu_stages import METHODS, all_stages
from needs import how_to_bring, missing
from stages import ROOT, Stages, last_words, say, terminated_as_interrupted

from minimax_lib.registry import unknown_name
from minimax_lib.store.files import write_atomically

PUBLISHED = {  # mean solved rate over the suite after 30,000 updates, 10 runs: minimax (Jiang et al. 2023), LSTM and S5
    "dr": (".55 ± .05", ".58 ± .05"),
    "paired": (".63 ± .04", ".58 ± .06"),
    "robust_plr": (".82 ± .02", ".68 ± .04"),
    "parallel_plr": (".80 ± .02", ".71 ± .03"),
    "accel": (".83 ± .02", ".74 ± .04"),
    "parallel_accel": (".78 ± .03", ".79 ± .03"),
}
TO_PROBE = 180.0  # seconds that jax has to start


def solved_rates(run: Path) -> list[float]:
    """Mean solved rate over the suite for each seed, from the newest evaluation. Empty if there is none."""
    files = sorted((run / "evaluations").glob("update*-benchmark*.csv"), key=lambda file: file.stat().st_mtime)
    by_seed = defaultdict(list)
    for row in csv.DictReader(files[-1].open()) if files else []:
        by_seed[row["seed"]].append(float(row["solved_rate"]))
    return [statistics.mean(rates) for rates in by_seed.values()]


def table(out: Path) -> str:
    """Our rates beside the published ones, for every run that has been evaluated."""
    lines = ["| method | model | seeds | solved, mean ± standard error | published |", "|---|---|---|---|---|"]
    for prefix, column, model in (("", 0, "LSTM"), ("s5_", 1, "S5")):
        for method, theirs in PUBLISHED.items():
            rates = solved_rates(out / "runs" / f"{prefix}{method}")
            if rates:
                error = f"{statistics.stdev(rates) / len(rates) ** 0.5:.2f}" if len(rates) > 1 else "-"
                cells = (method, model, len(rates), f"{statistics.mean(rates):.2f} ± {error}", theirs[column])
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) if lines[2:] else "no published configuration has been evaluated on the benchmark yet"


def surroundings(out: Path) -> dict[str, str]:
    """The environment variables of all stages. What the user has set stays."""
    wanted = {
        # All stages, trainings included, find each other's compiled programs, also small ones.
        "JAX_COMPILATION_CACHE_DIR": str(out.resolve() / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        # One process at a time has the card: all memory at once, so that none is asked for while something is timed.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9",
        "PYTHONUNBUFFERED": "1",  # a stage that is stopped has its log
    }
    found = {name: os.environ.get(name, value) for name, value in wanted.items()}
    # Agreement compares with the CPU, which must be there even if a platform was chosen.
    chosen = os.environ.get("JAX_PLATFORMS", "")
    if chosen and "cpu" not in chosen.split(","):
        found["JAX_PLATFORMS"] = f"{chosen},cpu"
    # The package need not be installed: this is its checkout.
    path = os.environ.get("PYTHONPATH")
    return found | {"PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else str(ROOT)}


def probed(environment: dict[str, str]) -> dict:
    """The facts of a process that starts jax. SystemExit with one line if it does not start."""
    command = [sys.executable, f"{ROOT}/benchmarks/common.py"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=TO_PROBE
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"error: jax has not started after {TO_PROBE:.0f} s") from None
    if done.returncode:
        raise SystemExit(f"error: jax does not start: {last_words(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    span = parser.add_mutually_exclusive_group()
    span.add_argument("--minutes", type=float, help="time for this call")
    span.add_argument("--hours", type=float, help="the same in hours; 8 if neither is given")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gpu"), help="folder of the results")
    parser.add_argument("--small", action="store_true", help="try all stages at tiny sizes, on any device")
    parser.add_argument("--only", nargs="+", metavar="STAGE", help="these stages alone")
    parser.add_argument("--list", action="store_true", help="show the stages with their estimates, and run nothing")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="published configurations; all by default")
    parser.add_argument("--models", nargs="+", choices=("lstm", "s5"), default=["lstm"])
    parser.add_argument("--seeds", type=int, help="of the published configurations (10)")
    parser.add_argument("--n-updates", type=int, help="of the trainings (30,000)")
    args = parser.parse_args(argv)
    args.methods = args.methods or (["dr"] if args.small else list(METHODS))
    args.seeds = args.seeds if args.seeds is not None else 2 if args.small else 10
    args.n_updates = args.n_updates if args.n_updates is not None else 100 if args.small else 30_000
    for name in ("minutes", "hours", "seeds", "n_updates"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} is {value:g}: it must be more than 0")
    hours = 8.0 if args.hours is None else args.hours
    args.seconds = 3600 * hours if args.minutes is None else 60 * args.minutes
    args.stages = all_stages(args)
    names = [stage.name for stage in args.stages]
    for name in args.only or ():
        if name not in names:
            parser.error(str(unknown_name("stage", name, names)))
    args.stages = [stage for stage in args.stages if not args.only or stage.name in args.only]
    return args


def again(argv: Sequence[str]) -> str:
    return shlex.join(["python", "benchmarks/gpu.py", *argv])


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, also if the time was too short; 1 if a stage failed; 130 after Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    args = parsed(argv)
    if args.list:
        for stage in args.stages:
            say(f"{stage.name:24} {'from ' if stage.resumes else ''}{stage.minutes:g} minutes")
        return 0
    # At once: what is not installed. From some machines nothing can be fetched.
    lacking = missing()
    if lacking:
        print(f"error: not installed: {', '.join(lacking)}; {how_to_bring(lacking)}", file=sys.stderr)
        return 2
    began, environment = time.monotonic(), surroundings(args.out)
    facts = probed(environment)
    versions = ", ".join(f"{name} {facts['versions'][name]}" for name in ("jax", "python"))
    say(f"{facts['platform']}: {facts['device']}; {versions}; {args.seconds / 60:g} minutes; {args.out}")
    if facts["platform"] == "cpu" and not args.small:
        what = "error: jax sees no accelerator (minimax-train says why); --small tries all stages on a CPU"
        print(what, file=sys.stderr)
        return 2
    stages, interrupted = Stages(args.out, began + args.seconds, environment), False
    with terminated_as_interrupted():
        try:
            stages.run(args.stages)
        except KeyboardInterrupt:
            interrupted = True
    write_atomically(args.out / "table.md", table(args.out) + "\n")
    done = [stage.name for stage in args.stages if stages.is_done(stage)]
    left = stages.missing(args.stages)
    say(f"done: {', '.join(done) or 'nothing'}\nmissing: {', '.join(left) or 'nothing'}")
    say(f"to go on: {again(argv)}" if left else f"the results: {args.out}\n{table(args.out)}")
    return 130 if interrupted else 1 if stages.failed(args.stages) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether two checkouts train the same parameters, bit by bit. For changes that should change nothing.

    git worktree add ../before REVISION
    python benchmarks/same_bits.py ../before . [--only dr accel]

Both checkouts train small runs through the command line, on this machine: bits differ between processors. The runs are
every shipped configuration, and variants of them (two seeds, two devices, generators, scores). Two things are compared:

* the checksums of all checkpoints, which cover every number of the state with its name
* the tables, without the columns of time

Nothing is stored, so a later comparison trains both again. It takes about twenty minutes on one core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from minimax_lib.experiment.writers.csv import read_table

CONFIGS = Path("configs/maze")
SMALL = """
    --env.height 5 --env.width 5 --env.max-steps 16 --env.n-walls 6 --runner.n-parallel 4 --runner.n-steps 48
    --ppo.n-epochs 2 --n-updates 6 --log-every 2 --checkpoint-every 2 --keep-checkpoints 9 --eval.every 3
    --eval.tasks TrainingDistribution --eval.n-episodes 4 --no-report
"""
BUFFER, PARTLY_FULL = "--runner.capacity 24", "--runner.min-fill 0.25"
FINITE = "--runner.generator finite --runner.generator.n-levels 24 --runner.schedule proportionate --runner.min-fill 0"
SCORES = ("l1_value_loss", "one_step_td", "policy_entropy", "positive_value_loss", "neg_return")
TWICE = ("dr", "robust_plr", "accel", "parallel_accel", "paired", "repaired", "sfl")  # with two seeds, two devices


def smaller(config: str, others: str) -> str:
    """The `others` of a variant, and flags that make the networks and buffers of its configuration small."""
    method, flags = config.removeprefix("s5_"), ["--model.memory-width 16"]
    if config.startswith("s5_"):
        flags.append("--model.state-size 16")
    if any(name in method for name in ("plr", "accel", "repaired")):
        flags.append(BUFFER if "--runner.min-fill" in others else f"{BUFFER} {PARTLY_FULL}")
    if method in ("paired", "population_paired", "minimax_adversary"):
        flags.append("--runner.teacher.model.memory-width 16 --runner.teacher.model.conv-filters 8")
    if config == "s5_paired":
        flags.append("--runner.teacher.model.state-size 16")
    if method == "repaired":
        flags.append("--runner.generator.model.memory-width 16 --runner.generator.model.conv-filters 8")
    if method == "sfl":
        flags.append("--runner.every 3 --runner.n-scored 16 --runner.n-kept 6")
    return " ".join(flags)


def variants(checkout: Path) -> dict[str, list[str]]:
    """Name -> flags of every run."""
    found = {path.stem: (path.stem, "") for path in sorted((checkout / CONFIGS).glob("*.yaml"))}
    found |= {f"{name}-seeds": (name, "--n-seeds 2") for name in TWICE}
    found |= {f"{name}-devices": (name, "--n-devices 2") for name in TWICE}
    found |= {f"score-{name}": ("robust_plr", f"--runner.score {name}") for name in SCORES}
    found |= {
        "score-disagreement": ("robust_plr", "--runner.score value_disagreement --model.n-values 3"),
        "accel-easy": ("accel", "--runner.selection easy --runner.n-parents 2"),
        "accel-teacher": ("accel", "--runner.generator teacher --runner.n-students 2"),
        "finite": ("robust_plr", FINITE),
        "finite-devices": ("robust_plr", f"{FINITE} --n-devices 2"),
        "proportional": ("plr", "--runner.prioritisation proportional --ppo.bootstrap-truncated"),
    }
    return {
        name: ["--config", str(CONFIGS / f"{config}.yaml"), *f"{SMALL} {smaller(config, flags)} {flags}".split()]
        for name, (config, flags) in found.items()
    }


def trained(checkout: Path, name: str, flags: list[str]) -> dict[str, Any]:
    """The results of a run in a checkout, without those that depend on time."""
    with tempfile.TemporaryDirectory() as log_dir:
        command = [sys.executable, "train.py", *flags, "--log-dir", log_dir, "--name", name]
        where = os.environ | {"PYTHONPATH": str(checkout.resolve())}
        done = subprocess.run(command, cwd=checkout, env=where, capture_output=True, text=True, check=False)
        folder = Path(log_dir) / name
        found: dict[str, Any] = {"exit status": done.returncode, "error": done.stderr if done.returncode else ""}
        for item in sorted(folder.glob("checkpoints/*/integrity/metadata")):
            found[f"checkpoint {item.parts[-3]}"] = json.loads(item.read_text())["crc32"]
        for table in ("metrics.csv", "eval.csv"):
            if (folder / table).exists():
                rows = read_table(folder / table)[1]  # under today's names, so that older checkouts can be compared
                found[table] = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="names of runs; all of them by default")
    args = parser.parse_args()
    n_different = 0
    for name, flags in variants(args.before).items():
        if args.only and name not in args.only:
            continue
        before, after = (trained(checkout, name, flags) for checkout in (args.before, args.after))
        different = [part for part in before | after if before.get(part) != after.get(part)]
        n_different += bool(different)
        print(f"{name:22}", f"differs: {', '.join(different)}" if different else "the same", flush=True)
    print(f"{n_different} differ")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())

"""Whether two checkouts train the same parameters, bit by bit. For changes that should change nothing.

    git worktree add ../before REVISION
    python benchmarks/same_bits.py ../before . [--only accel 'grid/*'] [--jobs 2] [--train]

The runs are every shipped configuration but Craftax's, made small, and variants of them (two seeds, two devices,
generators, scores, task cores, opponents). First their programs are compared, as JAX hands them to the compiler: equal
programs compute equal numbers. This takes some seconds a run. Runs whose programs differ are trained through the
command line in both checkouts, on this machine: bits differ between processors. With --train, all of them are. Two
things are compared:

* the checksums of all checkpoints, which cover every number of the state with its name
* the tables, without the columns of time

Nothing is stored, so a later comparison trains both again. The two checkouts share a compilation cache: a program that
has not changed is compiled once.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from minimax_lib.store.tables import read_table

CONFIGS = Path("minimax_lib/configs")
RUN = """
    --ppo.n-epochs 2 --ppo.n-minibatches 2 --ppo.n-chunks 1 --n-updates 8 --log-every 2 --checkpoint-every 2
    --keep-checkpoints 9 --eval.every 4 --eval.tasks TrainingDistribution --eval.n-episodes 4 --no-report --n-devices 1
"""
# What makes the runs of a folder small.
WORLDS = {
    "maze": """
        --env.height 5 --env.width 5 --env.max-steps 16 --env.n-walls 6 --runner.n-parallel 4 --runner.n-steps 48
        --ppo.n-minibatches 1
    """,
    "grid": "--runner.n-parallel 4 --runner.n-steps 24",
    "lasertag": "--env.max-steps 16 --runner.n-parallel 4 --runner.n-steps 16",
    "pendulum": "--env.max-steps 16 --env.hold-steps 4 --runner.n-parallel 4 --runner.n-steps 16 --model.dense-width 8",
    "walker": "--env.max-steps 16 --runner.n-parallel 4 --runner.n-steps 16",
    "nmmo": "--env.max-steps 16 --env.centre 32 --env.n-players 16 --runner.n-parallel 4 --runner.n-steps 8",
    "gymnax": "--runner.n-parallel 4 --runner.n-steps 32 --model.dense-width 8",
}
# The maps of other sizes differ in nothing but the map; Craftax cannot be installed beside the rest.
LEFT_OUT = ("craftax/*", "sweeps/*", "grid/gamut_medium_*", "grid/gamut_hard_*")
BUFFER, PARTLY_FULL = "--runner.capacity 24", "--runner.min-fill 0.25"
FINITE = "--runner.generator finite --runner.generator.n-levels 24 --runner.schedule proportionate --runner.min-fill 0"
SCORES = ("l1_value_loss", "one_step_td", "policy_entropy", "positive_value_loss", "neg_return", "max_mc", "mna")
TWICE = ("dr", "robust_plr", "accel", "parallel_accel", "paired", "repaired", "sfl")  # with two seeds, two devices
CORES = (
    "plr",
    "tscl",
    "uniform",
    "learning_progress",
    "online_learning_progress",
    "sfl",
    "online_sfl",
    "batched_dr",
    "constant",
)
BOXES = {
    "uniform": "",
    "annealing": "--runner.core.start damping=0 --runner.core.end damping=0.1",
    "expanding_box": "--runner.core.dimension mass",
}
OPPONENTS = ("sp", "fsp", "delta", "pfsp", "mix")


def smaller(config: str, others: str) -> str:
    """Flags that make the networks and buffers of a configuration small. `others` are those of its variant."""
    folder, _, name = config.partition("/")
    method, flags = name.removeprefix("cpu/").removeprefix("s5_"), [WORLDS[folder]]
    replays = any(word in method for word in ("plr", "accel", "repaired")) and "--runner tasks" not in others
    if folder == "maze":
        flags.append("--model.memory-width 16")
    if name.startswith("s5_"):
        flags.append("--model.state-size 16")
    # The buffer of a finite list is as long as the list.
    if folder in ("maze", "pendulum") and replays and "finite" not in others:
        flags.append(BUFFER if "--runner.min-fill" in others else f"{BUFFER} {PARTLY_FULL}")
    if folder == "maze" and method in ("paired", "population_paired", "minimax_adversary"):
        flags.append("--runner.teacher.model.conv-filters 8")
        flags.append("" if name.startswith("cpu/") else "--runner.teacher.model.memory-width 16")
    if name == "s5_paired":
        flags.append("--runner.teacher.model.state-size 16")
    if method == "repaired":
        flags.append("--runner.generator.model.memory-width 16 --runner.generator.model.conv-filters 8")
    if folder == "lasertag" and not method.startswith("shared"):
        flags.append("--runner.every 2 --runner.capacity 3")
    if folder == "lasertag" and ("_plr" in method or method == "maestro"):
        group = "plr" if method == "maestro" else "levels"
        flags.append(f"--runner.{group}.capacity 24 --runner.{group}.min-fill 0.25")
    if method == "sfl":
        flags.append("--runner.every 3 --runner.n-scored 32 --runner.n-kept 6")
    return " ".join(flags)


def shipped(checkout: Path) -> list[str]:
    """Names of the configurations, such as maze/accel."""
    names = sorted(
        str(path.relative_to(checkout / CONFIGS).with_suffix("")) for path in checkout.glob(f"{CONFIGS}/*/**/*.yaml")
    )
    return [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in LEFT_OUT)]


def variants(checkout: Path) -> dict[str, list[str]]:
    """Name -> flags of every run."""
    found = {name: (name, "") for name in shipped(checkout)}
    found |= {f"maze/{name}-seeds": (f"maze/{name}", "--n-seeds 2") for name in TWICE}
    found |= {f"maze/{name}-devices": (f"maze/{name}", "--n-devices 2") for name in TWICE}
    found |= {f"score/{name}": ("maze/robust_plr", f"--runner.score {name}") for name in SCORES}
    found |= {
        f"core/{name}": ("maze/dr", f"--runner tasks --runner.n-levels 16 --runner.core {name}") for name in CORES
    }
    found |= {
        f"box/{name}": ("pendulum/dr", f"--runner box --runner.core {name} {flags}") for name, flags in BOXES.items()
    }
    found |= {f"opponents/{name}": ("lasertag/fsp_plr", f"--runner.opponents {name}") for name in OPPONENTS}
    found |= {
        "score/value_disagreement": ("maze/robust_plr", "--runner.score value_disagreement --model.n-values 3"),
        "accel-easy": ("maze/accel", "--runner.selection easy --runner.n-parents 2"),
        "accel-teacher": ("maze/accel", "--runner.generator teacher --runner.n-students 2"),
        "finite": ("maze/robust_plr", FINITE),
        "finite-devices": ("maze/robust_plr", f"{FINITE} --n-devices 2"),
        "proportional": ("maze/plr", "--runner.prioritisation proportional --ppo.bootstrap-truncated"),
        "in-turn": ("maze/robust_plr", "--runner.levels-per-row 4"),
        "paired-in-turn": ("maze/paired", "--runner.levels-per-row 4"),
        "long-episodes": ("maze/accel", "--env.max-steps 40 --runner.n-steps 10 --n-updates 24"),
        "normalised": ("maze/dr", "--runner.normalize-rewards --runner.n-evals 2"),
        "tasks-devices": ("maze/dr", "--runner tasks --runner.n-levels 16 --n-devices 2 --n-seeds 2"),
    }
    return {
        name: ["--config", str(CONFIGS / f"{config}.yaml"), *merged(f"{RUN} {smaller(config, flags)} {flags}")]
        for name, (config, flags) in found.items()
    }


def merged(text: str) -> list[str]:
    """The flags of a text as arguments. The last of equal flags counts: a command line may not have two."""
    last: dict[str, list[str]] = {}
    for word in text.split():
        if word.startswith("--"):
            last[word] = flag = [word]
        else:
            flag.append(word)
    return [word for flag in last.values() for word in flag]


def trained(checkout: Path, flags: list[str], cache: Path) -> dict[str, Any]:
    """The results of a run in a checkout, without those that depend on time."""
    with tempfile.TemporaryDirectory() as log_dir:
        command = [
            sys.executable,
            "train.py",
            *flags,
            "--log-dir",
            log_dir,
            "--name",
            "run",
            "--compilation-cache",
            str(cache),
        ]
        where = os.environ | {"PYTHONPATH": str(checkout.resolve())}
        done = subprocess.run(command, cwd=checkout, env=where, capture_output=True, text=True, check=False)
        folder = Path(log_dir) / "run"
        found: dict[str, Any] = {"exit status": done.returncode, "error": done.stderr if done.returncode else ""}
        for item in sorted(folder.glob("checkpoints/*/integrity/metadata")):
            found[f"checkpoint {item.parts[-3]}"] = json.loads(item.read_text())["crc32"]
        for table in ("metrics.csv", "eval.csv"):
            if (folder / table).exists():
                rows = read_table(folder / table)[1]  # under today's names, so that older checkouts can be compared
                found[table] = [{k: v for k, v in row.items() if "second" not in k} for row in rows]
    return found


def parts_that_differ(before: Path, after: Path, flags: list[str], cache: Path) -> list[str]:
    """Names of the results that are not equal, or of the error that stopped both runs."""
    first, second = (trained(checkout, flags, cache) for checkout in (before, after))
    if first["error"] and second["error"]:
        return [f"both fail ({second['error'].splitlines()[-1]})"]
    return [part for part in first | second if first.get(part) != second.get(part)]


def digests(runs: dict[str, list[str]]) -> dict[str, str]:
    """Of each run: a checksum of its training and of its start, as they are before XLA compiles them."""
    import jax

    from minimax_lib.config import parse
    from minimax_lib.runners.build import make_program

    found = {}
    for name, flags in runs.items():
        try:
            program = make_program(parse(flags))
            start = jax.jit(jax.vmap(program.runner.init)).lower(jax.random.split(jax.random.key(0), 2))
            text = program.lower(program.shape).as_text() + start.as_text()
            found[name] = hashlib.sha256(canonical(text).encode()).hexdigest()
        except Exception as error:  # whatever an older checkout raises: the run is then trained
            found[name] = f"{type(error).__name__}: {error}"
    return found


def canonical(text: str) -> str:
    """The program with functions called by number, in the order in which they are met: names of Python do not count."""
    numbers: dict[str, str] = {}
    return re.sub(r"@[\w.\-]+", lambda found: numbers.setdefault(found[0], f"@{len(numbers)}"), text)


def traced(checkout: Path, runs: dict[str, list[str]]) -> dict[str, str]:
    """The `digests` of a checkout, from its own process."""
    devices = "--xla_force_host_platform_device_count=2"
    where = os.environ | {"PYTHONPATH": str(checkout.resolve()), "XLA_FLAGS": devices}
    command = [sys.executable, str(Path(__file__).resolve()), "--digests"]
    done = subprocess.run(
        command, cwd=checkout, env=where, input=json.dumps(runs), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    if sys.argv[1:] == ["--digests"]:
        print(json.dumps(digests(json.load(sys.stdin))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", nargs="+", default=["*"], help="patterns of names of runs; all of them by default")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--train", action="store_true", help="train every run, not only those whose programs differ")
    args = parser.parse_args()
    runs = {
        name: flags
        for name, flags in variants(args.before).items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in args.only)
    }
    n_different = 0
    if not args.train:
        with ThreadPoolExecutor(args.jobs) as pool:
            first, second = pool.map(lambda checkout: traced(checkout, runs), (args.before, args.after))
        equal = [name for name in runs if first[name] == second[name] and ":" not in first[name]]
        print(f"{len(equal)} of {len(runs)} runs have equal programs", flush=True)
        runs = {name: flags for name, flags in runs.items() if name not in equal}
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(args.jobs) as pool:
        compared = pool.map(lambda flags: parts_that_differ(args.before, args.after, flags, Path(cache)), runs.values())
        for name, different in zip(runs, compared, strict=True):
            n_different += bool(different)
            print(f"{name:32}", f"differs: {', '.join(different)}" if different else "the same", flush=True)
    print(f"{n_different} of {len(runs)} differ")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())

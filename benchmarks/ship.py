"""Makes a trained agent of the package from a run, or prints the table of those that there are.

    python benchmarks/ship.py runs/recipes/sfl-s1 maze/sfl [--checkpoint N] [--seed S] [--replace]
    python benchmarks/ship.py --table

The agent is the folder minimax_lib/trained/NAME, in the form of a run that has only an archive:

* config.yaml: the run's configuration, for this one seed
* archive/update-N.npz: the parameters of the checkpoint, of all students; their average where the run keeps one
* origin.jsonl: the versions and machines that the run was trained with
* agent.json: command, seed, updates, environment steps, and the solved rates of the checkpoint in the run's tables

So evaluate the run first: `minimax-evaluate --run RUN`, and the same with `--tasks validation`.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from minimax_lib.config import Config, from_dict, shipped, to_dict
from minimax_lib.config.files import write_yaml
from minimax_lib.config.tree import Tree, to_tree
from minimax_lib.config.wandb import Wandb
from minimax_lib.envs.registry import family_of, make_held_out
from minimax_lib.envs.task_names import without_agents_tasks
from minimax_lib.runners.hosts import Hosts
from minimax_lib.store.checkpoint import CheckpointError
from minimax_lib.store.evaluations import LEVELS
from minimax_lib.store.parameters import named, npz_bytes
from minimax_lib.store.saved import Run, find_run, restore
from minimax_lib.store.tables import read_table

MOST_BYTES = 2_000_000
NAME = re.compile(r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*")
COLUMNS = ("validation", "benchmark", "hard")
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", help="folder of a run")
    parser.add_argument("name", nargs="?", help="what the agent is to be called, as maze/sfl")
    parser.add_argument("--checkpoint", default="latest", help="a number of updates")
    parser.add_argument("--seed", type=int, help="which seed of the run; the first if it is not given")
    parser.add_argument("--command", help="what the run was started with, to be recorded")
    parser.add_argument("--replace", action="store_true", help="replace the agent of this name")
    parser.add_argument("--table", action="store_true", help="print the table of all trained agents")
    args = parser.parse_args(argv)
    if args.table:
        print(table())
        return 0
    if args.name is None:
        parser.error("name a run and the agent, as runs/my-run maze/sfl; or --table")
    try:
        checkpoint = args.checkpoint if args.checkpoint == "latest" else int(args.checkpoint)
        check_name(args.name, args.replace)
        folder = ship(find_run(Path(args.run), checkpoint), args.name, args.seed, args.command)
    except (ValueError, CheckpointError) as error:
        parser.error(str(error))
    print(f"written: {folder} ({size_of(folder):,} bytes): {shipped.summary_of_agent(folder)}")
    return 0


def check_name(name: str, replace: bool) -> None:
    """ValueError where an agent cannot be called so, or where there is one."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name is {name!r}: it must be GROUP/NAME in small letters, such as maze/sfl")
    if name in shipped.shipped_agents() and not replace:
        raise ValueError(f"the agent {name!r} exists: add --replace, or choose another name")


def ship(run: Run, name: str, seed: int | None = None, command: str | None = None) -> Path:
    """The new folder with the agent `name`: one seed of `run`. ValueError, and nothing is written, if it is not fit."""
    seed = run.seeds[0] if seed is None else seed
    if seed not in run.seeds:
        raise ValueError(f"seed is {seed}: {run.folder.path} has {', '.join(map(str, run.seeds))}")
    update, params = restore(run, Console(stderr=True))
    params = of_seed(params, run.seeds.index(seed))
    settings = settings_of(run.config, name, seed)
    about = about_of(run, name, seed, update, command)
    content = npz_bytes(params, {"update": update, "seeds": [seed], "config": settings})
    if len(content) > MOST_BYTES:
        raise ValueError(f"the parameters have {len(content):,} bytes: they must be {MOST_BYTES:,} at most")
    folder = shipped.AGENTS / name
    # Complete or not at all: the new folder gets its name when everything is in it.
    partial = shipped.AGENTS / ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "archive").mkdir(parents=True)
    (partial / "archive" / f"update-{update}.npz").write_bytes(content)
    write_yaml(settings, partial / "config.yaml")
    (partial / shipped.ABOUT).write_text(f"{json.dumps(about, indent=2)}\n", encoding="utf-8")
    if run.folder.origin.exists():
        shutil.copyfile(run.folder.origin, partial / run.folder.origin.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    return partial.rename(folder)


def of_seed(params: Any, place: int) -> Any:
    """The parameters [1, A, ...] of one of the seeds [S, A, ...]; ValueError if they are not finite float32."""
    own = jax.tree.map(lambda x: np.asarray(x)[place : place + 1], params)
    for name, array in named(own).items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} is of the type {array.dtype}: it must be finite numbers of float32")
    return own


def settings_of(config: Config, name: str, seed: int) -> Tree:
    """The settings that train this seed alone, without what belongs to the machine and the user of the run."""
    tree = to_dict(config) | {"seed": seed, "n_seeds": 1, "n_devices": config.n_row_devices, "n_seed_devices": 1}
    tree |= {"log_dir": "runs", "name": name.replace("/", "_"), "resume": False, "compilation_cache": "auto"}
    tree |= {"distributed": False, "hosts": to_tree(Hosts()), "wandb": to_tree(Wandb())}
    return to_dict(from_dict(tree))


def about_of(run: Run, name: str, seed: int, update: int, command: str | None) -> Row:
    """How the agent was trained, and what it solves; ValueError where nothing was measured."""
    tree = to_dict(run.config)
    metrics = [row for row in read_table(run.folder.metrics)[1] if matches(row, update=update, seed=seed)]
    evaluations = evaluations_of(run, seed, update)
    if not metrics or not evaluations:
        missing = f"row in {run.folder.metrics.name}" if not metrics else "evaluation"
        raise ValueError(f"{run.folder.path} has no {missing} of update {update} and seed {seed}: evaluate it first")
    return {
        "name": name,
        "env": tree["env"]["name"],
        "method": tree["runner"]["name"],
        "model": tree["model"]["name"],
        "command": command
        or f"minimax-train --config {shipped.AGENTS.parent.name}/{shipped.AGENTS.name}/{name}/config.yaml",
        "seed": seed,
        "updates": update,
        "env_steps": int(metrics[-1]["env_steps"]),
        "seconds": round(float(metrics[-1]["seconds"])),
        "evaluations": evaluations,
    }


def evaluations_of(run: Run, seed: int, update: int) -> list[Row]:
    """What the run's tables say of the checkpoint: of `evaluations/`, and of eval.csv for tasks that are not there."""
    found = []
    for path in sorted(run.results.glob("*.csv")):
        rows = [row for row in read_table(path)[1] if matches(row, update=update, seed=seed, student=0)]
        if rows:
            found.append(evaluation(run, rows, rows[0]))
    rows = [row for row in read_table(run.folder.evaluations)[1] if matches(row, update=update, seed=seed)]
    if rows:
        own = run.config.eval
        how = {"n_episodes": own.n_episodes, "actions": "greedy" if own.greedy else "sampled", "protocol": own.protocol}
        during = evaluation(run, rows, how)
        if not set(during["by_task"]) <= {task for other in found for task in other["by_task"]}:
            found.append(during)
    return found


def evaluation(run: Run, rows: Sequence[Mapping[str, str]], how: Mapping[str, Any]) -> Row:
    """An evaluation: its suite, and the solved rate on all tasks together and on each; of the worst levels, on each."""
    by_task = {row["task"]: float(row["solved_rate"]) for row in rows}
    worlds = {task: by_task[task] for task in without_agents_tasks(by_task)}
    what: Row = {"tasks": suite_of(run, set(worlds)), "solved_rate": round(float(np.mean(list(worlds.values()))), 4)}
    if LEVELS in how:  # shares of the levels overlap: a mean over them says nothing
        what = {"tasks": "random levels", "n_levels": int(how["n_levels"]), "solved_rate": None}
    protocol = {name: how.get(name) or None for name in ("actions", "protocol")}
    return what | {"n_episodes": int(how["n_episodes"])} | protocol | {"by_task": by_task}


def suite_of(run: Run, tasks: set[str]) -> str:
    """The group that consists of these tasks; their names where there is none."""
    for group in family_of(run.config.env).groups:
        if set(make_held_out(run.config.env, [group]).names) == tasks:
            return group
    return " ".join(sorted(tasks))


def matches(row: Mapping[str, str], **numbers: int) -> bool:
    """Whether the row has these numbers in these columns."""
    return all(row.get(name) == str(number) for name, number in numbers.items())


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def table() -> str:
    """The trained agents as a Markdown table."""
    lines = [
        f"| agent | method, network | updates | million steps | {' | '.join(COLUMNS)} | worst 1% of levels | size |",
        "|---|---|---|---|" + "---|" * (len(COLUMNS) + 2),
    ]
    for name, folder in shipped.shipped_agents().items():
        about = shipped.about_agent(folder)
        sampled = [one for one in about["evaluations"] if one["actions"] == "sampled"]
        rates = {one["tasks"]: one["solved_rate"] for one in sampled}
        worst = [one["by_task"].get("worst 1%") for one in sampled if one["solved_rate"] is None]
        cells = [f"`{name}`", f"{about['method']}, {about['model']}", f"{about['updates']:,}"]
        cells += [f"{about['env_steps'] / 1e6:.0f}"]
        cells += [rate(value) for value in (*map(rates.get, COLUMNS), next(iter(worst), None))]
        lines.append(f"| {' | '.join([*cells, f'{size_of(folder) / 1e6:.2f} MB'])} |")
    return "\n".join(lines)


def rate(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}".lstrip("0") if value < 1 else "1.00"


if __name__ == "__main__":
    sys.exit(main())

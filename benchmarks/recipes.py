"""The results of recipes: evaluates finished runs, and keeps one row for each run and task.

    python benchmarks/recipes.py dr=runs/recipes/dr-* accel=runs/recipes/accel-* [--robust] [--out FILE]

Each argument is METHOD=FOLDER or METHOD=PATTERN, in quotes where the shell would expand it. The protocol is that of
docs/results.md: the last checkpoint, 100 episodes a task, sampled actions. A run that has such an evaluation is not
evaluated again, and its rows in the file are replaced by the same ones. Then a table of the file is printed: mean,
interquartile mean and optimality gap of each method with 95% intervals, the probability of improvement over DR
(--baseline), and the difference from it.
"""

import argparse
import csv
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from scipy.stats import ttest_ind

from minimax_lib.commands.evaluate import main as evaluate
from minimax_lib.config.evaluate import EvaluateSettings
from minimax_lib.envs.registry import make_held_out
from minimax_lib.evaluation.held_out import evaluation_keys
from minimax_lib.evaluation.robustness import RobustEvaluator, level_key
from minimax_lib.evaluation.statistics import CONFIDENCE, MIN_SEEDS, SHARES, bootstrap_interval, interquartile_mean
from minimax_lib.evaluation.tables import Scores, level_scores
from minimax_lib.pictures.held_out import improvement_probability
from minimax_lib.runners.build import make_agent
from minimax_lib.store.evaluations import as_csv, existing, share_names
from minimax_lib.store.files import write_atomically
from minimax_lib.store.saved import Run, find_run, restore
from minimax_lib.store.tables import read_table

ROBUST = "robust"  # the worst shares of random levels
SUITES = ("benchmark", "hard", "validation", "TrainingDistribution")
RESULTS = Path(__file__).parent / "results"
KEYS = ("method", "config", "seed", "updates", "suite", "task", "episodes")  # a row with the same ones is replaced
MEASURES = {"solved_rate": "solved rate", "mean_return": "return"}
Row = dict[str, Any]
COMMON_LEVELS = {"n_walls": 60, "replace_walls": True, "sample_n_walls": False, "only_solvable": False}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="METHOD=FOLDER or METHOD=PATTERN; none: only print the table")
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--n-episodes", type=int, default=100)
    parser.add_argument("--robust", action="store_true", help="the worst of 10,000 levels in place of the suites")
    parser.add_argument("--n-levels", type=int, default=10_000)
    parser.add_argument("--baseline", default="dr", help="the method that the others are compared with")
    parser.add_argument("--measure", choices=MEASURES, default="solved_rate", help="what the table compares")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    if args.robust and args.measure != "solved_rate":
        parser.error(f"--measure is {args.measure}: --robust measures the solved_rate alone")
    out = args.out or RESULTS / ("recipes_robust.csv" if args.robust else "recipes.csv")
    for word in args.runs:
        method, _, pattern = word.partition("=")
        folders = [folder for folder in sorted(glob(pattern)) if (Path(folder) / "config.yaml").exists()]
        if not folders:
            parser.error(f"{word!r} finds no run: it must be METHOD=FOLDER, as dr=runs/my-run")
        for folder in folders:
            run = find_run(Path(folder), "latest")
            keep(out, list(levels_of(run, method, args) if args.robust else tasks_of(run, method, args)))
    print_table(out, args.baseline, args.measure)
    return 0


def tasks_of(run: Run, method: str, args: argparse.Namespace) -> list[Row]:
    """The rows of a run on all suites."""
    rows = []
    for suite in args.suites:
        tasks = make_held_out(run.config.env, [suite]).names
        flags = ["--tasks", suite, "--n-episodes", str(args.n_episodes)]
        settings = EvaluateSettings(run=(str(run.folder.path),), tasks=(suite,), n_episodes=args.n_episodes)
        rows += evaluated(run, settings, flags, tasks, {"method": method, "suite": suite})
    return rows


def levels_of(run: Run, method: str, args: argparse.Namespace) -> list[Row]:
    """The rows of a run on the worst of the levels that all runs are compared on, whatever they were trained on."""
    settings = EvaluateSettings(run=(str(run.folder.path),), robust=True, n_levels=args.n_levels)
    which = {"method": method, "suite": ROBUST}
    env = dataclasses.replace(run.config.env, **COMMON_LEVELS)
    if env == run.config.env:
        flags = ["--robust", "--n-levels", str(args.n_levels)]
        return evaluated(run, settings, flags, share_names(settings), which)
    update, params = restore(run, Console())
    program = RobustEvaluator(env, make_agent(run.config).agent, settings.robust_protocol)
    params = jax.tree.map(lambda x: x[:, settings.student], params)
    result = program.evaluate(level_key(settings.seed), evaluation_keys(run.seeds, settings.seed), params)
    return rows_of(run, update, level_scores(SHARES, run.seeds, result), settings, which)


def evaluated(run: Run, settings: EvaluateSettings, flags: list[str], tasks: tuple[str, ...], which: Row) -> list[Row]:
    """The rows of a run with these settings. It is evaluated only if it has no such evaluation yet."""
    found = existing(settings, run, tasks)
    if found is None:
        if evaluate(["--run", str(run.folder.path), *flags]):
            sys.exit(f"{run.folder.path} could not be evaluated")
        found = existing(settings, run, tasks)
        assert found is not None
    return rows_of(run, *found, settings, which)


def rows_of(run: Run, update: int, scores: Scores, settings: EvaluateSettings, which: Row) -> list[Row]:
    """The rows of one evaluation of a run."""
    last = {int(row["seed"]): row for row in read_table(run.folder.metrics)[1]}  # of each seed
    returns = scores.measures.get("return")
    return [
        {
            "method": which["method"],
            "config": run.folder.path.name,
            "seed": seed,
            "updates": update,
            "env_steps": last[seed]["env_steps"],
            "seconds": round(float(last[seed]["seconds"])),
            "suite": which["suite"],
            "task": task,
            "episodes": settings.episodes,
            "solved_rate": round(float(scores["solved_rate"][s, t]), 4),
            "mean_return": "" if returns is None else round(float(returns[s, t]), 4),
        }
        for s, seed in enumerate(scores.seeds)
        for t, task in enumerate(scores.tasks)
    ]


def keep(out: Path, rows: list[Row]) -> None:
    """Adds the rows to the file. Those of the same run and task are replaced."""
    table = read(out) + [{name: str(value) for name, value in row.items()} for row in rows]
    newest = {tuple(row[key] for key in KEYS): row for row in table}
    write_atomically(out, as_csv(list(newest.values())))


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def print_table(path: Path, baseline: str, measure: str) -> None:
    """A Markdown table for each suite in the file: the baseline comes first, then the best mean.

    Shares of the levels contain one another. A mean over them would say nothing, so each has its own table.
    """
    suites: dict[str, dict[str, dict[tuple[str, str], dict[str, float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in read(path):
        seeds = suites[row["suite"]][row["method"]]
        seeds.setdefault((row["config"], row["seed"]), {})[row["task"]] = float(row[measure])
    for suite, methods in suites.items():
        runs = [set(tasks) for seeds in methods.values() for tasks in seeds.values()]
        shared, rest = sorted(set.intersection(*runs)), sorted(set.union(*runs) - set.intersection(*runs))
        left_out = f" (left out, since older rows lack it: {', '.join(rest)})" if rest else ""
        parts = {f"{suite}, {share}": [share] for share in shared} if suite == ROBUST else {suite: shared}
        for name, tasks in parts.items():
            print(f"\n**{name}**, {MEASURES[measure]}{left_out}\n")
            print_rows({method: scores_of(seeds, tasks) for method, seeds in methods.items()}, baseline, measure)


def scores_of(seeds: Mapping[Any, Mapping[str, float]], tasks: Sequence[str]) -> np.ndarray:
    """f64[S, M] of these tasks."""
    return np.array([[scores[task] for task in tasks] for scores in seeds.values()])


def print_rows(tables: Mapping[str, np.ndarray], baseline: str, measure: str) -> None:
    """A Markdown table of the scores [S, M] of each method."""
    columns = f"better than {baseline} | difference of the means | p"
    print(f"| method | seeds | mean | interquartile mean | optimality gap | {columns} |")
    print("|---|---|---|---|---|---|---|---|")
    known = tables.get(baseline)
    for method, scores in sorted(tables.items(), key=lambda item: (item[0] != baseline, -item[1].mean())):
        compared = ["", "", ""] if known is None or scores is known else beside(scores, known)
        cells = [
            with_interval(scores, np.mean),
            with_interval(scores, interquartile_mean),
            with_interval(scores, optimality_gap) if measure == "solved_rate" else "",
        ]
        print(f"| {method} | {len(scores)} | " + " | ".join([*cells, *compared]) + " |")


def beside(scores: np.ndarray, known: np.ndarray) -> list[str]:
    """The cells that compare a method with the baseline. Scores are [S, M].

    The difference is that of the means of seeds, with the 95% interval and the p of Welch's t test.
    """
    better = f"{float(improvement_probability(scores, known)):.2f}"
    if min(len(scores), len(known)) < 2:
        return [better, "", ""]
    test = ttest_ind(scores.mean(axis=1), known.mean(axis=1), equal_var=False)
    low, high = test.confidence_interval(CONFIDENCE)
    return [better, f"{scores.mean() - known.mean():+.3f} [{low:+.3f}, {high:+.3f}]", f"{test.pvalue:.2g}"]


def optimality_gap(scores: np.ndarray, axis: int | None = None) -> np.ndarray:
    """How far the scores are below 1, on average (Agarwal et al. 2021)."""
    return 1 - np.minimum(scores, 1).mean(axis=axis)


def with_interval(scores: np.ndarray, statistic: Any) -> str:
    interval = bootstrap_interval(scores, statistic) if len(scores) >= MIN_SEEDS else None
    spread = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    return f"{float(statistic(scores, axis=None)):.3f}{spread}"


if __name__ == "__main__":
    sys.exit(main())

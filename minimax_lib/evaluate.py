"""The command `minimax-evaluate`, which `evaluate.py` also is: evaluates trained runs on held-out tasks."""

import csv
import io
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import track

from minimax_lib import axes
from minimax_lib.config import to_dict
from minimax_lib.config.evaluate import Settings, parse
from minimax_lib.config.train import import_plugins
from minimax_lib.evaluation.held_out import EvalRunner, evaluation_keys
from minimax_lib.evaluation.robustness import SHARES, RobustRunner, level_key
from minimax_lib.evaluation.tables import Scores, level_scores, pooled, score_table, seed_table, task_scores, task_table
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.experiment.failures import XLA_ERRORS, evaluation_failure
from minimax_lib.experiment.folder import differences
from minimax_lib.experiment.saved import Run, find_run, restore
from minimax_lib.runners.build import make_agent
from minimax_lib.train import refuse
from minimax_lib.trees import mapped

Measure = Callable[[Run, Any], Scores]  # of the parameters [S, ...] of one student of each seed of a run
POOLED = ("env", "model", "runner", "ppo", "n_updates")  # settings that must be alike in runs that are pooled as seeds


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status, after the evaluation; 2 after one line on stderr where what is asked for cannot be done.

    Nothing is compiled or written before all of it has been found possible.
    """
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        import_plugins(settings.plugins or ())
        runs = [find_run(Path(folder), settings.checkpoint, settings.plugins is not None) for folder in settings.run]
        check_poolable(runs)
        check_student(runs[0], settings.student)
        runner = settings.suite.build(runs[0].config.env, make_agent(runs[0].config).agent)
    except ValueError as error:
        return refuse(error)
    # Nothing is refused from here on: what fails now is a failure of the work, with status 1.
    from minimax_lib.experiment.checkpoint import CheckpointError  # slow to import: not before the checks

    try:
        keep_compiled_programs(settings.compilation_cache)
        evaluate(settings, runs, runner, Console())
    except (CheckpointError, OSError, *XLA_ERRORS) as error:
        print(f"error: {evaluation_failure(error, settings.episodes)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def check_poolable(runs: Sequence[Run]) -> None:
    """ValueError if the runs are not seeds of one configuration, each seed once."""
    folder_of: dict[int, Path] = {}
    for run in runs:
        path = run.folder.path
        for name, (one, other) in differences(to_dict(runs[0].config), to_dict(run.config)).items():
            if name.split(".")[0] in POOLED:
                raise ValueError(
                    f"{runs[0].folder.path} and {path} are not runs of one configuration: {name} is {one} and {other}"
                )
        for seed in run.seeds:
            if seed in folder_of:
                raise ValueError(f"seed {seed} is in {folder_of[seed]} and in {path}: it can be pooled only once")
            folder_of[seed] = path


def check_student(run: Run, student: int) -> None:
    """ValueError if the run has no such student."""
    n = run.config.runner.n_students
    if student >= n:
        raise ValueError(f"student is {student}: {run.folder.path} has {n}, counted from 0")


def evaluate(settings: Settings, runs: Sequence[Run], runner: EvalRunner, console: Console) -> None:
    """Plays every run, writes a file for each, and prints the tables of all of them together."""
    for run in runs:
        run.results.mkdir(exist_ok=True)  # now: after the work, a folder that cannot be made would lose the results
    # One measure for all runs, which are of one configuration: it is compiled once.
    measure = level_measure(settings, runs[0], runner, console) if settings.robust else task_measure(settings, runner)
    parts, files = [], []
    for run in runs:
        # Each file is written as soon as its run is measured: what fails in a later run costs nothing of this one.
        update, params = restore(run, console)
        parts.append(measure(run, jax.tree.map(lambda x: x[:, settings.student], params)))
        files.append(write_new(run.results, file_name(settings, update), csv_text(settings, update, parts[-1])))
    print_tables(settings, pooled(parts), console)
    for path in files:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


def task_measure(settings: Settings, runner: EvalRunner) -> Measure:
    """Plays the held-out tasks."""
    evaluate = jax.jit(mapped(runner.evaluate, axis_name=axes.SEED))

    def measure(run: Run, params: Any) -> Scores:
        keys = evaluation_keys(run.seeds, settings.seed)
        return task_scores(runner.names, run.seeds, evaluate(keys, params))

    return measure


def level_measure(settings: Settings, run: Run, runner: EvalRunner, console: Console) -> Measure:
    """Plays random levels of the training distribution, the same for all runs."""
    # `run` stands for all of them: the runs that are pooled have one environment.
    program = RobustRunner(run.config.env, runner.agent, settings.robust_protocol, runner.choose)
    if not program.knows_solvable:
        console.print("The environment does not tell which levels can be solved: all of them are played.")

    def measure(run: Run, params: Any) -> Scores:
        show = partial(track, description=f"{settings.n_levels:,} levels, twice", console=console, transient=True)
        keys = evaluation_keys(run.seeds, settings.seed)
        return level_scores(SHARES, run.seeds, program.evaluate(level_key(settings.seed), keys, params, show))

    return measure


def print_tables(settings: Settings, scores: Scores, console: Console) -> None:
    """Prints the scores over all seeds, and those of each seed."""
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} episodes"
    if settings.robust:
        console.print(score_table(f"{settings.n_levels:,} random levels, {how} on each", scores))
        return
    console.print(task_table(f"Held-out tasks, {how} on each", scores))
    if len(scores.seeds) > 1:
        console.print(seed_table(scores))


def file_name(settings: Settings, update: int) -> str:
    """What a file of results is called, without its number and ending."""
    what = "robust" if settings.robust else settings.tasks[0] if len(settings.tasks) == 1 else "tasks"
    options = [*([settings.protocol] if settings.protocol else []), *(["greedy"] if settings.greedy else [])]
    options += [f"student{settings.student}"] if settings.student else []
    return "-".join([f"update{update}", what, *options])


def csv_text(settings: Settings, update: int, scores: Scores) -> str:
    """A line for each seed and task, with how its scores were measured."""
    how = {
        "update": update,
        "n_episodes": settings.episodes,
        "actions": "greedy" if settings.greedy else "sampled",
        "protocol": settings.protocol or "",
        "evaluation_seed": settings.seed,
        "student": settings.student,
    } | ({"n_levels": settings.n_levels} if settings.robust else {})
    rows = [row | how for row in scores.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_new(folder: Path, name: str, text: str) -> Path:
    """The file in `folder` that holds `text`: `name`.csv, or `name`-2.csv and so on if others are called that.

    No file is ever overwritten.
    """
    for number in itertools.count(1):
        path = folder / (f"{name}.csv" if number == 1 else f"{name}-{number}.csv")
        if not path.exists():
            # Mode "x" fails where another process has made the file since.
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
            return path
        # The same evaluation gives the same text: doing it again makes no second file.
        if path.read_text(encoding="utf-8") == text:
            return path
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())

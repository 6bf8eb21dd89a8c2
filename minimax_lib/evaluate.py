"""The command `minimax-evaluate` (also `evaluate.py`): evaluates trained runs on held-out tasks."""

import csv
import io
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

from minimax_lib import axes
from minimax_lib.config import to_dict
from minimax_lib.config.evaluate import Settings, parse
from minimax_lib.config.train import import_plugins
from minimax_lib.config.tree import flat
from minimax_lib.evaluation.comparison import Improvement, Method, rows, tables
from minimax_lib.evaluation.held_out import EvalRunner, evaluation_keys
from minimax_lib.evaluation.robustness import SHARES, RobustRunner, level_key
from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.evaluation.tables import (
    Scores,
    level_scores,
    levels_note,
    pooled,
    score_table,
    seed_table,
    task_scores,
    task_table,
)
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.experiment.failures import XLA_ERRORS, evaluation_failure
from minimax_lib.experiment.files import saved_updates
from minimax_lib.experiment.folder import differences
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.saved import Run, find_run, restore
from minimax_lib.experiment.writers.csv import read_table
from minimax_lib.runners.build import make_agent
from minimax_lib.runners.memory import check_level_memory, check_task_memory
from minimax_lib.train import refuse
from minimax_lib.trees import mapped

Plan = tuple[Sequence[Run], EvalRunner]  # the runs of one method, and what evaluates one of their seeds
MEASURES = ("solved_rate", "return")  # what a comparison needs of an evaluation
Measure = Callable[[Run, Any], Scores]  # the scores of a run, from the parameters [S, ...] of one student of each seed
POOLED = ("env", "model", "runner", "ppo", "n_updates")  # settings in which runs must agree to be pooled as seeds


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2.

    Everything is checked before anything is compiled or written.
    """
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        import_plugins(settings.plugins or ())
        folders = settings.compare or settings.run
        runs = [find_run(Path(folder), settings.checkpoint, settings.plugins is not None) for folder in folders]
        groups = methods_of(runs) if settings.compare else {"": runs}
        plans = {label: plan(settings, members) for label, members in groups.items()}
        check_same_tasks(plans)
    except ValueError as error:
        return refuse(error, argv)
    # All requests have been checked. From here on, an error means that the work has failed: status 1.
    from minimax_lib.experiment.checkpoint import CheckpointError  # slow to import, so after the checks

    try:
        keep_compiled_programs(settings.compilation_cache)
        if settings.compare:
            compare(settings, plans, Console())
        else:
            evaluate(settings, *plans[""], Console())
    except (CheckpointError, OSError, *XLA_ERRORS) as error:
        print(f"error: {evaluation_failure(error, settings.episodes)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def plan(settings: Settings, runs: Sequence[Run]) -> Plan:
    """The runs of one method, and what evaluates each of them; ValueError where that is impossible."""
    check_poolable(runs)
    check_student(runs[0], settings.student)
    runner = settings.suite.build(runs[0].config.env, make_agent(runs[0].config).agent)
    check_size(settings, runs, runner)
    return runs, runner


def methods_of(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by the names of their methods, in the order in which they are given."""
    from minimax_lib.pictures.runs import RunTables, labelled_by_method

    tables = [RunTables(run.folder.path, flat(to_dict(run.config))) for run in runs]
    run_of = {id(table): run for table, run in zip(tables, runs, strict=True)}
    return {label: [run_of[id(one)] for one in members] for label, members in labelled_by_method(tables).items()}


def check_same_tasks(plans: Mapping[str, Plan]) -> None:
    """ValueError unless all methods are evaluated on the same tasks."""
    (label, (_, runner)), *others = plans.items()
    for other, (_, its) in others:
        if its.names != runner.names:
            raise ValueError(
                f"{label!r} and {other!r} have other tasks of these names, {', '.join(runner.names)} and "
                f"{', '.join(its.names)}: name tasks that both have with --tasks"
            )


def check_poolable(runs: Sequence[Run]) -> None:
    """ValueError unless the runs are seeds of one configuration, each seed once."""
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


def check_size(settings: Settings, runs: Sequence[Run], runner: EvalRunner) -> None:
    """ValueError if the evaluation of some run cannot fit into memory."""
    n_seeds = max(len(run.seeds) for run in runs)  # runs are evaluated one after another
    if settings.robust:
        check_level_memory(runs[0].config.env, settings.n_levels, settings.episodes, n_seeds)
    else:
        check_task_memory(len(runner.names), settings.episodes, n_seeds)


def evaluate(settings: Settings, runs: Sequence[Run], runner: EvalRunner, console: Console) -> None:
    """Evaluates every run, writes a file for each, and prints tables of all runs together."""
    for run in runs:
        run.results.mkdir(exist_ok=True)  # before the work: if this failed after it, the results would be lost
    say_hardware(partial(console.print, highlight=False, markup=False, soft_wrap=True), 1, runs[0].config.model)
    # All runs have one configuration. So they share one measure, which is compiled once.
    measure = level_measure(settings, runs[0], runner, console) if settings.robust else task_measure(settings, runner)
    parts, files = [], []
    for run in runs:
        # Each file is written as soon as its run is measured: an error in a later run loses nothing of this one.
        _, scores, path = evaluated(settings, run, measure, console)
        parts.append(scores)
        files.append(path)
    print_tables(settings, pooled(parts), console)
    for path in files:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


def evaluated(settings: Settings, run: Run, measure: Measure, console: Console) -> tuple[int, Scores, Path]:
    """(update, scores, the file that has them) of the run's checkpoint."""
    run.results.mkdir(exist_ok=True)  # before the work: if this failed after it, the results would be lost
    update, params = restore(run, console)
    scores = measure(run, jax.tree.map(lambda x: x[:, settings.student], params))
    return update, scores, write_new(run.results, file_name(settings, update), csv_text(settings, update, scores))


def compare(settings: Settings, plans: Mapping[str, Plan], console: Console) -> None:
    """Puts the methods side by side. Runs that have not been evaluated so are evaluated first."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    out = Path(settings.out)
    out.parent.mkdir(parents=True, exist_ok=True)  # before the work, as in `evaluated`
    found = {run.folder.path: existing(settings, run, runner.names) for runs, runner in plans.values() for run in runs}
    missing = [path for path, one in found.items() if one is None]
    if missing:
        say_hardware(say, 1, next(iter(plans.values()))[0][0].config.model)
        say(f"{len(missing)} of {len(found)} runs have no such evaluation yet")
    updates = {}
    for runs, runner in plans.values():
        measure = task_measure(settings, runner)
        for run in runs:
            one = found[run.folder.path]
            if one is None:
                update, scores, path = evaluated(settings, run, measure, console)
                say(f"written: {path}")
            else:
                update, scores = one
            found[run.folder.path], updates[run.folder.path] = (update, scores), update
    methods = side_by_side({label: runs for label, (runs, _) in plans.items()}, found)
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} episodes on each"
    for table in tables(f"Solved rate on held-out tasks, {how}", methods, console.width):
        console.print(table)
    if len(set(updates.values())) > 1:
        say(f"note: the checkpoints are of different updates, {min(updates.values()):,} to {max(updates.values()):,}")
    if len({repr(to_dict(runs[0].config)["env"]) for runs, _ in plans.values()}) > 1:
        say("note: the methods have been trained in different environments")
    text = as_csv([row | protocol_columns(settings) for row in rows(methods)])
    say(f"written: {write_new(out.parent, out.stem, text)}")


def side_by_side(groups: Mapping[str, Sequence[Run]], found: Mapping[Path, Any]) -> list[Method]:
    """The methods with the scores of their runs, and the improvement of each over the first."""
    from minimax_lib.pictures.bootstrap import stratified_band
    from minimax_lib.pictures.held_out import improvement_probability

    methods: list[Method] = []
    for label, runs in groups.items():
        paths = [run.folder.path for run in runs]
        scores = pooled([found[path][1] for path in paths])
        improvement = None
        if methods:
            both = (scores["solved_rate"], methods[0].scores["solved_rate"])
            enough = min(map(len, both)) >= MIN_SEEDS
            band = stratified_band(both, improvement_probability) if enough else None
            interval = (float(band[0]), float(band[1])) if band else None
            improvement = Improvement(float(improvement_probability(*both)), interval)
        updates = tuple(found[path][0] for path in paths)
        methods.append(Method(label, tuple(map(str, paths)), updates, scores, improvement))
    return methods


def existing(settings: Settings, run: Run, tasks: Sequence[str]) -> tuple[int, Scores] | None:
    """(update, scores) of an evaluation of the run that was made as the settings ask; None if there is none."""
    update = max(saved_updates(run.folder.checkpoints), default=-1) if run.update is None else run.update
    how = {name: str(value) for name, value in ({"update": update} | protocol_columns(settings)).items()}
    for path in sorted(run.results.glob("*.csv")):
        columns, table = read_table(path)
        if "n_worst" in columns or not {"seed", "task", *MEASURES, *how} <= set(columns):
            continue
        cells = {(row["seed"], row["task"]): row for row in table if all(row[name] == how[name] for name in how)}
        wanted = [(str(seed), task) for seed in run.seeds for task in tasks]
        if not all(key in cells for key in wanted):
            continue
        shape = (len(run.seeds), len(tasks))
        try:
            measures = {name: np.array([float(cells[key][name]) for key in wanted]).reshape(shape) for name in MEASURES}
        except ValueError:
            continue  # somebody has changed the file
        if all(np.isfinite(values).all() for values in measures.values()):
            return update, Scores(tuple(tasks), run.seeds, measures)
    return None


def task_measure(settings: Settings, runner: EvalRunner) -> Measure:
    """The measure that plays the held-out tasks."""
    evaluate = jax.jit(mapped(runner.evaluate, axis_name=axes.SEED))

    def measure(run: Run, params: Any) -> Scores:
        keys = evaluation_keys(run.seeds, settings.seed)
        return task_scores(runner.names, run.seeds, evaluate(keys, params))

    return measure


def level_measure(settings: Settings, run: Run, runner: EvalRunner, console: Console) -> Measure:
    """The measure that plays random levels of the training distribution, the same ones for all runs."""
    # Any of the runs will do: runs that are pooled have the same environment.
    program = RobustRunner(run.config.env, runner.agent, settings.robust_protocol, runner.choose)
    if not program.knows_solvable:
        console.print("The environment does not report which levels can be solved: all of them are played.")

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
        note = levels_note(SHARES, settings.n_levels)
        if note:
            console.print(note)
        return
    console.print(task_table(f"Held-out tasks, {how} on each", scores))
    if len(scores.seeds) > 1:
        console.print(seed_table(scores))


def file_name(settings: Settings, update: int) -> str:
    """The name of a file of results, without its number and ending."""
    what = "robust" if settings.robust else settings.tasks[0] if len(settings.tasks) == 1 else "tasks"
    options = [*([settings.protocol] if settings.protocol else []), *(["greedy"] if settings.greedy else [])]
    options += [f"student{settings.student}"] if settings.student else []
    return "-".join([f"update{update}", what, *options])


def csv_text(settings: Settings, update: int, scores: Scores) -> str:
    """A line for each seed and task: its scores, and how they were measured."""
    how = {"update": update} | protocol_columns(settings)
    return as_csv([row | how for row in scores.rows()])


def protocol_columns(settings: Settings) -> dict[str, Any]:
    """How the scores are measured."""
    return {
        "n_episodes": settings.episodes,
        "actions": "greedy" if settings.greedy else "sampled",
        "protocol": settings.protocol or "",
        "evaluation_seed": settings.seed,
        "student": settings.student,
    } | ({"n_levels": settings.n_levels} if settings.robust else {})


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The text of a table with the columns of the first row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_new(folder: Path, name: str, text: str) -> Path:
    """The file in `folder` that holds `text`: `name`.csv, or `name`-2.csv and so on if that name is taken.

    No file is ever overwritten.
    """
    for number in itertools.count(1):
        path = folder / (f"{name}.csv" if number == 1 else f"{name}-{number}.csv")
        if not path.exists():
            # Mode "x" fails if another process has made the file in the meantime.
            with path.open("x", encoding="utf-8", newline="") as file:
                file.write(text)
            return path
        # The same evaluation gives the same text. Repeating it makes no second file.
        if path.read_text(encoding="utf-8") == text:
            return path
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())

"""The command `minimax-evaluate` (also `evaluate.py`): evaluates trained runs on held-out tasks or against others."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.progress import track

from minimax_lib import axes
from minimax_lib.commands.score_study import student_of, study
from minimax_lib.commands.status import plain_warnings, refuse, without_sweeps
from minimax_lib.config import to_dict
from minimax_lib.config.evaluate import EvaluateSettings, parse
from minimax_lib.config.shipped import located_run, shipped_agents
from minimax_lib.config.train import import_plugins
from minimax_lib.config.tree import flat
from minimax_lib.envs.levels import task_name
from minimax_lib.evaluation.agent_tables import agent_tables
from minimax_lib.evaluation.comparison import Improvement, MethodRuns, rows, tables
from minimax_lib.evaluation.held_out import EvalRunner, evaluation_keys
from minimax_lib.evaluation.robustness import RobustEvaluator, check_one_agent, level_key
from minimax_lib.evaluation.statistics import MIN_SEEDS, SHARES
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
from minimax_lib.experiment.gathering import gather
from minimax_lib.experiment.hardware import say_hardware
from minimax_lib.experiment.meeting_plan import planned
from minimax_lib.experiment.meetings import meet
from minimax_lib.jax_settings import check_jax
from minimax_lib.leaving import interrupted
from minimax_lib.runners.build import make_agent
from minimax_lib.runners.memory import check_level_memory, check_task_memory
from minimax_lib.store.evaluations import (
    as_csv,
    existing,
    keep_evaluation,
    protocol_columns,
    share_names,
    write_new,
)
from minimax_lib.store.folder import check_is_run, differences, of_method
from minimax_lib.store.saved import Run, env_steps_of, find_run, restore
from minimax_lib.trees import mapped

Groups = Mapping[str, Sequence[Run]]  # by label: runs that are pooled as seeds
Runners = Mapping[Path, EvalRunner]  # by run: what evaluates one of its seeds
Measure = Callable[[Run, Any], Scores]  # the scores of a run, from the parameters [S, ...] of one student of each seed
MOST_NAMED = 5  # settings in a note


@plain_warnings()
def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. A request that cannot be met is refused with one line on stderr and status 2.

    Everything is checked before anything is compiled or written.
    """
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        import_plugins(settings.plugins or ())
        check_jax()
        groups = methods_of(settings) if settings.compares else {"": found_runs(settings)}
        runs = [run for members in groups.values() for run in members]
        if settings.opponents:
            for run in runs:
                check_student(run, settings.student)
            meeting = planned(settings, groups)
        elif settings.scores:
            for run in runs:
                check_student(run, settings.student)
            student = student_of(settings, runs)
        else:
            runners = runners_of(settings, runs)
            check_comparable(settings, runs, runners)
    except (ValueError, OSError) as error:
        return refuse(error, argv)
    # All requests have been checked. From here on, an error means that the work has failed: status 1.
    from minimax_lib.store.checkpoint import CheckpointError  # slow to import, so after the checks

    try:
        keep_compiled_programs(settings.compilation_cache)
        if settings.opponents:
            (gather if meeting.shares_worlds else meet)(meeting, Console())
        elif settings.scores:
            study(settings, runs, student, Console())
        elif settings.compares:
            compare(settings, groups, runners, Console())
        else:
            evaluate(settings, runs, runners[runs[0].folder.path], Console())
    except (CheckpointError, OSError, *XLA_ERRORS) as error:
        print(f"error: {evaluation_failure(error, settings.episodes)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        return interrupted(error)
    return 0


def found_runs(settings: EvaluateSettings) -> list[Run]:
    """The runs of --run; ValueError unless they can be pooled."""
    runs = [find_run(Path(folder), settings.checkpoint, settings.plugins is not None) for folder in settings.run]
    check_poolable(runs)
    return runs


def methods_of(settings: EvaluateSettings) -> dict[str, list[Run]]:
    """The runs of --compare and --label by the names of their methods, as `minimax-plot` groups and names runs."""
    from minimax_lib.pictures.runs import RunTables, find_groups

    found: dict[Path, Run] = {}

    def read(path: Path) -> RunTables:
        check_is_run(path, shipped_agents())
        found[path] = find_run(path, settings.checkpoint, settings.plugins is not None)
        return RunTables(path, flat(to_dict(found[path].config)))

    folders = [located_run(folder) for folder in without_sweeps(settings.compare)]
    groups = find_groups(folders, settings.patterns, settings.by, read)
    return {group.label: [found[run.path] for run in group.runs] for group in groups}


def runners_of(settings: EvaluateSettings, runs: Sequence[Run]) -> dict[Path, EvalRunner]:
    """What evaluates a seed of each run; ValueError where that is impossible.

    Runs with one environment and network share one, so that it is compiled once.
    """
    found: dict[Path, EvalRunner] = {}
    shared: dict[str, EvalRunner] = {}
    for run in runs:
        check_student(run, settings.student)
        if settings.robust:
            check_one_agent(run.config.env)
        # How an agent learns has no part in an evaluation.
        tree = to_dict(run.config)
        suite = settings.suite_of(run.config)
        kind = repr((tree["env"], tree["model"], suite.tasks))
        if kind not in shared:
            shared[kind] = suite.build(run.config.env, make_agent(run.config).agent)
        found[run.folder.path] = shared[kind]
        check_size(settings, run, shared[kind])
    return found


def check_comparable(settings: EvaluateSettings, runs: Sequence[Run], runners: Runners) -> None:
    """ValueError unless all runs play the same held-out tasks, or the same levels."""
    first = runs[0]
    for run in runs[1:]:
        both = f"{first.folder.path} and {run.folder.path}"
        if settings.robust and run.config.env != first.config.env:
            name, (one, other) = next(iter(differences(env_of(first), env_of(run)).items()))
            raise ValueError(
                f"{both} have other levels, {name} is {one} and {other}: --robust is for runs of one environment"
            )
        names, others = runners[first.folder.path].names, runners[run.folder.path].names
        if names != others and not settings.robust:
            raise ValueError(
                f"{both} have other held-out tasks of these names, {', '.join(names)} and {', '.join(others)}: "
                "name some that both have with --tasks"
            )


def env_of(run: Run) -> dict[str, Any]:
    """The settings of the run's environment, by their names in the configuration."""
    return {"env": to_dict(run.config)["env"]}


def check_poolable(runs: Sequence[Run]) -> None:
    """ValueError unless the runs are seeds of one configuration, each seed once."""
    folder_of: dict[int, Path] = {}
    for run in runs:
        path = run.folder.path
        if different := unlike(runs[0], run):
            name, (one, other) = next(iter(different.items()))
            raise ValueError(
                f"{runs[0].folder.path} and {path} are not runs of one configuration: {name} is {one} and {other}"
            )
        for seed in run.seeds:
            if seed in folder_of:
                raise ValueError(f"seed {seed} is in {folder_of[seed]} and in {path}: it can be pooled only once")
            folder_of[seed] = path


def unlike(one: Run, other: Run) -> dict[str, tuple[Any, Any]]:
    """The settings that make two runs those of two methods: (the value in one, the value in the other)."""
    return differences(*(of_method(flat(to_dict(run.config))) for run in (one, other)))


def check_student(run: Run, student: int) -> None:
    """ValueError if the run has no such student."""
    n = run.config.runner.n_students
    if student >= n:
        raise ValueError(f"student is {student}: {run.name} has {n}, counted from 0")


def check_size(settings: EvaluateSettings, run: Run, runner: EvalRunner) -> None:
    """ValueError if the evaluation of the run cannot fit into memory. Runs are evaluated one after another."""
    if settings.robust:
        check_level_memory(run.config.env, settings.n_levels, settings.episodes, len(run.seeds))
    else:
        check_task_memory(len(runner.names), settings.episodes, len(run.seeds))


def evaluate(settings: EvaluateSettings, runs: Sequence[Run], runner: EvalRunner, console: Console) -> None:
    """Evaluates every run, writes a file for each, and prints tables of all runs together."""
    for run in runs:
        run.results.mkdir(
            parents=True, exist_ok=True
        )  # before the work: if this failed after it, the results would be lost
    say_hardware(partial(console.print, highlight=False, markup=False, soft_wrap=True), 1, runs[0].config.model)
    # All runs have one configuration. So they share one measure, which is compiled once.
    measure = measure_of(settings, runs[0], runner, console)
    parts, files, updates = [], [], []
    for run in runs:
        # Each file is written as soon as its run is measured: an error in a later run loses nothing of this one.
        update, scores, path = evaluated(settings, run, measure, console)
        parts.append(scores)
        files.append(path)
        updates.append(update)
    print_tables(settings, pooled(parts), runner.held_out.env, console)
    for note in different_updates(updates):
        console.print(f"note: {note}", highlight=False, soft_wrap=True)
    for path in files:
        console.print(f"written: {path}", highlight=False, soft_wrap=True)


def evaluated(settings: EvaluateSettings, run: Run, measure: Measure, console: Console) -> tuple[int, Scores, Path]:
    """(update, scores, the file that has them) of the run's checkpoint."""
    run.results.mkdir(parents=True, exist_ok=True)  # before the work, as in `evaluate`
    update, params = restore(run, console)
    scores = measure(run, jax.tree.map(lambda x: x[:, settings.student], params))
    return update, scores, keep_evaluation(settings, run, update, scores)


def compare(settings: EvaluateSettings, groups: Groups, runners: Runners, console: Console) -> None:
    """Puts the methods side by side. Runs that have not been evaluated so are evaluated first."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    out = Path(settings.out)
    out.parent.mkdir(parents=True, exist_ok=True)  # before the work, as in `evaluated`
    for label, runs in groups.items():
        n_seeds = sum(len(run.seeds) for run in runs)
        folders = ", ".join(run.name for run in runs)
        say(f"{label}: {n_seeds} seed{'s' if n_seeds > 1 else ''} ({folders})")
    found = with_scores([run for runs in groups.values() for run in runs], settings, runners, console)
    methods = side_by_side(groups, found)
    how = f"{settings.episodes} {'greedy' if settings.greedy else 'sampled'} episodes on each"
    what = f"{settings.n_levels:,} random levels" if settings.robust else "held-out tasks"
    for table in tables(f"Solved rate on {what}, {how}", methods, console.width):
        console.print(table)
    for note in notes(settings, groups, [update for update, _ in found.values()]):
        say(f"note: {note}")
    text = as_csv([row | protocol_columns(settings) for row in rows(methods)])
    say(f"written: {write_new(out.parent, out.stem, text)}")


def with_scores(
    runs: Sequence[Run], settings: EvaluateSettings, runners: Runners, console: Console
) -> dict[Path, tuple[int, Scores]]:
    """(update, scores) of each run: from the evaluation in its folder, or from one that is made now."""
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    found, missing = {}, []
    for run in runs:
        path = run.folder.path
        known = existing(settings, run, share_names(settings) if settings.robust else runners[path].names)
        if known:
            found[path] = known
        else:
            missing.append(run)
    if missing:
        say_hardware(say, 1, missing[0].config.model)
        say(f"{len(missing)} of {len(runs)} runs have no such evaluation yet")
    measures: dict[int, Measure] = {}
    for run in missing:
        runner = runners[run.folder.path]
        if id(runner) not in measures:
            measures[id(runner)] = measure_of(settings, run, runner, console)
        update, scores, path = evaluated(settings, run, measures[id(runner)], console)
        found[run.folder.path] = update, scores
        say(f"written: {path}")
    return found


def notes(settings: EvaluateSettings, groups: Groups, updates: Iterable[int]) -> list[str]:
    """What a reader of the comparison must know of the runs."""
    found = []
    for label, runs in groups.items():
        names = list(dict.fromkeys(name for run in runs[1:] for name in unlike(runs[0], run)))
        if names:
            more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            found.append(f"the runs of {label} differ in {', '.join(names[:MOST_NAMED])}{more}")
    found += different_updates(list(updates))
    if len({repr(env_of(run)) for runs in groups.values() for run in runs}) > 1:
        found.append("the runs have been trained in different environments")
    if settings.robust and (small := levels_note(SHARES, settings.n_levels)):
        found.append(small)
    return found


def different_updates(updates: Sequence[int]) -> list[str]:
    """A note where the checkpoints of runs are of different updates."""
    first, last = min(updates), max(updates)
    return [f"the checkpoints are of different updates, {first:,} to {last:,}"] if first < last else []


def side_by_side(groups: Groups, found: Mapping[Path, tuple[int, Scores]]) -> list[MethodRuns]:
    """The methods with the scores of their runs, and on held-out tasks the improvement of each over the first."""
    from minimax_lib.pictures.bootstrap import seeds_band
    from minimax_lib.pictures.held_out import improvement_probability

    methods: list[MethodRuns] = []
    for label, runs in groups.items():
        paths = [run.folder.path for run in runs]
        scores = pooled([found[path][1] for path in paths])
        improvement = None
        # Shares of the levels overlap: a mean over them says nothing.
        if methods and not scores.n_worst:
            both = (scores["solved_rate"], methods[0].scores["solved_rate"])
            enough = min(map(len, both)) >= MIN_SEEDS
            band = seeds_band(both, improvement_probability) if enough else None
            interval = (float(band[0]), float(band[1])) if band else None
            improvement = Improvement(float(improvement_probability(*both)), interval)
        updates = tuple(found[path][0] for path in paths)
        steps = [env_steps_of(run, update) for run, update in zip(runs, updates, strict=True)]
        taken = np.average(steps, weights=[len(run.seeds) for run in runs])
        methods.append(MethodRuns(label, tuple(run.name for run in runs), updates, scores, improvement, float(taken)))
    return methods


def measure_of(settings: EvaluateSettings, run: Run, runner: EvalRunner, console: Console) -> Measure:
    """What measures `run`, and all others that share its runner."""
    return level_measure(settings, run, runner, console) if settings.robust else task_measure(settings, runner)


def task_measure(settings: EvaluateSettings, runner: EvalRunner) -> Measure:
    """The measure that plays the held-out tasks."""
    evaluate = jax.jit(mapped(runner.evaluate, axis_name=axes.SEED))

    def measure(run: Run, params: Any) -> Scores:
        keys = evaluation_keys(run.seeds, settings.seed)
        name_of = partial(task_name, runner.held_out.env)
        return task_scores(runner.names, run.seeds, evaluate(keys, params), name_of)

    return measure


def level_measure(settings: EvaluateSettings, run: Run, runner: EvalRunner, console: Console) -> Measure:
    """The measure that plays random levels of the training distribution, the same ones for all runs."""
    # Any of the runs will do: runs that are pooled have the same environment.
    program = RobustEvaluator(run.config.env, runner.agent, settings.robust_protocol, runner.choose)
    if not program.knows_solvable:
        console.print("The environment does not report which levels can be solved: all of them are played.")

    def measure(run: Run, params: Any) -> Scores:
        show = partial(track, description=f"{settings.n_levels:,} levels, twice", console=console, transient=True)
        keys = evaluation_keys(run.seeds, settings.seed)
        return level_scores(SHARES, run.seeds, program.evaluate(level_key(settings.seed), keys, params, show))

    return measure


def print_tables(settings: EvaluateSettings, scores: Scores, env: Any, console: Console) -> None:
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
    for part in agent_tables(scores.of_agents, env) if scores.of_agents else ():
        console.print(part)


if __name__ == "__main__":
    from minimax_lib.commands import launch

    sys.exit(launch.evaluate())

"""The scores of runs on held-out tasks: which evaluation they are from, and what of it can be compared."""

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import numpy as np

from minimax_lib.envs.task_names import is_of_training, without_agents_tasks
from minimax_lib.pictures.runs import Cells, Group, RunTables, numbers
from minimax_lib.pictures.style import NotDrawn
from minimax_lib.pictures.words import left_out
from minimax_lib.registry import unknown_name

EVAL_CSV = "eval.csv"
AUTO = "auto"
HOW = ("n_episodes", "actions", "protocol", "evaluation_seed", "student", "n_levels")  # how an evaluation was made
LEVELS = "n_worst"  # a column of evaluations on random levels, whose "tasks" are shares of them
WORDS = {"solved_rate": "solved rate"}


@dataclasses.dataclass(frozen=True)
class GroupScores:
    """Scores of a group: f64[S, M], all finite."""

    label: str
    place: int  # of the group among all groups: its colour
    tasks: tuple[str, ...]
    values: np.ndarray

    @property
    def n_seeds(self) -> int:
        return len(self.values)


@dataclasses.dataclass(frozen=True)
class ComparedScores:
    """The scores of all groups on the same held-out tasks, and where they are from."""

    groups: tuple[GroupScores, ...]
    measure: str
    notes: tuple[str, ...] = ()
    are_levels: bool = False  # the tasks are the worst shares of random levels

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.groups[0].tasks

    @property
    def name(self) -> str:
        """The measure, for an axis."""
        return WORDS.get(self.measure, self.measure)


# ---------------------------------------------------------------------------------------------------- which evaluation


@dataclasses.dataclass(frozen=True)
class ScoreTable:
    """One table of scores of a run: an evaluation by minimax-evaluate, or the last one of the training."""

    run: RunTables
    name: str
    update: int
    how: tuple[str, ...]  # cells of HOW; what a version did not write is empty
    seeds: Mapping[int, Cells]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(task for cells in self.seeds.values() for task in cells["task"]))

    @property
    def held_out(self) -> tuple[str, ...]:
        """The tasks without those that agents have: a mean over all of these can be taken."""
        return tuple(without_agents_tasks(self.tasks))

    @property
    def are_levels(self) -> bool:
        return any(LEVELS in cells for cells in self.seeds.values())

    @property
    def episodes(self) -> str:
        """How many episodes it is of, in words, and by whose rules; empty where it is not known."""
        known = dict(zip(HOW, self.how, strict=False))
        n, actions, protocol = (known.get(name, "") for name in ("n_episodes", "actions", "protocol"))
        rules = f" by the rules of {protocol}" if protocol else ""
        return f"{n} {actions} episodes a {'level' if self.are_levels else 'task'}{rules}" if n and actions else ""


def evaluations_of(run: RunTables) -> list[ScoreTable]:
    """The files of minimax-evaluate in the run's folder that hold an evaluation."""
    found = []
    for name, seeds in run.evaluations.items():
        for cells in seeds.values():
            updates = numbers(cells.get("update", ()))
            if "task" in cells and len(updates) and np.isfinite(updates).all():
                how = tuple(cells[column][0] if column in cells else "" for column in HOW)
                found.append(ScoreTable(run, name, int(updates[0]), how, seeds))
            break
    return found


def last_of_training(run: RunTables) -> ScoreTable | None:
    """The last evaluation in eval.csv."""
    seeds, last = {}, 0
    for seed, cells in run.evals.items():
        updates = numbers(cells.get("update", ()))
        if "task" not in cells or not len(updates):
            return None
        last = int(updates.max())
        rows = np.flatnonzero(updates == last)
        seeds[seed] = {name: [column[i] for i in rows] for name, column in cells.items()}
    n, greedy = run.settings.get("eval.n_episodes", ""), run.settings.get("eval.greedy")
    actions = "" if greedy is None else "greedy" if greedy else "sampled"
    how = str(n), actions, str(run.settings.get("eval.protocol") or "")
    return ScoreTable(run, EVAL_CSV, last, how, seeds) if seeds else None


def check_source(runs: Sequence[RunTables], source: str) -> None:
    """ValueError, with the nearest name, if no run has an evaluation like `source`."""
    names = dict.fromkeys(one.name for run in runs for one in evaluations_of(run))
    if source not in (AUTO, EVAL_CSV) and not any(fnmatch(name, source.removesuffix(".csv")) for name in names):
        raise unknown_name("evaluation", source, [AUTO, EVAL_CSV, *names])


def choose_evaluations(runs: Sequence[RunTables], source: str = AUTO) -> tuple[list[ScoreTable], str]:
    """(an evaluation of each run, all made in the same way; which one it is). NotDrawn where some run has none."""
    if source == AUTO:
        common = _in_common(runs)
        if common:
            return common, f"scores are from evaluations/{common[0].name}.csv{_of_episodes(common)}"
        chosen, more = _last_rows(runs), ""
        if any(evaluations_of(run) for run in runs):
            more = ": no evaluation of minimax-evaluate is common to all runs"
        return chosen, f"scores are from the last rows of eval.csv{_of_episodes(chosen)}{more}"
    if source == EVAL_CSV:
        chosen = _last_rows(runs)
        return chosen, f"scores are from the last rows of eval.csv{_of_episodes(chosen)}"
    chosen = [_named(run, source.removesuffix(".csv")) for run in runs]
    if len({one.how for one in chosen}) > 1:
        raise NotDrawn(f"the evaluations {source!r} of the runs were made in different ways: see their columns")
    return chosen, f"scores are from evaluations/{chosen[0].name}.csv{_of_episodes(chosen)}"


def _of_episodes(chosen: Sequence[ScoreTable]) -> str:
    kinds = list(dict.fromkeys(one.episodes for one in chosen if one.episodes))
    return f" ({', and others of '.join(kinds)})" if kinds else ""


def _last_rows(runs: Sequence[RunTables]) -> list[ScoreTable]:
    found = []
    for run in runs:
        last = last_of_training(run)
        if last is None:
            raise NotDrawn(f"{run.path} has no {EVAL_CSV} (minimax-evaluate --run {run.path} makes an evaluation)")
        found.append(last)
    return found


def _in_common(runs: Sequence[RunTables]) -> list[ScoreTable]:
    """The evaluation of each run that was made like one of every other run.

    Of several, the one with the most tasks, then with the most episodes, then of the first student.
    """
    found: list[dict[Any, ScoreTable]] = []
    for run in runs:
        newest: dict[Any, ScoreTable] = {}
        for one in evaluations_of(run):
            key = (one.how, frozenset(one.held_out))
            if not one.are_levels and (key not in newest or newest[key].update < one.update):
                newest[key] = one
        found.append(newest)
    common = set(found[0]).intersection(*found[1:])
    if not common:
        return []

    def worth(key: Any) -> tuple[Any, ...]:
        how, tasks = key
        episodes, student = np.nan_to_num(numbers([how[HOW.index(name)] for name in ("n_episodes", "student")]))
        return sum(not is_of_training(task) for task in tasks), episodes, -student, *how, *sorted(tasks)

    best = max(common, key=worth)
    return [each[best] for each in found]


def _named(run: RunTables, pattern: str) -> ScoreTable:
    """The newest of the run's evaluations whose file has a name like `pattern`."""
    fitting = [one for one in evaluations_of(run) if fnmatch(one.name, pattern)]
    if not fitting:
        names = ", ".join(one.name for one in evaluations_of(run)) or "none"
        raise NotDrawn(f"{run.path} has no evaluation like {pattern!r}: it has {names}")
    newest = [one for one in fitting if one.update == max(each.update for each in fitting)]
    if len(newest) > 1:
        raise NotDrawn(f"{run.path} has {len(newest)} evaluations like {pattern!r}: {newest[0].name}, {newest[1].name}")
    return newest[0]


def evaluated(
    groups: Sequence[Group], measure: str = "solved_rate", tasks: Sequence[str] = (), source: str = AUTO
) -> ComparedScores:
    """The scores of all groups. NotDrawn in one line where they have none that can be compared.

    `tasks` are those to look at: if it is empty, all that every run has, but for those of training.
    """
    chosen, where = choose_evaluations([run for group in groups for run in group.runs], source)
    notes = [where]
    updates = sorted({one.update for one in chosen})
    if len(updates) > 1:
        notes.append(f"the evaluations are of different updates: {updates[0]:,} to {updates[-1]:,}")
    known = list(dict.fromkeys(task for one in chosen for task in one.tasks))
    for task in tasks:
        if task not in known:
            raise unknown_name("held-out task", task, known)
    wanted = list(tasks) or [task for task in without_agents_tasks(known) if not is_of_training(task)]
    common = [task for task in wanted if all(task in one.tasks for one in chosen)]
    if not common:
        raise NotDrawn("the runs have no held-out task in common")
    notes += left_out(len(common), len(wanted))
    found, of_run = [], {one.run.path: one for one in chosen}
    for place, group in enumerate(groups):
        rows = [row for run in group.runs for row in _values(of_run[run.path], common, measure)]
        found.append(GroupScores(group.label, place, tuple(common), np.array(rows)))
    return ComparedScores(tuple(found), measure, tuple(notes), any(one.are_levels for one in chosen))


def _values(one: ScoreTable, tasks: Sequence[str], measure: str) -> list[list[float]]:
    """The scores of each seed on `tasks`."""
    rows = []
    for seed, cells in one.seeds.items():
        if measure not in cells:
            columns = [name for name in cells if name not in ("seed", "task", "update", LEVELS, *HOW)]
            raise unknown_name("score", measure, columns)
        of_task = dict(zip(cells["task"], numbers(cells[measure]).tolist(), strict=True))
        row = [of_task.get(task, np.nan) for task in tasks]
        if not np.isfinite(row).all():
            task = tasks[int(np.argmin(np.isfinite(row)))]
            raise NotDrawn(f"{one.run.path} has no {measure} of seed {seed} on {task} ({one.name})")
        rows.append(row)
    return rows

"""Seeds of runs as lines over the training, from the tables of runs; and the seeds of a group on one axis."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from minimax_lib.envs.task_names import is_of_training
from minimax_lib.pictures import style
from minimax_lib.pictures.bootstrap import kind_of_band, mean_band
from minimax_lib.pictures.runs import KEYS, Cells, Group, RunTables, numbers
from minimax_lib.pictures.scores import last_of_training
from minimax_lib.pictures.style import NotDrawn
from minimax_lib.pictures.words import HELD_OUT, left_out
from minimax_lib.registry import unknown_name

X = Literal["updates", "env_steps", "seconds"]
COLUMN_OF = {"updates": "update", "env_steps": "env_steps", "seconds": "seconds"}
OUTCOMES = ("return", "solved_rate", "unfinished")  # columns of level/SOURCE/ that are not properties of a level
MUTATIONS = "n_mutations"
OF_MUTATIONS = "buffer/weighted_n_mutations"  # the lineage of what would be replayed


@dataclasses.dataclass(frozen=True)
class Line:
    """One seed: y at each x, all finite, x rising."""

    seed: int
    x: np.ndarray  # f64[T]
    y: np.ndarray  # f64[T]


@dataclasses.dataclass(frozen=True)
class Curve:
    """The seeds of a group together."""

    label: str
    place: int  # of its group among all groups: its colour
    x: np.ndarray  # f64[T]
    values: np.ndarray  # f64[S, T]
    note: str = ""  # what had to be done to bring the seeds together

    @property
    def n_seeds(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> np.ndarray:
        """f64[T]."""
        return self.values.mean(axis=0)

    @functools.cached_property
    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), f64[T] each, as `bootstrap.mean_band`."""
        return mean_band(self.values)

    def rows(self, x: str, **more: Any) -> list[dict[str, Any]]:
        """Its numbers, a row for each x."""
        low, high = self.band
        kind = kind_of_band(self.n_seeds)
        same = {"label": self.label, "n_seeds": self.n_seeds, "band": kind} | more
        points = zip(self.x.tolist(), self.mean.tolist(), low.tolist(), high.tolist(), strict=True)
        return [same | {x: at, "mean": mean, "low": bottom, "high": top} for at, mean, bottom, top in points]


# ------------------------------------------------------------------------------------------------------- which metrics


def metric_names(groups: Sequence[Group]) -> list[str]:
    """Every metric that some run has: columns of metrics.csv, and those of eval.csv as `held_out/...`."""
    names: dict[str, None] = {}
    for run in _runs(groups):
        for cells in run.metrics.values():
            names |= dict.fromkeys(name for name in cells if name not in KEYS)
        for cells in run.evals.values():
            measures = [name for name in cells if name not in (*KEYS, "task")]
            names |= dict.fromkeys(HELD_OUT + name for name in measures)
            tasks = dict.fromkeys(cells.get("task", ()))
            names |= dict.fromkeys(f"{HELD_OUT}{task}/{name}" for task in tasks for name in measures)
    return list(names)


def _runs(groups: Sequence[Group]) -> list[RunTables]:
    return [run for group in groups for run in group.runs]


def check_metric(groups: Sequence[Group], metric: str) -> None:
    """ValueError, with the nearest name, if no run has the metric."""
    known = metric_names(groups)
    if metric not in known:
        raise unknown_name("metric", metric, known)


def check_tasks(groups: Sequence[Group], tasks: Sequence[str]) -> None:
    """ValueError, with the nearest name, if no run was evaluated on one of `tasks`."""
    tables = [table for run in _runs(groups) for table in (run.evals, *run.evaluations.values())]
    known = dict.fromkeys(task for table in tables for cells in table.values() for task in cells.get("task", ()))
    for task in tasks:
        if task not in known:
            raise unknown_name("held-out task", task, known)


def common_tasks(groups: Sequence[Group], tasks: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """(the held-out tasks that every run is evaluated on in training, a note if they are not all); of `tasks` if given.

    A mean over them can be compared. A mean over each run's own cannot. NotDrawn where there is none. Runs without
    evaluations do not count.
    """
    each = [list(dict.fromkeys(cells.get("task", ()))) for run in _runs(groups) for cells in run.evals.values()]
    known = list(dict.fromkeys(task for own in each for task in own))
    wanted = [task for task in known if (task in tasks if tasks else not is_of_training(task))]
    common = [task for task in wanted if all(task in own for own in each)]
    if wanted and not common:
        raise NotDrawn("the runs have no held-out task in common")
    return common, left_out(len(common), len(wanted))


def level_metrics(groups: Sequence[Group]) -> list[str]:
    """The properties of levels that some run has measured, and `n_mutations` where levels are mutated."""
    found: dict[str, None] = {}
    for name in metric_names(groups):
        parts = name.split("/")
        if parts[0] == "level" and len(parts) == 3 and parts[2] not in OUTCOMES:
            found[parts[2]] = None
    mutating = any(name.startswith("level/mutation/") for name in metric_names(groups))
    return [*found, *([MUTATIONS] if mutating else [])]


# --------------------------------------------------------------------------------------------------------------- lines


def training_lines(run: RunTables, metric: str, x: X, smooth: int = 1) -> list[Line]:
    """The column `metric` of metrics.csv of each seed that has numbers in it."""
    lines = []
    for seed, cells in run.metrics.items():
        if metric in cells and COLUMN_OF[x] in cells:
            at, values = numbers(cells[COLUMN_OF[x]]), numbers(cells[metric])
            lines.append(_line(seed, at, moving_mean(values, smooth)))
    return [line for line in lines if len(line.x)]


def held_out_lines(run: RunTables, metric: str, x: X, tasks: Sequence[str]) -> list[Line]:
    """`held_out/COLUMN` (mean over `tasks`) or `held_out/TASK/COLUMN` of each seed that has numbers in eval.csv."""
    lines = []
    for seed, cells in run.evals.items():
        known = dict.fromkeys(cells.get("task", ()))
        task, column = task_and_column(metric, known)
        chosen = [task] if task else [name for name in known if name in tasks]
        if column not in cells or not chosen:
            continue
        updates, values = _means_over_tasks(cells, chosen, column)
        lines.append(_line(seed, _placed(updates, run.metrics.get(seed, {}), x), values))
    return [line for line in lines if len(line.x)]


def task_and_column(metric: str, known: Iterable[str]) -> tuple[str, str]:
    """The parts of `held_out/TASK/COLUMN`, or ('', COLUMN) where it begins with none of the `known` tasks.

    Tasks and columns may have slashes, as `mazes/a.txt` and `facts/lifetime`.
    """
    rest = metric.removeprefix(HELD_OUT)
    task = max((name for name in known if rest.startswith(f"{name}/")), key=len, default="")
    return task, rest.removeprefix(f"{task}/") if task else rest


def _means_over_tasks(cells: Cells, tasks: Sequence[str], column: str) -> tuple[np.ndarray, np.ndarray]:
    """(updates, means over `tasks`; NaN where a task is missing)."""
    of_update: dict[float, dict[str, float]] = {}
    for update, task, value in zip(numbers(cells["update"]), cells["task"], numbers(cells[column]), strict=True):
        of_update.setdefault(float(update), {})[task] = float(value)
    means = [np.mean([found.get(task, math.nan) for task in tasks]) for found in of_update.values()]
    return np.array(list(of_update)), np.array(means)


def _placed(updates: np.ndarray, metrics: Cells, x: X) -> np.ndarray:
    """Where on the axis `x` evaluations stand. The untrained agent has seen nothing; NaN where it is not known."""
    if x == "updates":
        return updates
    if COLUMN_OF[x] not in metrics:
        return np.full(len(updates), np.nan)
    known, at = numbers(metrics["update"]), numbers(metrics[COLUMN_OF[x]])
    return interpolated(updates, np.append(0.0, known), np.append(0.0, at))


def interpolated(x: np.ndarray, known: np.ndarray, values: np.ndarray) -> np.ndarray:
    """f64[T], the `values` at the points `known`, linear between them and NaN outside; `known` does not fall.

    Of values at the same point, the first counts. An interval that only scores levels ends at the update of the one
    before it, and an evaluation is made as soon as its update is reached.
    """
    points, first = np.unique(known, return_index=True)
    return np.interp(x, points, values[first], left=np.nan, right=np.nan)


def _line(seed: int, x: np.ndarray, y: np.ndarray) -> Line:
    usable = np.isfinite(x) & np.isfinite(y)
    order = np.argsort(x[usable], kind="stable")
    return Line(seed, x[usable][order], y[usable][order])


def moving_mean(values: np.ndarray, n: int) -> np.ndarray:
    """f64[T], each value's mean with its neighbours, `n` in all and fewer at the ends; NaN counts for nothing."""
    if n == 1:
        return values
    n = min(n, 2 * len(values))  # such a window holds all values wherever it stands; a larger one only takes memory
    known = np.isfinite(values)
    window = np.ones(n)
    total = np.convolve(np.where(known, values, 0.0), window)[(n - 1) // 2 :][: len(values)]
    count = np.convolve(known.astype(np.float64), window)[(n - 1) // 2 :][: len(values)]
    return np.where(known, total / np.maximum(count, 1.0), np.nan)


def trained_on_lines(run: RunTables, metric: str, x: X, smooth: int = 1) -> list[Line]:
    """The level metric `metric` of each seed, of the levels that students learnt from."""
    if metric == MUTATIONS:
        return training_lines(run, OF_MUTATIONS, x, smooth)
    lines = []
    for seed, cells in run.metrics.items():
        shares = shares_trained_on(run, cells)
        columns = {source: f"level/{source}/{metric}" for source in shares}
        if not shares or COLUMN_OF[x] not in cells or any(column not in cells for column in columns.values()):
            continue
        values = np.zeros(len(cells["update"]))
        for source, share in shares.items():
            # A source that gave no level in the interval has no value there, and no share either.
            values = values + np.where(share > 0, share * numbers(cells[columns[source]]), 0.0)
        total = np.sum(list(shares.values()), axis=0)
        values = np.where(total > 0, values / np.where(total > 0, total, 1.0), np.nan)
        lines.append(_line(seed, numbers(cells[COLUMN_OF[x]]), moving_mean(values, smooth)))
    return [line for line in lines if len(line.x)]


def shares_trained_on(run: RunTables, cells: Cells) -> dict[str, np.ndarray]:
    """The share of each source of levels in what students learnt from, f64[T]; empty where it is not known."""
    sources = {name.split("/")[1] for name in cells if name.startswith("level/") and name.count("/") == 2}
    one = np.ones(len(cells["update"]))
    if len(sources) == 1:
        return dict.fromkeys(sources, one)
    if run.settings.get("runner.name") == "sfl":
        return {"replay": 0.5 * one, "new": 0.5 * one}
    robust = run.settings.get("runner.robust")
    if robust is True and "replay" in sources:
        return {"replay": one}
    if robust is False and "replay_share" in cells:
        replayed = numbers(cells["replay_share"])
        # Every replayed batch is followed by one of its children, which are only scored.
        return {"replay": replayed, "new": np.maximum(1.0 - replayed * (2 if "mutation" in sources else 1), 0.0)}
    return {}  # a method of a plugin: which levels it learns from is not in its folder


def gap_lines(run: RunTables, measure: str, x: X, smooth: int, tasks: Sequence[str]) -> list[Line]:
    """Training minus held-out at each evaluation, of each seed that has both."""
    trained = {line.seed: line for line in training_lines(run, measure, x, smooth)}
    lines = []
    for line in held_out_lines(run, HELD_OUT + measure, x, tasks):
        if line.seed in trained:
            own = trained[line.seed]
            lines.append(_line(line.seed, line.x, interpolated(line.x, own.x, own.y) - line.y))
    return [line for line in lines if len(line.x)]


# --------------------------------------------------------------------------------------------------------------- pooled


def pooled(label: str, place: int, lines: Sequence[Line]) -> Curve:
    """The seeds `lines` on one axis.

    Seeds that were measured at the same x are taken as they are. Otherwise the seed with the fewest points gives the
    axis, the others are interpolated linearly, and the curve ends where the first of them does.
    """
    first = lines[0]
    if all(np.array_equal(line.x, first.x) for line in lines):
        return Curve(label, place, first.x, np.stack([line.y for line in lines]))
    start, end = max(line.x[0] for line in lines), min(line.x[-1] for line in lines)
    fewest = min(lines, key=lambda line: len(line.x)).x
    x = fewest[(fewest >= start) & (fewest <= end)]
    if not len(x):
        raise NotDrawn(f"{label}: its seeds have no part of the axis in common")
    last = max(line.x[-1] for line in lines)
    cut = f", and the curve ends at {style.short(end)} of {style.short(last)}" if last > end else ""
    note = f"{label}: its seeds were measured at different points; they are interpolated{cut}"
    return Curve(label, place, x, np.stack([np.interp(x, line.x, line.y) for line in lines]), note)


def curves_of(
    groups: Sequence[Group], lines_of: Callable[[RunTables], list[Line]], what: str
) -> tuple[list[Curve], list[str]]:
    """(a curve for each group that has lines, a note for each that has none); NotDrawn if no group has any."""
    curves, notes = [], []
    for place, group in enumerate(groups):
        lines = [line for run in group.runs for line in lines_of(run)]
        if not lines:
            notes.append(f"{group.label}: {what}")
            continue
        curves.append(pooled(group.label, place, lines))
        if len(lines) < group.n_seeds:
            notes.append(f"{group.label}: {len(lines)} of its {group.n_seeds} seeds have numbers")
    if not curves:
        raise NotDrawn(what)
    return curves, [*notes, *(curve.note for curve in curves if curve.note)]


def curves_of_metric(
    groups: Sequence[Group], metric: str, x: X, smooth: int = 1, tasks: Sequence[str] = ()
) -> tuple[list[Curve], list[str]]:
    """(a curve of a metric of each group that has it, notes); those of eval.csv are means over the common tasks."""
    if not metric.startswith(HELD_OUT):
        what = f"{metric} has no numbers in metrics.csv"
        return curves_of(groups, lambda run: training_lines(run, metric, x, smooth), what)
    column = metric.removeprefix(HELD_OUT)
    # A metric of one task is not a mean.
    known = {task for run in _runs(groups) for cells in run.evals.values() for task in cells.get("task", ())}
    common, notes = ([], []) if task_and_column(metric, known)[0] else common_tasks(groups, tasks)
    # The axis is that of the training, which metrics.csv alone knows.
    placed = "" if x == "updates" else f" (or metrics.csv does not say their {COLUMN_OF[x]})"
    what = f"{column} has no numbers in eval.csv{placed}"
    curves, more = curves_of(groups, lambda run: held_out_lines(run, metric, x, common), what)
    return curves, [*notes, *more, *evaluated_differently(_runs(groups))]


def evaluated_differently(runs: Sequence[RunTables]) -> list[str]:
    """A note where runs were not evaluated in the same way while they trained."""
    found = [last_of_training(run) for run in runs]
    kinds = list(dict.fromkeys(one.episodes for one in found if one and one.episodes))
    return [f"evaluations are of {', and others of '.join(kinds)}"] if len(kinds) > 1 else []

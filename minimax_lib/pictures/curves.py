"""Curves over training: learning, complexity of levels, the generalisation gap, and differences from a baseline.

Each function gives a `Picture`: its numbers as `rows`, and how they are drawn.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION
from minimax_lib.pictures import style
from minimax_lib.pictures.bootstrap import NONE, difference_band, kind_of_band, mean_band
from minimax_lib.pictures.runs import KEYS, Cells, Group, RunTables, numbers
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.registry import unknown_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X = Literal["updates", "env_steps", "seconds"]
COLUMN_OF = {"updates": "update", "env_steps": "env_steps", "seconds": "seconds"}
X_LABELS = {"updates": "updates", "env_steps": "environment steps of a seed", "seconds": "seconds"}
HELD_OUT = "held_out/"
OUTCOMES = ("return", "solved_rate", "unfinished")  # columns of level/SOURCE/ that are no property of a level
MUTATIONS = "n_mutations"
OF_MUTATIONS = "buffer/weighted_n_mutations"  # the lineage of what would be replayed
NAMES = {
    "return": "training return",
    "solved_rate": "solved rate, training levels",
    "held_out/return": "return, held-out tasks",
    "held_out/solved_rate": "solved rate, held-out tasks",
    "n_walls": "walls",
    "shortest_path": "shortest path (moves)",
    "solvable": "share of solvable levels",
    MUTATIONS: "mutations of the levels' lineage",
}


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


# ----------------------------------------------------------------------------------------------------- from the tables


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


def training_lines(run: RunTables, metric: str, x: X, smooth: int = 1) -> list[Line]:
    """The column `metric` of metrics.csv of each seed that has numbers in it."""
    lines = []
    for seed, cells in run.metrics.items():
        if metric in cells and COLUMN_OF[x] in cells:
            at, values = numbers(cells[COLUMN_OF[x]]), numbers(cells[metric])
            lines.append(_line(seed, at, moving_mean(values, smooth)))
    return [line for line in lines if len(line.x)]


def held_out_lines(run: RunTables, metric: str, x: X, tasks: Sequence[str] = ()) -> list[Line]:
    """`held_out/COLUMN` (mean over tasks) or `held_out/TASK/COLUMN` of eval.csv of each seed that has numbers in it."""
    lines = []
    for seed, cells in run.evals.items():
        known = dict.fromkeys(cells.get("task", ()))
        task, _, column = metric.removeprefix(HELD_OUT).partition("/")
        if task in known and column in cells:
            chosen = [task]
        else:
            column = metric.removeprefix(HELD_OUT)
            chosen = [name for name in known if (name in tasks if tasks else name != TRAINING_DISTRIBUTION)]
        if column not in cells or not chosen:
            continue
        updates, values = _means_over_tasks(cells, chosen, column)
        lines.append(_line(seed, _placed(updates, run.metrics.get(seed, {}), x), values))
    return [line for line in lines if len(line.x)]


def _means_over_tasks(cells: Cells, tasks: Sequence[str], column: str) -> tuple[np.ndarray, np.ndarray]:
    """(updates, means over `tasks`; NaN where a task is missing)."""
    of_update: dict[float, dict[str, float]] = {}
    for update, task, value in zip(numbers(cells["update"]), cells["task"], numbers(cells[column]), strict=True):
        of_update.setdefault(float(update), {})[task] = float(value)
    means = [np.mean([found.get(task, math.nan) for task in tasks]) for found in of_update.values()]
    return np.array(list(of_update)), np.array(means)


def _placed(updates: np.ndarray, metrics: Cells, x: X) -> np.ndarray:
    """Where on the axis `x` evaluations stand. The untrained agent has seen nothing; NaN where nobody knows."""
    if x == "updates":
        return updates
    if COLUMN_OF[x] not in metrics:
        return np.full(len(updates), np.nan)
    known, at = numbers(metrics["update"]), numbers(metrics[COLUMN_OF[x]])
    return np.interp(updates, np.append(0.0, known), np.append(0.0, at), right=np.nan)


def _line(seed: int, x: np.ndarray, y: np.ndarray) -> Line:
    usable = np.isfinite(x) & np.isfinite(y)
    order = np.argsort(x[usable], kind="stable")
    return Line(seed, x[usable][order], y[usable][order])


def moving_mean(values: np.ndarray, n: int) -> np.ndarray:
    """f64[T], each value's mean with its neighbours, `n` in all and fewer at the ends; NaN counts for nothing."""
    if n == 1:
        return values
    known = np.isfinite(values)
    window = np.ones(n)
    total = np.convolve(np.where(known, values, 0.0), window)[(n - 1) // 2 :][: len(values)]
    count = np.convolve(known.astype(np.float64), window)[(n - 1) // 2 :][: len(values)]
    return np.where(known, total / np.maximum(count, 1.0), np.nan)


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
    cut = f", and ends at {style.short(end)} of {style.short(last)}" if last > end else ""
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


# ---------------------------------------------------------------------------------------------------------- the figures


def learning_curve(
    groups: Sequence[Group], metric: str, x: X = "updates", smooth: int = 1, tasks: Sequence[str] = ()
) -> Picture:
    """A metric over training: mean over seeds, and a band. NotDrawn in one line where no run has it."""
    held_out = metric.startswith(HELD_OUT)
    if held_out:
        curves, notes = curves_of(
            groups, lambda run: held_out_lines(run, metric, x, tasks), f"no {metric.removeprefix(HELD_OUT)} in eval.csv"
        )
        smooth = 1
    else:
        curves, notes = curves_of(
            groups, lambda run: training_lines(run, metric, x, smooth), f"no {metric} in metrics.csv"
        )
    return _curve_picture(f"curve-{file_name(metric)}", curves, x, NAMES.get(metric, metric), smooth, notes, held_out)


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
            raise unknown_name("task", task, known)


def level_metrics(groups: Sequence[Group]) -> list[str]:
    """The properties of levels that some run has measured, and `n_mutations` where levels are mutated."""
    found: dict[str, None] = {}
    for name in metric_names(groups):
        parts = name.split("/")
        if parts[0] == "level" and len(parts) == 3 and parts[2] not in OUTCOMES:
            found[parts[2]] = None
    mutating = any(name.startswith("level/mutation/") for name in metric_names(groups))
    return [*found, *([MUTATIONS] if mutating else [])]


def complexity_curve(groups: Sequence[Group], metric: str, x: X = "updates", smooth: int = 1) -> Picture:
    """A property of the levels that students learnt from: mean over levels and seeds, and a band."""
    what = f"no {metric} of the levels that it learns from in metrics.csv"
    curves, notes = curves_of(groups, lambda run: trained_on_lines(run, metric, x, smooth), what)
    return _curve_picture(f"complexity-{file_name(metric)}", curves, x, NAMES.get(metric, metric), smooth, notes)


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
    if sources == {"new"}:
        return {"new": one}
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


def generalisation_gap(
    groups: Sequence[Group],
    measure: str = "solved_rate",
    x: X = "updates",
    smooth: int = 1,
    tasks: Sequence[str] = (),
) -> Picture:
    """Training levels and held-out tasks over training, and below it their difference, seed by seed.

    The difference is taken at each evaluation: the log interval that ends there, minus the evaluation.
    """
    trained, notes = curves_of(
        groups, lambda run: training_lines(run, measure, x, smooth), f"no {measure} in metrics.csv"
    )
    tested, more = curves_of(
        groups, lambda run: held_out_lines(run, HELD_OUT + measure, x, tasks), f"no {measure} in eval.csv"
    )
    gaps, _ = curves_of(groups, lambda run: gap_lines(run, measure, x, smooth, tasks), "no evaluation while it trained")
    parts = {"training": trained, "held_out": tested, "gap": gaps}
    rows = [row for part, curves in parts.items() for curve in curves for row in curve.rows(x, part=part)]

    def draw() -> Any:
        from matplotlib.lines import Line2D

        drawn, panels = style.figure(1.75 * style.PANEL, 2, sharex=True)
        (above,), (below,) = panels
        for curve in trained:
            above.plot(curve.x, curve.mean, color=style.colour(curve.place), linewidth=0.9)
        for curve in tested:
            above.plot(curve.x, curve.mean, **_dotted(curve.place), linestyle="--")
        handles = [_draw_curve(below, curve, points=True, linestyle="-") for curve in gaps]
        below.axhline(0.0, color="0.3", linewidth=0.6)
        above.set_ylabel(measure.replace("_", " "))
        if measure == "solved_rate":
            style.share_axis(above)
        below.set(xlabel=X_LABELS[x], ylabel="training - held-out")
        style.count_axis(below.xaxis)
        lines = [
            Line2D([], [], color="0.3", linewidth=0.9, label="training levels"),
            Line2D([], [], color="0.3", linestyle="--", linewidth=0.9, label="held-out tasks"),
        ]
        labels, note = seeds_in_words(gaps)
        style.legend(drawn, [*handles, *lines], [*labels, "training levels", "held-out tasks"], _smoothed(note, smooth))
        return drawn

    return Picture(f"gap-{file_name(measure)}", rows, draw, list(dict.fromkeys([*notes, *more])))


def gap_lines(run: RunTables, measure: str, x: X, smooth: int = 1, tasks: Sequence[str] = ()) -> list[Line]:
    """Training minus held-out at each evaluation, of each seed that has both."""
    trained = {line.seed: line for line in training_lines(run, measure, x, smooth)}
    lines = []
    for line in held_out_lines(run, HELD_OUT + measure, x, tasks):
        if line.seed in trained:
            own = trained[line.seed]
            gap = np.interp(line.x, own.x, own.y, left=np.nan, right=np.nan) - line.y
            lines.append(_line(line.seed, line.x, gap))
    return [line for line in lines if len(line.x)]


def relative_curve(
    groups: Sequence[Group],
    metric: str,
    baseline: str,
    x: X = "updates",
    smooth: int = 1,
    tasks: Sequence[str] = (),
) -> Picture:
    """A metric of each method minus that of the group `baseline`: difference of the means over seeds, and a band."""
    held_out = metric.startswith(HELD_OUT)
    where = "eval.csv" if held_out else "metrics.csv"

    def lines(run: RunTables) -> list[Line]:
        return held_out_lines(run, metric, x, tasks) if held_out else training_lines(run, metric, x, smooth)

    curves, notes = curves_of(groups, lines, f"no {metric.removeprefix(HELD_OUT)} in {where}")
    bases = [curve for curve in curves if curve.label == baseline]
    if not bases or len(curves) < 2:
        raise NotDrawn(f"it needs {metric} of {baseline} and of another method")
    found = [Difference.between(curve, bases[0]) for curve in curves if curve.label != baseline]
    notes += [difference.note for difference in found if difference.note]
    rows = [row for difference in found for row in difference.rows(x)]

    def draw() -> Any:
        drawn, ((axes,),) = style.figure(style.PANEL)
        handles = [difference.draw(axes, held_out) for difference in found]
        axes.axhline(0.0, color="0.3", linewidth=0.6)
        axes.set(xlabel=X_LABELS[x], ylabel=f"{NAMES.get(metric, metric)}\nminus {baseline}")
        style.count_axis(axes.xaxis)
        labels, note = seeds_in_words([bases[0], *(difference.curve for difference in found)])
        note = note.replace("mean of", "difference of means over", 1)
        style.legend(drawn, handles, labels[1:], _smoothed(note, 1 if held_out else smooth))
        return drawn

    return Picture(f"relative-{file_name(metric)}", rows, draw, notes)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A method and the baseline, on one axis."""

    curve: Curve
    base: Curve
    note: str = ""  # what had to be done to bring them together

    @classmethod
    def between(cls, curve: Curve, base: Curve) -> "Difference":
        """Both on the points of the one with fewer, as far as both go."""
        if np.array_equal(curve.x, base.x):
            return cls(curve, base)
        start, end = max(curve.x[0], base.x[0]), min(curve.x[-1], base.x[-1])
        fewest = min(curve.x, base.x, key=len)
        x = fewest[(fewest >= start) & (fewest <= end)]
        if not len(x):
            raise NotDrawn(f"{curve.label} and {base.label} have no part of the axis in common")

        def on_axis(one: Curve) -> Curve:
            values = np.stack([np.interp(x, one.x, seed) for seed in one.values])
            return dataclasses.replace(one, x=x, values=values)

        last = max(curve.x[-1], base.x[-1])
        cut = f", and their difference ends at {style.short(end)} of {style.short(last)}" if last > end else ""
        note = f"{curve.label} and {base.label} were measured at different points; they are interpolated{cut}"
        return cls(on_axis(curve), on_axis(base), note)

    @property
    def mean(self) -> np.ndarray:
        return self.curve.mean - self.base.mean

    @functools.cached_property
    def band(self) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), f64[T] each."""
        return difference_band(self.curve.values, self.base.values)

    def rows(self, x: str) -> list[dict[str, Any]]:
        low, high = self.band
        n = self.curve.n_seeds, self.base.n_seeds
        kind = kind_of_band(min(n)) if max(n) == 1 or min(n) > 1 else kind_of_band(2)
        same = {"label": self.curve.label, "baseline": self.base.label, "n_seeds": n[0], "n_seeds_baseline": n[1]}
        return [
            same | {"band": kind, x: at, "mean": mean, "mean_baseline": base, "difference": mean - base}
            | {"low": bottom, "high": top}
            for at, mean, base, bottom, top in zip(
                self.curve.x.tolist(), self.curve.mean.tolist(), self.base.mean.tolist(), low.tolist(), high.tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def draw(self, axes: "Axes", points: bool) -> Any:
        place = self.curve.place
        marker = style.marker(place) if points else ""
        (line,) = axes.plot(self.curve.x, self.mean, marker=marker, **style.line_style(place))
        style.band(axes, self.curve.x, *self.band, place)
        return line


# ---------------------------------------------------------------------------------------------------------- how to draw


def _curve_picture(
    name: str,
    curves: Sequence[Curve],
    x: X,
    y_label: str,
    smooth: int,
    notes: Sequence[str],
    points: bool = False,
) -> Picture:
    rows = [row for curve in curves for row in curve.rows(x)]

    def draw() -> Any:
        drawn, ((axes,),) = style.figure(style.PANEL)
        handles = [_draw_curve(axes, curve, points) for curve in curves]
        axes.set(xlabel=X_LABELS[x], ylabel=y_label)
        style.count_axis(axes.xaxis)
        if name.endswith("solved_rate"):
            style.share_axis(axes)
        labels, note = seeds_in_words(curves)
        style.legend(drawn, handles, labels, _smoothed(note, smooth))
        return drawn

    return Picture(name, rows, draw, notes)


def _draw_curve(axes: "Axes", curve: Curve, points: bool = False, **options: Any) -> Any:
    # A single point has no line to be seen.
    marker = style.marker(curve.place) if points or len(curve.x) == 1 else ""
    (line,) = axes.plot(curve.x, curve.mean, marker=marker, **(style.line_style(curve.place) | options))
    style.band(axes, curve.x, *curve.band, curve.place)
    return line


def _dotted(place: int) -> dict[str, Any]:
    return {"color": style.colour(place), "marker": style.marker(place), "linewidth": 0.9}


def seeds_in_words(curves: Sequence[Any]) -> tuple[list[str], str]:
    """(labels of the legend, the line over it): how many seeds there are, and what the bands show."""
    return in_words([(curve.label, curve.n_seeds) for curve in curves], "mean of", "band")


def in_words(groups: Sequence[tuple[str, int]], what: str, band: str) -> tuple[list[str], str]:
    """(labels of the legend, the line over it) of groups (label, seeds), whose intervals are drawn as a `band`."""
    kinds = {kind_of_band(n) for _, n in groups}
    counts = {n for _, n in groups}
    labels = [label for label, _ in groups]
    if len(counts) == 1:
        n = counts.pop()
        kind = kinds.pop()
        return labels, f"{what} 1 seed" if kind == NONE else f"{what} {n} seeds, {band}: {kind}"
    labels = [f"{label}, {n} seed{'s' if n > 1 else ''}" for label, n in groups]
    if len(kinds) == 1:
        return labels, f"{what} the seeds, {band}: {kinds.pop()}"
    # Which one a group has follows from its number of seeds: those of five and more have an interval.
    kinds -= {NONE}
    if len(kinds) == 1:
        return labels, f"{what} the seeds, {band}: {kinds.pop()}"
    return labels, f"{what} the seeds, {band}: 95% bootstrap interval from 5 seeds on, else their range"


def _smoothed(note: str, smooth: int) -> str:
    return note if smooth == 1 else f"{note}; training smoothed over {smooth} intervals"


def file_name(metric: str) -> str:
    """A metric as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", metric).strip("-.") or "metric"

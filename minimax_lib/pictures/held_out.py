"""Figures of scores on held-out tasks: bars, aggregates, probability of improvement, performance profiles.

Aggregates follow Agarwal et al. 2021 and their library, rliable. Intervals are of another bootstrap: whole seeds are
resampled, with all of their tasks. `evaluation.statistics.bootstrap_interval` says why.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minimax_lib.evaluation.statistics import MIN_SEEDS, Statistic, bootstrap_interval, interquartile_mean
from minimax_lib.pictures import style
from minimax_lib.pictures.bootstrap import INTERVAL, RANGE, kind_of_band, seeds_band
from minimax_lib.pictures.scores import ComparedScores, GroupScores
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.words import MEAN, file_name, in_words

MOST_PAIRS = 36  # of groups; more have no room on a page
N_POINTS = 101  # of a performance profile
ALL_TASKS = "all tasks and"
Band = tuple[float, float]


# ---------------------------------------------------------------------------------------------------------------- bars


def held_out_bars(scores: ComparedScores) -> Picture:
    """The mean over seeds of each held-out task, a bar for each group, with intervals."""
    rows = []
    for group in scores.groups:
        for j, task in enumerate(group.tasks):
            low, high = band_of(group.values[:, j : j + 1], mean_of)
            mean = float(group.values[:, j].mean())
            rows.append(_same(group) | {"task": task, "mean": mean, "low": low, "high": high})

    def draw() -> Any:
        n, m = len(scores.groups), len(scores.tasks)
        drawn, ((axes,),) = style.figure(min(0.5 + m * (0.08 + 0.085 * n), style.PAGE))
        size = 0.8 / n
        handles = []
        for i, group in enumerate(scores.groups):
            own = rows[i * m : (i + 1) * m]
            # The first task and the first group stand at the top, as in the legend and in the table.
            at = -np.arange(m) + (n - 1) * size / 2 - i * size
            mean = np.array([row["mean"] for row in own])
            bars = axes.barh(
                at, mean, size, color=style.colour(group.place), hatch=style.hatch(group.place), edgecolor="white",
                linewidth=0.3,
            )  # fmt: skip
            handles.append(bars)
            if group.n_seeds > 1:
                ends = np.array([[row["low"], row["high"]] for row in own])
                axes.hlines(at, ends[:, 0], ends[:, 1], color="black", linewidth=0.8)
        axes.set_yticks(-np.arange(m), scores.tasks)
        axes.set(xlabel=scores.name, ylim=(-m + 0.4, 0.6))
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        _share_limits(axes, scores)
        labels, note = in_words([(group.label, group.n_seeds) for group in scores.groups], MEAN, "line")
        style.legend(drawn, handles, labels, note)
        return drawn

    return Picture(f"held_out-{_file(scores)}", rows, draw, scores.notes)


def _same(group: GroupScores) -> dict[str, Any]:
    return {"label": group.label, "n_seeds": group.n_seeds, "band": kind_of_band(group.n_seeds)}


def _share_limits(axes: Any, scores: ComparedScores) -> None:
    # A share has its own scale. On it, two figures can be compared.
    if scores.measure == "solved_rate":
        axes.set_xlim(0.0, 1.0)


def _file(scores: ComparedScores) -> str:
    return file_name(scores.measure)


def band_of(values: np.ndarray, statistic: Statistic) -> Band:
    """The interval of `statistic` of scores [S, M]; with few seeds the range of its values on single seeds; NaN of one.

    `statistic` takes all seeds of the first task, then all of the second, and so on, in its last axis.
    """
    if len(values) == 1:
        return np.nan, np.nan
    if len(values) < MIN_SEEDS:
        each = [float(statistic(seed, axis=-1)) for seed in values]
        return min(each), max(each)
    interval = bootstrap_interval(values, statistic)
    assert interval is not None
    return interval


# ---------------------------------------------------------------------------------------------------------- aggregates


def mean_of(values: np.ndarray, axis: int) -> np.ndarray:
    """The mean over all seeds and tasks."""
    return np.asarray(values.mean(axis=axis))


def median_of(n_tasks: int) -> Statistic:
    """The median over tasks of their means over seeds, of scores in the order of `band_of`."""

    def median(values: np.ndarray, axis: int) -> np.ndarray:
        values = np.moveaxis(values, axis, -1)
        means = values.reshape(*values.shape[:-1], n_tasks, -1).mean(axis=-1)
        return np.median(means, axis=-1)

    return median


def gap_to(optimum: float) -> Statistic:
    """The optimality gap: by how much scores miss `optimum`, on average; more than it counts for nothing."""

    def gap(values: np.ndarray, axis: int) -> np.ndarray:
        return optimum - np.minimum(values, optimum).mean(axis=axis)

    return gap


def aggregate_statistics(n_tasks: int, optimum: float = 1.0) -> dict[str, Statistic]:
    """The aggregates of Agarwal et al. 2021, by name."""
    return {
        "mean": mean_of,
        "median": median_of(n_tasks),
        "IQM": interquartile_mean,
        "optimality gap": gap_to(optimum),
    }


def aggregates(scores: ComparedScores, optimum: float = 1.0) -> Picture:
    """Mean, median, IQM and optimality gap over all held-out tasks, with intervals."""
    _check_tasks(scores)
    statistics = aggregate_statistics(len(scores.tasks), optimum)
    rows = []
    for name, statistic in statistics.items():
        for group in scores.groups:
            value = float(statistic(group.values.T.ravel(), axis=-1))
            low, high = band_of(group.values, statistic)
            same = _same(group) | {"n_tasks": len(scores.tasks)}
            rows.append(same | {"statistic": name, "value": value, "low": low, "high": high})

    def draw() -> Any:
        n = len(scores.groups)
        drawn, panels = style.figure(2 * (0.55 + 0.16 * max(n, 2)), 2, 2, sharey=True, h_pad=0.08)
        handles = []
        for axes, name in zip(panels.ravel(), statistics, strict=True):
            own = [row for row in rows if row["statistic"] == name]
            handles = [_interval(axes, -i, row, scores.groups[i].place, "value") for i, row in enumerate(own)]
            axes.set(title=name, ylim=(-n + 0.4, 0.6))
            axes.tick_params(axis="y", length=0, labelleft=False)
            axes.grid(visible=False, axis="y")
            _few_ticks(axes)
        drawn.supxlabel(scores.name, fontsize=style.TEXT)
        labels, note = in_words([(group.label, group.n_seeds) for group in scores.groups], ALL_TASKS, "bar")
        style.legend(drawn, handles, labels, _of_single_seeds(note))
        return drawn

    return Picture(f"aggregates-{_file(scores)}", rows, draw, scores.notes)


def _check_tasks(scores: ComparedScores) -> None:
    if scores.are_levels:
        raise NotDrawn("the evaluation is of shares of random levels, which are not separate tasks")


def _few_ticks(axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(4))


def _interval(axes: Any, at: float, row: Mapping[str, Any], place: int, column: str) -> Any:
    """Draws a point and its interval."""
    if row["low"] == row["low"]:  # NaN: there is none
        axes.hlines(at, row["low"], row["high"], color=style.colour(place), linewidth=4, alpha=0.45)
    (point,) = axes.plot(
        row[column], at, color=style.colour(place), marker=style.marker(place), markersize=4, linestyle=""
    )
    return point


def _of_single_seeds(note: str) -> str:
    # What is pooled need not lie between what single seeds give.
    return note.replace(RANGE, "range of single seeds")


# --------------------------------------------------------------------------------------------------------- improvement


def improvement_probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The probability that a run of x [..., S, M] beats one of y [..., S', M], mean over tasks; a tie counts half."""
    one, other = x[..., :, None, :], y[..., None, :, :]
    return ((one > other) + 0.5 * (one == other)).mean(axis=(-3, -2, -1))


def probability_of_improvement(scores: ComparedScores, baseline: str = "") -> Picture:
    """The probability that a seed of one method beats a seed of another, of all pairs or of pairs with `baseline`."""
    _check_tasks(scores)
    pairs = improvement_pairs(scores.groups, baseline)
    rows: list[dict[str, Any]] = []
    for x, y in pairs:
        few = min(x.n_seeds, y.n_seeds) < MIN_SEEDS
        low, high = (np.nan, np.nan) if few else seeds_band((x.values, y.values), improvement_probability)
        probability = float(improvement_probability(x.values, y.values))
        rows.append(
            {"label": x.label, "other": y.label, "n_seeds": x.n_seeds, "n_seeds_other": y.n_seeds}
            | {"band": "" if few else INTERVAL, "n_tasks": len(scores.tasks)}
            | {"probability": probability, "low": float(low), "high": float(high)}
        )

    def draw() -> Any:
        n = len(rows)
        names = [f"{_short(row['label'])}\n> {_short(row['other'])}" for row in rows]
        drawn, ((axes,),) = style.figure(min(0.7 + 0.3 * n, style.PAGE))
        for i, (row, (x, _)) in enumerate(zip(rows, pairs, strict=True)):
            _interval(axes, -i, row, x.place, "probability")
        axes.axvline(0.5, color="0.3", linewidth=0.6, linestyle="--")
        axes.set_yticks(-np.arange(n), names)
        axes.set(xlim=(-0.02, 1.02), ylim=(-n + 0.4, 0.6), xlabel=f"probability of improvement\n({scores.name})")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        kinds = {row["band"] for row in rows}
        note = f"bar: {INTERVAL}" if INTERVAL in kinds else ""
        if "" in kinds:
            note += f"{'; ' if note else ''}no interval with fewer than {MIN_SEEDS} seeds"
        style.legend(drawn, [], [], note)
        return drawn

    return Picture(f"improvement-{_file(scores)}", rows, draw, scores.notes)


def _short(label: str, most: int = 26) -> str:
    return label if len(label) <= most else f"{label[: most - 3]}..."


def improvement_pairs(groups: Sequence[GroupScores], baseline: str = "") -> list[tuple[GroupScores, GroupScores]]:
    """The pairs to compare, the later group of each first; NotDrawn with a single group, or with too many."""
    if len(groups) < 2:
        raise NotDrawn("it needs two groups of runs")
    if baseline:
        (base,) = (group for group in groups if group.label == baseline)
        return [(group, base) for group in groups if group is not base]
    pairs = [(later, earlier) for earlier, later in itertools.combinations(groups, 2)]
    if len(pairs) > MOST_PAIRS:
        raise NotDrawn(f"{len(pairs)} pairs of groups are too many for a figure: say --baseline LABEL")
    return pairs


# ------------------------------------------------------------------------------------------------------------ profiles


def profile_of(values: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """f64[..., T], the share of scores [..., S, M] above each threshold."""
    return (values[..., None] > thresholds).mean(axis=(-3, -2))


def performance_profiles(scores: ComparedScores) -> Picture:
    """The share of seeds and tasks that score above a threshold, for every threshold."""
    _check_tasks(scores)
    every = np.concatenate([group.values.ravel() for group in scores.groups])
    low, high = (0.0, 1.0) if scores.measure == "solved_rate" else (float(every.min()), float(every.max()))
    thresholds = np.linspace(low, high, N_POINTS)
    rows, bands = [], []
    for group in scores.groups:
        bands.append(profile_band(group.values, thresholds))
        points = np.stack([thresholds, profile_of(group.values, thresholds), *bands[-1]], axis=1).tolist()
        same = _same(group) | {"n_tasks": len(scores.tasks)}
        rows += [same | {"threshold": t, "share": share, "low": a, "high": b} for t, share, a, b in points]

    def draw() -> Any:
        drawn, ((axes,),) = style.figure(style.PANEL)
        handles = []
        for i, group in enumerate(scores.groups):
            own = [row["share"] for row in rows[i * N_POINTS : (i + 1) * N_POINTS]]
            (line,) = axes.plot(thresholds, own, **style.line_style(group.place))
            style.band(axes, thresholds, *bands[i], group.place)
            handles.append(line)
        axes.set(xlabel=f"threshold of the {scores.name}", ylabel="share of seeds and tasks\nabove the threshold")
        axes.set(ylim=(-0.02, 1.02), xlim=(low, high) if high > low else None)
        labels, note = in_words([(group.label, group.n_seeds) for group in scores.groups], ALL_TASKS, "band")
        style.legend(drawn, handles, labels, _of_single_seeds(note))
        return drawn

    return Picture(f"profiles-{_file(scores)}", rows, draw, scores.notes)


def profile_band(values: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) at each threshold: pointwise, of the bootstrap over seeds; with few seeds, the range of theirs."""
    if len(values) == 1:
        return np.full(len(thresholds), np.nan), np.full(len(thresholds), np.nan)
    if len(values) < MIN_SEEDS:
        each = np.stack([profile_of(seed[None], thresholds) for seed in values])
        return each.min(axis=0), each.max(axis=0)
    return seeds_band((values,), lambda drawn: profile_of(drawn, thresholds))

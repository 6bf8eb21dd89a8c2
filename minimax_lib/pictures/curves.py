"""Curves over training: learning, complexity of levels, the generalisation gap, wins against the own bank.

Each function gives a `Picture`: its numbers as `rows`, and how they are drawn.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minimax_lib.pictures import style
from minimax_lib.pictures.lines import (
    Curve,
    X,
    common_tasks,
    curves_of,
    curves_of_metric,
    gap_lines,
    metric_names,
    trained_on_lines,
)
from minimax_lib.pictures.runs import Group
from minimax_lib.pictures.style import Picture
from minimax_lib.pictures.words import HELD_OUT, X_LABELS, file_name, is_share, named, seeds_in_words, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OF_THE_BANK = {  # win rates, and against whom
    "opponents/newest_win_rate": "newest copy",
    "opponents/win_rate": "all copies",
    "opponents/oldest_win_rate": "oldest copy",
    "opponents/lowest_win_rate": "hardest copy",
}


def learning_curve(
    groups: Sequence[Group], metric: str, x: X = "updates", smooth: int = 1, tasks: Sequence[str] = ()
) -> Picture:
    """A metric over training: mean over seeds, and a band. NotDrawn in one line where no run has it."""
    held_out = metric.startswith(HELD_OUT)
    curves, notes = curves_of_metric(groups, metric, x, smooth, tasks)
    smooth = 1 if held_out else smooth
    return _curve_picture("curve", metric, curves, x, smooth, notes, held_out)


def complexity_curve(groups: Sequence[Group], metric: str, x: X = "updates", smooth: int = 1) -> Picture:
    """A property of the levels that students learnt from: mean over levels and seeds, and a band."""
    what = f"no {metric} of the levels that it learns from in metrics.csv"
    curves, notes = curves_of(groups, lambda run: trained_on_lines(run, metric, x, smooth), what)
    return _curve_picture("complexity", metric, curves, x, smooth, notes)


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
    trained, notes = curves_of_metric(groups, measure, x, smooth)
    tested, more = curves_of_metric(groups, HELD_OUT + measure, x, tasks=tasks)
    common, _ = common_tasks(groups, tasks)
    gaps, _ = curves_of(
        groups, lambda run: gap_lines(run, measure, x, smooth, common), "no evaluation while it trained"
    )
    parts = {"training": trained, "held_out": tested, "gap": gaps}
    rows = [row for part, curves in parts.items() for curve in curves for row in curve.rows(x, part=part)]

    def draw() -> Any:
        from matplotlib.lines import Line2D

        drawn, panels = style.figure(1.75 * style.PANEL, 2, sharex=True)
        (above,), (below,) = panels
        for curve in trained:
            above.plot(curve.x, curve.mean, color=style.colour(curve.place), marker=_marker(curve), linewidth=0.9)
        for curve in tested:
            above.plot(curve.x, curve.mean, **_dotted(curve.place), linestyle="--")
        handles = [_draw_curve(below, curve, points=True, linestyle="-") for curve in gaps]
        below.axhline(0.0, color="0.3", linewidth=0.6)
        above.set_ylabel(measure.replace("_", " "))
        if is_share(measure):
            style.share_axis(above)
        below.set(xlabel=X_LABELS[x], ylabel="training - held-out")
        style.count_axis(below.xaxis)
        lines = [
            Line2D([], [], color="0.3", linewidth=0.9, label="training levels"),
            Line2D([], [], color="0.3", linestyle="--", linewidth=0.9, label="held-out tasks"),
        ]
        labels, note = seeds_in_words(gaps)
        style.legend(drawn, [*handles, *lines], [*labels, "training levels", "held-out tasks"], smoothed(note, smooth))
        return drawn

    return Picture(f"gap-{file_name(measure)}", rows, draw, list(dict.fromkeys([*notes, *more])))


def has_bank(groups: Sequence[Group]) -> bool:
    """Whether some run has met copies of its own student in training."""
    return set(OF_THE_BANK) <= set(metric_names(groups))


def wins_against_the_bank(groups: Sequence[Group], x: X = "updates", smooth: int = 1) -> Picture:
    """The rate of wins against copies of the student over training, a panel for each kind of copy.

    That against old copies falls where the student forgets what it could do.
    """
    curves, notes = {}, []
    for metric in OF_THE_BANK:
        curves[metric], more = curves_of_metric(groups, metric, x, smooth)
        notes += more
    rows = [row for metric, own in curves.items() for curve in own for row in curve.rows(x, copy=OF_THE_BANK[metric])]

    def draw() -> Any:
        drawn, panels = style.figure(2.6 * style.PANEL, len(curves), sharex=True, sharey=True)
        for (axes,), (metric, own) in zip(panels, curves.items(), strict=True):
            handles = [_draw_curve(axes, curve) for curve in own]
            axes.set_ylabel(OF_THE_BANK[metric])
        style.share_axis(panels[0][0])
        panels[-1][0].set_xlabel(X_LABELS[x])
        style.count_axis(panels[-1][0].xaxis)
        labels, note = seeds_in_words(own)
        style.legend(drawn, handles, labels, smoothed(f"rate of wins against copies of the student; {note}", smooth))
        return drawn

    return Picture("bank", rows, draw, list(dict.fromkeys(notes)))


# ---------------------------------------------------------------------------------------------------------- how to draw


def _curve_picture(
    kind: str,
    metric: str,
    curves: Sequence[Curve],
    x: X,
    smooth: int,
    notes: Sequence[str],
    points: bool = False,
) -> Picture:
    rows = [row for curve in curves for row in curve.rows(x)]

    def draw() -> Any:
        drawn, ((axes,),) = style.figure(style.PANEL)
        handles = [_draw_curve(axes, curve, points) for curve in curves]
        axes.set(xlabel=X_LABELS[x], ylabel=named(metric))
        style.count_axis(axes.xaxis)
        if is_share(metric):
            style.share_axis(axes)
        labels, note = seeds_in_words(curves)
        style.legend(drawn, handles, labels, smoothed(note, smooth))
        return drawn

    return Picture(f"{kind}-{file_name(metric)}", rows, draw, notes)


def _draw_curve(axes: "Axes", curve: Curve, points: bool = False, **options: Any) -> Any:
    marker = style.marker(curve.place) if points else _marker(curve)
    (line,) = axes.plot(curve.x, curve.mean, marker=marker, **(style.line_style(curve.place) | options))
    style.band(axes, curve.x, *curve.band, curve.place)
    return line


def _marker(curve: Curve) -> str:
    # A single point has no line to be seen.
    return style.marker(curve.place) if len(curve.x) == 1 else ""


def _dotted(place: int) -> dict[str, Any]:
    return {"color": style.colour(place), "marker": style.marker(place), "linewidth": 0.9}

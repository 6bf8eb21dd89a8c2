"""Curves of methods minus that of a baseline."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minimax_lib.evaluation.statistics import MIN_SEEDS
from minimax_lib.pictures import style
from minimax_lib.pictures.bootstrap import INTERVAL, NONE, difference_band
from minimax_lib.pictures.lines import Curve, X, curves_of_metric
from minimax_lib.pictures.runs import Group
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.words import HELD_OUT, X_LABELS, file_name, named, smoothed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RANGE_OF_PAIRS = "range over pairs of seeds"


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
    curves, notes = curves_of_metric(groups, metric, x, smooth, tasks)
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
        axes.set(xlabel=X_LABELS[x], ylabel=f"{named(metric)}\nminus {baseline}")
        style.count_axis(axes.xaxis)
        labels, note = differences_in_words(found)
        style.legend(drawn, handles, labels, smoothed(note, 1 if held_out else smooth))
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

    @property
    def kind(self) -> str:
        """What the band shows: of few seeds on either side, the range over pairs of seeds."""
        n = self.curve.n_seeds, self.base.n_seeds
        return NONE if max(n) == 1 else INTERVAL if min(n) >= MIN_SEEDS else RANGE_OF_PAIRS

    def rows(self, x: str) -> list[dict[str, Any]]:
        """Its numbers, a row for each x."""
        low, high = self.band
        n = self.curve.n_seeds, self.base.n_seeds
        same = {"label": self.curve.label, "baseline": self.base.label, "n_seeds": n[0], "n_seeds_baseline": n[1]}
        return [
            same | {"band": self.kind, x: at, "mean": mean, "mean_baseline": base, "difference": mean - base}
            | {"low": bottom, "high": top}
            for at, mean, base, bottom, top in zip(
                self.curve.x.tolist(), self.curve.mean.tolist(), self.base.mean.tolist(), low.tolist(), high.tolist(),
                strict=True,
            )
        ]  # fmt: skip

    def draw(self, axes: "Axes", points: bool) -> Any:
        place = self.curve.place
        marker = style.marker(place) if points or len(self.curve.x) == 1 else ""  # one point has no line to be seen
        (line,) = axes.plot(self.curve.x, self.mean, marker=marker, **style.line_style(place))
        style.band(axes, self.curve.x, *self.band, place)
        return line


def differences_in_words(found: Sequence[Difference]) -> tuple[list[str], str]:
    """(labels of the legend, the line over it): how many seeds there are on each side, and what the bands show."""
    base, counts = found[0].base, {difference.curve.n_seeds for difference in found}
    kinds = list(dict.fromkeys(difference.kind for difference in found if difference.kind != NONE))
    band = "" if not kinds else f", band: {kinds[0]}"
    if len(kinds) > 1:
        band = f", band: {INTERVAL} where both have {MIN_SEEDS} seeds, else {RANGE_OF_PAIRS}"
    if counts == {base.n_seeds}:
        means = "1 seed" if base.n_seeds == 1 else f"means of {base.n_seeds} seeds"
        return [difference.curve.label for difference in found], f"difference of {means}{band}"
    labels = [f"{difference.curve.label}, {_seeds(difference.curve.n_seeds)}" for difference in found]
    return labels, f"difference of means, {base.label} of {_seeds(base.n_seeds)}{band}"


def _seeds(n: int) -> str:
    return f"{n} seed{'s' if n > 1 else ''}"

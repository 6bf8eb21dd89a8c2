"""The words in figures: names of metrics, and how many seeds there are and what their bands show."""

import re
from collections.abc import Sequence
from typing import Any

from minimax_lib.pictures.bootstrap import NONE, kind_of_band

HELD_OUT = "held_out/"  # what metrics of eval.csv begin with
X_LABELS = {"updates": "updates", "env_steps": "environment steps of a seed", "seconds": "seconds"}
NAMES = {
    "return": "training return",
    "solved_rate": "solved rate, training levels",
    "held_out/return": "return, held-out tasks",
    "held_out/solved_rate": "solved rate, held-out tasks",
    "n_walls": "walls",
    "shortest_path": "shortest path (0 if unsolvable)",
    "solvable": "share of solvable levels",
    "n_mutations": "edits along the levels' lineage",
}
MEAN = "mean of"
SHARES = ("solved_rate", "solvable", "unfinished", "replay_share")  # the last parts of metrics between 0 and 1


def named(metric: str) -> str:
    """A metric in words, for an axis."""
    if metric in NAMES or not metric.startswith(HELD_OUT):
        return NAMES.get(metric, metric.replace("_", " "))
    task, _, column = metric.removeprefix(HELD_OUT).rpartition("/")
    return f"{column.replace('_', ' ')}, {task or 'held-out tasks'}"


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 1 by its meaning."""
    return metric.rpartition("/")[2] in SHARES


def seeds_in_words(curves: Sequence[Any]) -> tuple[list[str], str]:
    """(labels of the legend, the line over it): how many seeds there are, and what the bands show."""
    return in_words([(curve.label, curve.n_seeds) for curve in curves], MEAN, "band")


def in_words(groups: Sequence[tuple[str, int]], what: str, band: str) -> tuple[list[str], str]:
    """(labels of the legend, the line over it) of groups (label, seeds), whose intervals are drawn as a `band`."""
    kinds = {kind_of_band(n) for _, n in groups}
    counts = {n for _, n in groups}
    labels = [label for label, _ in groups]
    if len(counts) == 1:
        n = counts.pop()
        kind = kinds.pop()
        if kind == NONE:
            return labels, "1 seed" if what == MEAN else f"{what} 1 seed"
        return labels, f"{what} {n} seeds, {band}: {kind}"
    labels = [f"{label}, {n} seed{'s' if n > 1 else ''}" for label, n in groups]
    if len(kinds) == 1:
        return labels, f"{what} the seeds, {band}: {kinds.pop()}"
    # Which one a group has follows from its number of seeds: those of five and more have an interval.
    kinds -= {NONE}
    if len(kinds) == 1:
        return labels, f"{what} the seeds, {band}: {kinds.pop()}"
    return labels, f"{what} the seeds, {band}: 95% bootstrap interval from 5 seeds on, else their range"


def left_out(n_common: int, n_wanted: int) -> list[str]:
    """A note where not all of the wanted tasks are common to all runs."""
    n = n_wanted - n_common
    one = f"{n_common} held-out task{' is' if n_common == 1 else 's are'} common to all runs"
    return [f"{one}; {n} other{' is' if n == 1 else 's are'} left out"] if n else []


def smoothed(note: str, smooth: int) -> str:
    """The note, which says so where curves of the training are moving means over `smooth` log intervals."""
    return note if smooth == 1 else f"{note}; training smoothed over {smooth} intervals"


def file_name(metric: str) -> str:
    """A metric as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", metric).strip("-.") or "metric"

"""Methods side by side on the same held-out tasks, or on the same random levels: tables, and the numbers as CSV."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from minimax_lib.evaluation.statistics import MIN_SEEDS, summarise
from minimax_lib.evaluation.tables import INTERVAL, Scores, iqm_columns, percent, spread_cells

ALL_TASKS = "all tasks"
BORDERS = 3  # characters that a column of a table needs beside its cells
NARROWEST = 12  # characters of a column, so that the name of a method is not cut to pieces


@dataclasses.dataclass(frozen=True)
class Improvement:
    """The probability that a seed of a method solves more than one of the first method. Ties count half.

    It is a mean over held-out tasks.
    """

    probability: float
    interval: tuple[float, float] | None  # bootstrap over whole seeds; None where one of the two has too few seeds


@dataclasses.dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, pooled as seeds."""

    label: str
    runs: tuple[str, ...]  # folders
    updates: tuple[int, ...]  # of their checkpoints
    scores: Scores
    improvement: Improvement | None = None  # None for the first method
    env_steps: float = math.nan  # mean of the seeds up to their checkpoints, also those that only scored; NaN: unknown

    @property
    def n_seeds(self) -> int:
        return len(self.scores.seeds)

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of tables: the held-out tasks, and all of them together; or the shares of the levels."""
        # Each share holds the smaller ones, so that a mean over them says nothing.
        return self.scores.tasks if self.scores.n_worst else (*self.scores.tasks, ALL_TASKS)


def tables(title: str, methods: Sequence[MethodRuns], width: int) -> Iterator[Table]:
    """Tables of tasks x methods, each with as many methods as `width` characters hold, and one of all tasks."""
    left = width - max(map(len, methods[0].rows)) - BORDERS - 1
    few: list[MethodRuns] = []
    for method in methods:
        if few and sum(column_width(one) + BORDERS for one in (*few, method)) > left:
            yield task_table(title, few)
            few = []
        few.append(method)
    yield task_table(title, few)
    if ALL_TASKS in methods[0].rows:
        yield method_table(methods)


def column_width(method: MethodRuns) -> int:
    """Characters of the widest cell of a method. Its name may take several lines."""
    cells = [cell(method, task) for task in method.rows]
    return max(NARROWEST, *(len(line) for text in cells for line in text.splitlines()))


def task_table(title: str, methods: Sequence[MethodRuns]) -> Table:
    """A row a task and a column a method: solved rate, mean and IQM, and below them the interval or the seeds."""
    table = Table("task", title=title, title_justify="left", caption=note(methods), caption_justify="left")
    for method in methods:
        heading = f"{method.label}\n{seeds_of(method)}\n{', '.join(['mean', *iqm_columns(method.n_seeds)])}"
        table.add_column(heading, justify="right", overflow="fold", max_width=column_width(method))
    for task in methods[0].rows:
        if task == ALL_TASKS:
            table.add_section()
        style = "bold" if task == ALL_TASKS else None
        table.add_row(task, *(cell(method, task) for method in methods), style=style)
    return table


def method_table(methods: Sequence[MethodRuns]) -> Table:
    """A row a method: environment steps, the solved rate over all tasks, how often it is better than the first."""
    table = Table(title="All tasks", title_justify="left", caption_justify="left")
    table.add_column("method", overflow="fold")
    if len(methods) > 1:
        table.caption = (
            f"better than {methods[0].label}: the probability that one of its seeds solves more than a seed "
            "of the other (ties count half)"
        )
    several = max(method.n_seeds for method in methods) > 1
    columns = ["seeds", "steps\nof a seed", "mean", *(["IQM", "interval, or\neach seed, %"] if several else [])]
    for column in (*columns, *([f"better than\n{methods[0].label}"] if len(methods) > 1 else [])):
        table.add_column(column, justify="right", no_wrap=True)  # the names are folded instead
    for method in methods:
        rates = method.scores["solved_rate"]
        found = summarise(rates)
        spread = [percent(found.iqm), *spread_cells(rates, found.interval)] if found.n_seeds > 1 else ["", ""]
        cells = [str(found.n_seeds), steps_cell(method.env_steps), percent(found.mean), *(spread if several else [])]
        table.add_row(method.label, *cells, *([improvement_cell(method.improvement)] if len(methods) > 1 else []))
    return table


def steps_cell(n: float) -> str:
    """A number of environment steps, in millions."""
    return "" if math.isnan(n) else f"{n / 1e6:,.1f} M" if n >= 1e5 else f"{n:,.0f}"


def seeds_of(method: MethodRuns) -> str:
    n = method.n_seeds
    return f"{n} seed{'s' if n > 1 else ''}"


def cell(method: MethodRuns, task: str) -> str:
    """Mean and IQM in one line, the interval or the values of the seeds in the next."""
    rates = _rates(method, task)
    found = summarise(rates)
    iqm = f" {percent(found.iqm)}" if found.n_seeds > 1 else ""
    return "\n".join([percent(found.mean) + iqm, *spread_cells(rates, found.interval)])


def _rates(method: MethodRuns, task: str) -> Any:
    """f64[S] of one task, f64[S, M] of all."""
    rates = method.scores["solved_rate"]
    return rates if task == ALL_TASKS else rates[:, method.scores.tasks.index(task)]


def improvement_cell(found: Improvement | None) -> str:
    if found is None:
        return ""
    interval = f"\n{found.interval[0]:.2f} to {found.interval[1]:.2f}" if found.interval else ""
    return f"{found.probability:.2f}{interval}"


def note(methods: Sequence[MethodRuns]) -> str:
    """Which intervals the table shows, or why some are missing."""
    counts = [method.n_seeds for method in methods]
    notes = []
    if max(counts) >= MIN_SEEDS:
        notes.append(f"interval: {INTERVAL} of the IQM")
    if any(1 < n < MIN_SEEDS for n in counts):
        notes.append(f"fewer than {MIN_SEEDS} seeds: the value of each in %, and no interval")
    return "; ".join(notes)


def rows(methods: Sequence[MethodRuns]) -> Iterator[dict[str, Any]]:
    """A row for each task and method, and one for each method over all tasks."""
    for task in methods[0].rows:
        for method in methods:
            found = summarise(_rates(method, task))
            low, high = found.interval or ("", "")
            row = {"task": task, "method": method.label, "n_seeds": found.n_seeds}
            row |= {"env_steps": "" if math.isnan(method.env_steps) else round(method.env_steps)}
            row |= {"mean": found.mean, "iqm": found.iqm, "low": low, "high": high}
            better = method.improvement if task == ALL_TASKS else None
            p_low, p_high = (better and better.interval) or ("", "")
            row |= {"better_than": methods[0].label if better else ""}
            row |= {
                "probability": better.probability if better else "",
                "probability_low": p_low,
                "probability_high": p_high,
            }
            first, last = min(method.updates), max(method.updates)
            yield row | {"updates": first if first == last else f"{first} to {last}", "runs": " ".join(method.runs)}

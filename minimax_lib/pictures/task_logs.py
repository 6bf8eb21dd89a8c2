"""What a curriculum did in somebody's own training: the weights of tasks over time, and how well they were solved.

The tables are that of `Host(core, log="tasks.csv")`, and that of `host.statistics.save("statistics.csv")`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.files import UnreadableFile
from minimax_lib.messages import shown
from minimax_lib.pictures import style
from minimax_lib.pictures.runs import numbers
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.words import file_name
from minimax_lib.store.tables import parsed, read_table

COLUMNS = ("drawn", "steps", "number", "task", "weight", "attempts", "solved_rate", "return")  # of `portable.log`
KEYS = ("drawn", "number", "attempts")
# Of `portable.statistics`. A panel has a mean, and where there is one, a deviation.
OF_STATISTICS = {"share": "share of draws", "attempts": "attempts", "solved_rate": "solved rate"}
WITH_DEVIATIONS = {"return": "return", "length": "steps of an attempt"}
PANELS = {"weight": "weight", "solved_rate": "solved rate", "return": "return"}
MOST_NAMED = 12  # tasks whose names fit beside a panel
LONGEST_NAME = 14  # characters
MOST_TIMES = 200  # columns of a panel


def is_log(path: str | Path) -> bool:
    """Whether this is a table of a host, by its ending and header."""
    return _has(path, COLUMNS) or is_statistics(path)


def is_statistics(path: str | Path) -> bool:
    """Whether this is the table of a host's statistics."""
    deviations = [f"{name}_{kind}" for name in WITH_DEVIATIONS for kind in ("mean", "deviation")]
    return _has(path, ("number", "task", *OF_STATISTICS, *deviations))


def _has(path: str | Path, columns: Sequence[str]) -> bool:
    path = Path(path)
    try:
        return path.suffix == ".csv" and path.is_file() and set(columns) <= set(parsed(path).columns)
    except (UnreadableFile, OSError):
        return False


def host_picture(path: str | Path) -> Picture:
    """The figure of a table of a host. NotDrawn in one line where no attempt has ended."""
    return statistics_picture(path) if is_statistics(path) else task_picture(path)


def statistics_picture(path: str | Path) -> Picture:
    """A panel for each number, over the tasks: with few tasks by name, and with deviations as lines."""
    _, table = read_table(Path(path), ("number", "attempts"))
    of = {name: numbers([row[name] for row in table]) for name in (table[0] if table else ()) if name != "task"}
    if not table or not of["attempts"].any():
        raise NotDrawn(f"{path} has no attempt yet")
    names = OF_STATISTICS | {f"{name}_mean": label for name, label in WITH_DEVIATIONS.items()}
    panels = {name: label for name, label in names.items() if np.isfinite(of[name]).any()}

    def draw() -> Any:
        drawn, axes = style.figure(0.8 * style.PANEL * len(panels) + 0.3, len(panels), sharex=True)
        for (panel,), (name, label) in zip(axes, panels.items(), strict=True):
            panel.plot(
                of["number"], of[name], ".", color=style.colour(0), markersize=4, rasterized=len(table) > MOST_TIMES
            )
            deviation = of.get(name.replace("_mean", "_deviation"))
            if name.endswith("_mean") and deviation is not None and len(table) <= MOST_TIMES:
                ends = of[name] - deviation, of[name] + deviation
                panel.vlines(of["number"], *ends, color=style.colour(0), linewidth=0.8)
            panel.set(ylabel=label)
            if name in ("share", "attempts", "length_mean"):
                panel.set_ylim(bottom=0)
            elif name == "solved_rate":
                panel.set_ylim(-0.05, 1.05)
        axes[-1][0].set_xlabel("task")
        if len(table) <= MOST_NAMED:
            axes[-1][0].set_xticks(of["number"], [row["task"][:LONGEST_NAME] for row in table], rotation=45, ha="right")
        return drawn

    rows = [{"number": int(number), "task": row["task"]} for number, row in zip(of["number"], table, strict=True)]
    rows = [row | {name: float(of[name][i]) for name in of if name != "number"} for i, row in enumerate(rows)]
    return Picture(f"statistics-{file_name(Path(path).stem)}", rows, draw, ["lines: one standard deviation"])


def task_picture(path: str | Path) -> Picture:
    """Panels of tasks over time. An interval may be several of the table's: attempts of all count alike.

    NotDrawn in one line where no attempt has ended.
    """
    _, table = read_table(Path(path), KEYS)
    if not table:
        raise NotDrawn(f"{path} has no rows yet")
    for cell in (row["number"] for row in table):
        # An interval has a row for each task.
        if not (float(cell).is_integer() and 0 <= float(cell) < len(table)):
            raise NotDrawn(f"{path} has {shown(cell)} as the number of a task: it must be 0 to {len(table) - 1}")
    names, x, of_steps, cells = grid_of(table)
    panels = [name for name in PANELS if np.isfinite(cells[name]).any()]
    rows = [
        {"env_steps" if of_steps else "drawn": float(end), "number": task, "task": names[task]}
        | {name: float(values[task, t]) for name, values in cells.items()}
        for t, end in enumerate(x[1:])
        for task in range(len(names))
    ]

    def draw() -> Any:
        drawn, axes = style.figure(0.8 * style.PANEL * len(panels) + 0.3, len(panels), sharex=True)
        for (panel,), name in zip(axes, panels, strict=True):
            limits = {"vmin": 0, "vmax": 1} if name == "solved_rate" else {"vmin": 0} if name == "weight" else {}
            edges = np.arange(len(names) + 1) - 0.5
            shown = panel.pcolormesh(x, edges, cells[name], cmap="viridis", rasterized=True, **limits)
            drawn.colorbar(shown, ax=panel, label=PANELS[name], pad=0.02)
            panel.set(ylabel="task")
            panel.grid(False)
            panel.invert_yaxis()
            if len(names) <= MOST_NAMED:
                panel.set_yticks(range(len(names)), [name[:LONGEST_NAME] for name in names])
        axes[-1][0].set_xlabel("environment steps" if of_steps else "tasks drawn")
        style.count_axis(axes[-1][0].xaxis)
        return drawn

    empty = "white: no attempt on the task ended in the interval"
    return Picture(f"tasks-{file_name(Path(path).stem)}", rows, draw, [empty])


def grid_of(table: Sequence[dict[str, str]]) -> tuple[list[str], np.ndarray, bool, dict[str, np.ndarray]]:
    """(the names of N tasks, the edges f64[T + 1] of the intervals, whether these are environment steps, the cells).

    The cells are f64[N, T] by name: attempts, and means of weight, solved_rate and return; NaN where there is none.
    """
    number = numbers([row["number"] for row in table]).astype(int)
    drawn = numbers([row["drawn"] for row in table])
    # A row for each task, in the order of the tasks: an interval begins where the numbers begin anew.
    interval = np.cumsum(np.diff(number, prepend=number[0]) <= 0) - 1
    first = np.flatnonzero(np.diff(interval, prepend=-1))
    steps = numbers([row["steps"] for row in table])
    of_steps = bool(np.isfinite(steps).all())
    ends = (steps if of_steps else drawn)[first]
    n, n_intervals = int(number.max()) + 1, len(first)
    names = [str(task) for task in range(n)]
    for task, row in zip(number, table, strict=True):
        names[task] = row["task"]
    group = np.arange(n_intervals) // -(-n_intervals // MOST_TIMES)
    place = (number, group[interval])
    attempts = numbers([row["attempts"] for row in table])
    cells = {"attempts": summed(place, attempts, (n, int(group[-1]) + 1))}
    for name, mass in (("weight", np.ones(len(table))), ("solved_rate", attempts), ("return", attempts)):
        values = numbers([row[name] for row in table])
        mass = np.where(np.isfinite(values), mass, 0.0)
        of = summed(place, mass, cells["attempts"].shape)
        total = summed(place, np.where(mass > 0, values, 0.0) * mass, of.shape)
        cells[name] = np.where(of > 0, total / np.where(of > 0, of, 1.0), np.nan)
    last = np.flatnonzero(np.diff(group, append=group[-1] + 1))
    return names, np.concatenate([[0.0], ends[last]]), of_steps, cells


def summed(place: tuple[np.ndarray, np.ndarray], values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """f64[N, T], the sum of the values of each place."""
    total = np.zeros(shape)
    np.add.at(total, place, values)
    return total

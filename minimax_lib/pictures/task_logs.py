"""What a curriculum did in somebody's own training: the weights of tasks over time, and how well they were solved.

The table is that of `Host(core, log="tasks.csv")`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.files import UnreadableFile
from minimax_lib.pictures import style
from minimax_lib.pictures.runs import numbers
from minimax_lib.pictures.style import NotDrawn, Picture
from minimax_lib.pictures.words import file_name
from minimax_lib.store.tables import parsed, read_table

COLUMNS = ("drawn", "steps", "number", "task", "weight", "attempts", "solved_rate", "return")  # of `portable.log`
KEYS = ("drawn", "number", "attempts")
PANELS = {"weight": "weight", "solved_rate": "solved rate", "return": "return"}
MOST_NAMED = 12  # tasks whose names fit beside a panel
LONGEST_NAME = 14  # characters
MOST_TIMES = 200  # columns of a panel


def is_log(path: str | Path) -> bool:
    """Whether this is the table of a host, by its ending and header."""
    path = Path(path)
    try:
        return path.suffix == ".csv" and path.is_file() and set(COLUMNS) <= set(parsed(path).columns)
    except (UnreadableFile, OSError):
        return False


def task_picture(path: str | Path) -> Picture:
    """Panels of tasks over time. An interval may be several of the table's: attempts of all count alike.

    NotDrawn in one line where no attempt has ended.
    """
    _, table = read_table(Path(path), KEYS)
    if not table:
        raise NotDrawn(f"{path} has no rows yet")
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

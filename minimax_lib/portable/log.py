"""What a curriculum did in somebody's own training, as a table: `Host(core, log="tasks.csv")`.

`minimax-plot tasks.csv` draws it.
"""

import copy
import os
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.messages import shown
from minimax_lib.store.files import copy_aside
from minimax_lib.store.tables import CsvWriter
from minimax_lib.tasks.spaces import TaskSpace

COLUMNS = ("drawn", "steps", "number", "task", "weight", "attempts", "solved_rate", "return")
LEAST, EACH = 100, 10  # attempts in an interval: at least so many, and so many for each task


class TaskLog:
    """A table that grows: a row for each task and interval of `every` attempts (None: ten for each task).

    `drawn` tasks had been drawn at the interval's end, and its attempts so far had taken `steps`. `weight` is the
    task's share of the draws as the interval began. Of the `attempts` that ended in the interval, `solved_rate` is the
    share that was solved, `return` the mean return. A cell is empty where nothing was told. Attempts that were given up
    are in no row. The interval that has begun is written when the program ends, and by `Host.state_dict`.
    """

    def __init__(self, path: str | Path, every: int | None = None) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path).strip():
            raise ValueError(f"log is {path!r}: it must be the name of a file, such as 'tasks.csv'")
        self.path = Path(path)
        if self.path.is_dir():
            raise ValueError(f"log is {shown(str(path))}, a folder: it must be the name of a file, such as 'tasks.csv'")
        if every is not None and every < 1:
            raise ValueError(f"every is {every}: it must be at least 1")
        self._every = every
        self._space: TaskSpace | None = None
        self._table: CsvWriter | None = None
        self._last = -1  # rows after so many draws are of work that was lost
        self._steps: int | None = 0  # None: somebody has not told it
        self._weights: np.ndarray | None = None  # as the interval began
        self._is_copy = False  # it writes nothing

    def of(self, host: Any, space: TaskSpace) -> "TaskLog":
        """The same, of this host and the tasks of its space. ValueError where they cannot be listed."""
        if self._space is not None:
            raise ValueError(f"log is {shown(str(self.path))} of another Host: give each Host its own")
        if space.n is None:
            raise ValueError(
                f"log is {shown(str(self.path))}: a log has a row for each task, and the tasks of "
                f"{type(space).__name__} cannot be listed"
            )
        self._space, self._n, self._drawn = space, space.n, 0
        self._every = max(LEAST, EACH * space.n) if self._every is None else self._every
        self._begin()
        # Not a method of the host, which would keep it alive. A copied process is none that writes.
        weakref.finalize(host, self._write_rest, os.getpid())
        return self

    def __deepcopy__(self, memo: Any) -> "TaskLog":
        """That of a copied host writes nothing: two hosts would write into one file."""
        if self._space is None:
            return TaskLog(self.path, self._every)
        again = copy.copy(self)
        again._is_copy = True
        return again

    def add(
        self, task: np.ndarray, told: Mapping[str, Any], n_drawn: int, weights: Callable[[], np.ndarray | None]
    ) -> None:
        """Attempts [M] on these tasks have ended, of which `told` says what is known. So many tasks were drawn."""
        if self._is_copy:
            return
        if self._weights is None:
            found = weights()
            self._weights = np.full(self._n, np.nan) if found is None else found
        task, self._drawn = np.asarray(task), n_drawn
        np.add.at(self._attempts, task, 1)
        for name, total in self._sums.items():
            value = told.get(name, np.nan)
            np.add.at(total, task, value == 1 if name == "progress" and name in told else value)
        length = told.get("length")
        if length is None:
            self._steps = None
        elif self._steps is not None:
            self._steps += int(np.broadcast_to(length, task.shape).sum(dtype=np.int64))
        if self._attempts.sum() >= self._every:
            self.write()

    def write(self) -> None:
        """Writes the interval that has begun, if an attempt has ended in it."""
        if self._is_copy or not self._attempts.any():
            return
        if self._table is None:
            self._table = self._opened()
        n = np.where(self._attempts > 0, self._attempts, 1)
        solved, returns = (np.where(self._attempts > 0, self._sums[name] / n, np.nan) for name in self._sums)
        columns: tuple[Any, ...] = (self._weights, self._attempts, solved, returns)
        assert self._space is not None
        same = (self._drawn, "" if self._steps is None else self._steps)
        self._table.write(
            [
                dict(zip(COLUMNS, (*same, task, name_on_a_line(self._space, task), *map(_cell, numbers)), strict=True))
                for task, numbers in enumerate(zip(*columns, strict=True))
            ]
        )
        self._begin()

    def grow(self, space: TaskSpace) -> None:
        """Goes on with a longer list. The interval that has begun ends."""
        assert space.n is not None
        self.write()
        self._space, self._n = space, space.n
        self._begin()

    def go_on(self, n_drawn: int) -> None:
        """The host goes on from a state in which so many tasks were drawn. Later rows are of work that was lost."""
        self._last, self._drawn, self._table, self._steps = n_drawn, n_drawn, None, 0
        self._begin()

    def _begin(self) -> None:
        self._attempts = np.zeros(self._n, np.int64)
        self._sums = {name: np.zeros(self._n) for name in ("progress", "returns")}
        self._weights = None

    def _opened(self) -> CsvWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._last < 0 and self.path.exists() and self.path.stat().st_size:
            kept = copy_aside(self.path, self.path.with_name("old_tables"))
            self.path.unlink()
            say(f"{self.path} is of another training: it begins anew, and the file as it was is kept in {kept}")
        table = CsvWriter(self.path, "drawn", self._last, say=say)
        known = [row["steps"] for row in table.kept[-1:]]
        if known and self._steps is not None:
            self._steps = self._steps + int(float(known[0])) if known[0] else None
        return table

    def _write_rest(self, process: int) -> None:
        if os.getpid() == process:
            self.write()


def say(line: str) -> None:
    """Warns of something that has become of the file."""
    warnings.warn(line, stacklevel=3)


def name_on_a_line(space: TaskSpace, task: int) -> str:
    """The name of a task on one line, since a row of a table is one line. A prompt may have several."""
    return " ".join(space.name(task).split())


def _cell(value: Any) -> Any:
    if isinstance(value, np.integer):
        return int(value)
    return "" if np.isnan(value) else float(value)


def log_of(log: "str | Path | TaskLog | None", host: Any, space: TaskSpace) -> "TaskLog | None":
    """The log of a host, by the name of its file."""
    if log is None:
        return None
    return (log if isinstance(log, TaskLog) else TaskLog(log)).of(host, space)

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

from minimax_lib.files import check_regular
from minimax_lib.messages import one_line, shown
from minimax_lib.store.files import copy_aside
from minimax_lib.store.tables import CsvWriter
from minimax_lib.tasks.spaces import TaskSpace

COLUMNS = ("drawn", "steps", "number", "task", "weight", "attempts", "solved_rate", "return")
LEAST, EACH = 100, 10  # attempts in an interval: at least so many, and so many for each task


class TaskLog:
    """A table that grows: a row for each task and interval of `every` attempts (None: ten for each task).

    `drawn` tasks had been drawn at the interval's end, and its attempts so far had taken `steps`. `weight` is the
    task's share of the draws as the interval began. `attempts` ended in the interval. `solved_rate` is the share that
    was solved of those whose progress was told, and `return` the mean of the returns that were told. A cell is empty
    where none was. Attempts that were given up are in no row. The interval that has begun is written when the program
    ends, and by `Host.state_dict`.
    """

    _attempts: np.ndarray  # i64[N], of the interval
    _sums: dict[str, np.ndarray]  # f64[N], over those of its attempts of which it was told
    _told: dict[str, np.ndarray]  # i64[N], how many these are

    def __init__(self, path: str | Path, every: int | None = None) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path).strip():
            raise ValueError(f"log is {path!r}: it must be the name of a file, such as 'tasks.csv'")
        self.path = Path(path)
        if self.path.is_dir():
            raise ValueError(f"log is {shown(str(path))}, a folder: it must be the name of a file, such as 'tasks.csv'")
        if every is not None and every < 1:
            raise ValueError(f"every is {every}: it must be at least 1")
        self._every = self._due = every  # attempts in an interval; `_due` is more after one that was not written
        self._space: TaskSpace | None = None
        self._table: CsvWriter | None = None
        self._last = -1  # rows after so many draws are of work that was lost
        self._saved = -1  # tasks that were drawn when the host's state was saved
        self._steps: int | None = 0  # None: somebody has not told it
        self._knows_steps = False  # those of earlier work are in it
        self._weights: np.ndarray | None = None  # as the interval began
        self._is_copy = False  # it writes nothing

    def of(self, host: Any, space: TaskSpace) -> "TaskLog":
        """The same, of this host and the tasks of its space.

        ValueError where they cannot be listed, and where the file cannot be written.
        """
        if self._space is not None:
            raise ValueError(f"log is {shown(str(self.path))} of another Host: give each Host its own")
        if space.n is None:
            raise ValueError(
                f"log is {shown(str(self.path))}: a log has a row for each task, and the tasks of "
                f"{type(space).__name__} cannot be listed"
            )
        self._try()
        self._space, self._n, self._drawn = space, space.n, 0
        self._due = self._every = max(LEAST, EACH * space.n) if self._every is None else self._every
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
        for name in self._sums.keys() & told.keys():
            np.add.at(self._sums[name], task, told[name] == 1 if name == "progress" else told[name])
            np.add.at(self._told[name], task, 1)
        length = told.get("length")
        if length is None:
            self._steps = None
        elif self._steps is not None:
            self._steps += int(np.broadcast_to(length, task.shape).sum(dtype=np.int64))
        # From a state that was saved after as many draws, a host would go on with this row in the table. But its
        # attempts would be made again. So the row waits for the next draw.
        if self._attempts.sum() >= self._due and n_drawn != self._saved:
            self.write()

    def write(self) -> None:
        """Writes the interval that has begun, if an attempt has ended in it.

        A warning if that cannot be: the training is worth more than its log. The interval goes on, and is written when
        as many attempts have ended again.
        """
        if self._is_copy or not self._attempts.any():
            return
        assert self._every is not None
        try:
            if self._table is None:
                self._table = self._opened()
            self._table.write(self._rows())
        except OSError as error:
            if self._due == self._every:
                say(f"{self.path} cannot be written, and the training goes on without it: {one_line(error)}")
            self._due = int(self._attempts.sum()) + self._every
            if self._table is not None:  # rows that were written in part are dropped when it is opened again
                self._table, self._last = None, max(self._last, 0)
            return
        self._last, self._due = self._drawn, self._every
        self._begin()

    def drew(self, n_drawn: int) -> None:
        """So many tasks have been drawn now."""
        if self._drawn == self._saved:  # a row that waits for this
            self._drawn = n_drawn

    def save(self, n_drawn: int) -> None:
        """`write`, where a state of the host is saved, so many draws after its beginning."""
        self.write()
        self._saved = n_drawn

    def _rows(self) -> list[dict[str, Any]]:
        told = {name: np.where(n > 0, n, np.nan) for name, n in self._told.items()}
        solved, returns = (total / told[name] for name, total in self._sums.items())
        columns: tuple[Any, ...] = (self._weights, self._attempts, solved, returns)
        assert self._space is not None
        same = (self._drawn, "" if self._steps is None else self._steps)
        return [
            dict(zip(COLUMNS, (*same, task, name_on_a_line(self._space, task), *map(_cell, numbers)), strict=True))
            for task, numbers in enumerate(zip(*columns, strict=True))
        ]

    def grow(self, space: TaskSpace) -> None:
        """Goes on with a longer list. The interval that has begun ends, if it can be written."""
        assert space.n is not None
        self.write()
        more = (0, space.n - self._n)
        self._space, self._n = space, space.n
        self._attempts = np.pad(self._attempts, more)
        self._sums, self._told = ({name: np.pad(x, more) for name, x in of.items()} for of in (self._sums, self._told))
        self._weights = None if self._weights is None else np.pad(self._weights, more)

    def go_on(self, n_drawn: int) -> None:
        """The host goes on from a state in which so many tasks were drawn. Later rows are of work that was lost."""
        self._last, self._drawn, self._table, self._steps = n_drawn, n_drawn, None, 0
        self._knows_steps, self._due = False, self._every
        self._begin()

    def _begin(self) -> None:
        self._attempts = np.zeros(self._n, np.int64)
        self._sums = {name: np.zeros(self._n) for name in ("progress", "returns")}
        self._told = {name: np.zeros(self._n, np.int64) for name in self._sums}
        self._weights = None

    def _opened(self) -> CsvWriter:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._last < 0 and self.path.exists() and self.path.stat().st_size:
            kept = copy_aside(self.path, self.path.with_name("old_tables"))
            self.path.unlink()
            say(f"{self.path} is of another training: it begins anew, and the file as it was is kept in {kept}")
        table = CsvWriter(self.path, "drawn", self._last, say=say)
        known = [row["steps"] for row in table.kept[-1:]]
        if known and self._steps is not None and not self._knows_steps:
            self._steps = self._steps + int(float(known[0])) if known[0] else None
        self._knows_steps = True
        return table

    def _try(self) -> None:
        """ValueError in one line if the file cannot be written. What is in it stays, and none is made."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self.path.exists()
            if not is_new:
                check_regular(self.path, self.path.stat(), None)  # a pipe would wait for a reader
            with open(self.path, "ab"):
                pass
            if is_new:
                self.path.unlink()
        except OSError as error:
            raise ValueError(f"log is {shown(str(self.path))}, which cannot be written: {one_line(error)}") from error

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

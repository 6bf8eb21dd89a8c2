"""What became of each task so far: how often it was tried and solved, returns and lengths, in numbers of each task."""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.files import UnreadableFile
from minimax_lib.messages import shown
from minimax_lib.portable.log import name_on_a_line
from minimax_lib.store.files import write_atomically
from minimax_lib.store.tables import parsed
from minimax_lib.tasks.spaces import TaskSpace

MEASURES = ("progress", "returns", "length")  # of which the first is counted where it is 1
COLUMNS = (
    "number", "task", "share", "attempts", "solved_rate", "return_mean", "return_deviation", "length_mean",
    "length_deviation",
)  # fmt: skip
MOST_WAITING = 4096  # results that are kept before they are added up
MOST_CURVES = 50  # tasks that each have a curve of their share; of longer lists, only the highest shares have
BEST = 10  # tasks that are named as best, and as worst


class TaskStatistics:
    """Counts, means and deviations of every attempt that has ended, by task. Attempts that were given up are left out.

    `Host.statistics` is one. A measure that was not told for an attempt leaves this attempt out of its mean.
    """

    def __init__(
        self, space: TaskSpace, shares: Callable[[], np.ndarray | None], known: Mapping[str, np.ndarray] | None = None
    ) -> None:
        self._space, self._shares = space, shares
        # f64[measures, 3, N]: count, mean, sum of squares round the mean; i64[N]. `known` may be of a shorter list.
        known = blank_statistics(0) if known is None else known
        self._moments, self._attempts = np.array(known["moments"]), np.array(known["attempts"])
        self._waiting: list[tuple[np.ndarray, Mapping[str, Any]]] = []
        self._n_waiting = 0

    def add(self, task: np.ndarray, told: Mapping[str, Any]) -> None:
        """Attempts on these tasks (i32[M]) have ended, of which `told` says what is known. It is kept for a while."""
        self._waiting.append((np.array(task), told))
        self._n_waiting += len(task)
        if self._n_waiting >= MOST_WAITING:
            self._add_up()

    def table(self) -> dict[str, np.ndarray]:
        """The columns [N] of `COLUMNS` but for the names; NaN where nothing is known. Deviations are of the attempts.

        `share` is the task's share of the draws as they are now.
        """
        self._add_up()
        attempts, (count, mean, squares) = self._attempts, np.moveaxis(self._moments, 1, 0)
        known = count > 0
        mean = np.where(known, mean, np.nan)
        deviation = np.sqrt(np.where(known, squares / np.where(known, count, 1), np.nan))
        shares = self._shares()
        numbers = np.arange(len(attempts))
        columns: tuple[Any, ...] = (
            numbers,
            np.full(len(attempts), np.nan) if shares is None else shares,
            attempts,
            mean[0],
        )
        columns += (mean[1], deviation[1], mean[2], deviation[2])
        return dict(zip((name for name in COLUMNS if name != "task"), columns, strict=True))

    def save(self, path: str | Path) -> None:
        """Writes the table as CSV, with a row for each task, in place of a file of an earlier call.

        `minimax-plot` draws it. ValueError for a file that is something else.
        """
        path = Path(path)
        if path.is_dir() or path.suffix != ".csv":
            raise ValueError(f"the file is {shown(str(path))}: it must be one that ends in .csv")
        if path.exists() and not _is_ours(path):
            raise ValueError(f"{shown(str(path))} is another table: it is left as it is, give another name")
        table, text = self.table(), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        names = [name_on_a_line(self._space, task) for task in range(len(table["number"]))]
        columns = [names if name == "task" else map(_cell, table[name]) for name in COLUMNS]
        writer.writerows(zip(*columns, strict=True))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.getvalue())

    def curves(self) -> dict[str, float]:
        """Numbers for a log, by name: `wandb.log(host.statistics.curves())`.

        The shares of the tasks (of long lists, the ten highest), and the ten best and ten worst of the tasks that were
        tried, by solved rate, or by return where no progress was told.
        """
        table = self.table()
        name = self._space.name
        n = len(table["number"])
        share = np.nan_to_num(table["share"])
        shown_shares = range(n) if n <= MOST_CURVES else np.argsort(-share, kind="stable")[:BEST]
        found = {f"task_share/{name(int(i))}": float(share[i]) for i in shown_shares}
        by = "solved_rate" if np.isfinite(table["solved_rate"]).any() else "return_mean"
        tried = np.flatnonzero(np.isfinite(table[by]))
        order = tried[np.argsort(-table[by][tried], kind="stable")]
        for place, tasks in (("best", order[:BEST]), ("worst", order[::-1][:BEST])):
            found |= {f"task_{place}/{name(int(i))}": float(table[by][i]) for i in tasks}
        return found

    def to_tensorboard(self, writer: Any, step: int) -> None:
        """Writes `curves` with a `SummaryWriter` (of tensorboardX or of PyTorch)."""
        for name, value in self.curves().items():
            writer.add_scalar(name, value, step)

    def arrays(self) -> dict[str, np.ndarray]:
        """The state."""
        self._add_up()
        return {"moments": self._moments.copy(), "attempts": self._attempts.copy()}

    def grow(self, space: TaskSpace) -> None:
        """Goes on with a longer list."""
        self._add_up()
        self._space = space

    def _add_up(self) -> None:
        """Brings the moments up to date."""
        n = self._space.n
        assert n is not None
        more = n - self._moments.shape[-1]
        if more:
            self._moments = np.pad(self._moments, ((0, 0), (0, 0), (0, more)))
            self._attempts = np.pad(self._attempts, (0, more))
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        if waiting:
            np.add.at(self._attempts, np.concatenate([task for task, _ in waiting]), 1)
        for moments, name in zip(self._moments, MEASURES, strict=True):
            known = [(task, told[name]) for task, told in waiting if name in told]
            if known:
                tasks = np.concatenate([task for task, _ in known])
                values = [x if np.ndim(x) else np.broadcast_to(x, task.shape) for task, x in known]
                told_of = np.concatenate(values).astype(float)
                merge(moments, tasks, told_of >= 1 if name == "progress" else told_of)


def blank_statistics(n: int | None) -> dict[str, np.ndarray]:
    """`TaskStatistics.arrays` of `n` tasks, of which nothing is known."""
    return {"moments": np.zeros((len(MEASURES), 3, n or 0)), "attempts": np.zeros(n or 0, np.int64)}


def merge(moments: np.ndarray, tasks: np.ndarray, values: np.ndarray) -> None:
    """Adds `values` f64[M] of `tasks` i32[M] to `moments` f64[3, N] (Chan et al. 1979, eq. 2.1).

    These are the count, the mean, and the sum of squares round it.
    """
    own, place = np.unique(tasks, return_inverse=True)
    more = np.bincount(place)
    mean = np.bincount(place, values) / more
    squares = np.bincount(place, (values - mean[place]) ** 2)
    count, before, spread = moments[:, own]
    step, total = mean - before, count + more
    moments[:, own] = total, before + step * more / total, spread + squares + step**2 * count * more / total


def _cell(value: Any) -> Any:
    return int(value) if isinstance(value, np.integer) else "" if np.isnan(value) else float(value)


def _is_ours(path: Path) -> bool:
    try:
        return parsed(path).columns == list(COLUMNS)
    except UnreadableFile:
        return False

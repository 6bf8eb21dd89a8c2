"""Tables on disk that only grow."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minimax_lib.experiment.files import append_durably, write_atomically
from minimax_lib.experiment.writers.base import Row


class CsvWriter:
    """A table on disk that only grows; its columns are those of its rows, in their order.

    Rows are on disk when `write` returns. After a crash the last line may be cut off and rows may be there that
    belong to work that was lost: opening the table drops both, in one step.
    """

    def __init__(self, path: Path, key: str, last: int):
        """Keeps the rows of `path` whose column `key` is at most `last` (-1: none of them)."""
        self.path = path
        self.columns, rows = read_table(path)
        # A table that is not there is not made: `RunFolder.holds_run` takes a folder with metrics for a run.
        self.kept = [row for row in rows if _position(row, key) <= last]
        if path.exists():
            self._rewrite(self.kept)

    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows that all have the same columns. Columns that the table did not have are empty further up."""
        new = [name for name in rows[0] if name not in self.columns]
        if new:
            # Read again: `kept` are the rows of the start, and later ones are only on disk.
            _, earlier = read_table(self.path)
            self.columns += new
            self._rewrite(earlier)
        append_durably(self.path, self._lines(rows))

    def _rewrite(self, rows: Sequence[Row]) -> None:
        header = ",".join(self.columns) + "\n" if self.columns else ""
        write_atomically(self.path, header + self._lines(rows))

    def _lines(self, rows: Sequence[Row]) -> str:
        text = io.StringIO()
        table = csv.DictWriter(text, self.columns, restval="", lineterminator="\n")
        table.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
        return text.getvalue()


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """(columns, complete rows) of a CSV file, without a last line that was cut off; empty if there is no file."""
    if not path.exists():
        return [], []
    # A killed process may leave half a line, and a power cut any bytes: neither may keep the table from being read.
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        lines = [line for line in file if line.endswith("\n")]
    header, *rows = list(csv.reader(lines)) or [[]]
    return header, [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]


def _position(row: Mapping[str, str], key: str) -> float:
    try:
        return int(row[key])
    except (KeyError, ValueError):
        return math.inf  # nothing that the run wrote: a row that no position keeps


def _cell(value: Any) -> Any:
    """`value` as it is written: Python's floats with nine digits, others as they print (NumPy's are exact)."""
    return f"{value:.9g}" if isinstance(value, float) else value

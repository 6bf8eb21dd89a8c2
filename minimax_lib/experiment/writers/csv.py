"""Tables on disk that only grow."""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from minimax_lib.experiment.files import append_durably, copy_aside, write_atomically
from minimax_lib.experiment.writers.base import Row

OLD_TABLES = "old_tables"


@dataclasses.dataclass(frozen=True)
class Table:
    """What a CSV file holds."""

    columns: list[str]
    rows: list[dict[str, str]]
    unread: list[str]  # one sentence a line that is no row
    tail: dict[str, str] | None = None  # the last line, if it does not end and is as long as a row


class CsvWriter:
    """A table on disk that only grows; its columns are those of its rows, in their order.

    Rows are on disk when `write` returns. After a crash the last line may be cut off and rows may be there that
    belong to work that was lost: opening the table drops both, in one step. Whatever else is wrong with the file is
    the work of somebody else, before the table is opened or later. Then what can be read is kept in the table, a copy
    of the file as it was in the folder `OLD_TABLES` beside it, and one line says so.
    """

    def __init__(
        self,
        path: Path,
        key: str,
        last: int,
        numbers: Sequence[str] = (),
        n_rows: int | None = None,
        say: Callable[[str], None] = print,
    ):
        """Keeps the rows of `path` whose column `key` is at most `last` (-1: none of them).

        A row without a number in one of the columns `numbers` cannot be read. `n_rows` is how many rows are to be kept,
        if that is known.
        """
        self.path, self._key, self._say = path, key, say
        self._numbers = (key, *numbers)
        self.columns: list[str] = []
        self.n_rows = 0
        self._size = 0  # of the file as this process left it
        self.kept = self._take_up(last, n_rows)  # not those that are written later

    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows that all have the same columns. Columns that the table did not have are empty further up."""
        if _size(self.path) != self._size:
            self._take_up(math.inf, self.n_rows)
        new = [name for name in rows[0] if name not in self.columns]
        if new:
            # Read again: `kept` are the rows of the start, and later ones are only on disk.
            earlier = parsed(self.path, self._numbers).rows
            self.columns += new
            self._rewrite(earlier)
        append_durably(self.path, self._lines(rows))
        self.n_rows += len(rows)
        self._size = _size(self.path)

    def _take_up(self, last: float, n_rows: int | None) -> list[dict[str, str]]:
        """The rows to go on from; the file is left with them, and with nothing else."""
        found = parsed(self.path, self._numbers)
        # A line that does not end is the run's own if the rows were on disk before the checkpoint: somebody has saved
        # the file without its last line break. After the checkpoint a crash has cut it off, wherever that was.
        rows = [*found.rows, *([found.tail] if found.tail else [])]
        kept = [row for row in rows if float(row[self._key]) <= last]
        wrong = found.unread[:1]
        if len(found.unread) > 1:
            wrong.append(f"{len(found.unread)} lines cannot be read")
        if n_rows is not None and len(kept) != n_rows:
            wrong.append(f"it has {len(kept)} of its {n_rows} rows")
        if wrong:
            self._report(", ".join(wrong))
        self.columns = found.columns
        self.n_rows = len(kept)
        # A table that is not there is not made: `RunFolder.holds_run` takes a folder with metrics for a run.
        if self.path.exists():
            self._rewrite(kept)
        self._size = _size(self.path)
        return kept

    def _report(self, wrong: str) -> None:
        """Says what is wrong with the file, and keeps a copy of it."""
        if self.path.exists():
            copy = copy_aside(self.path, self.path.with_name(OLD_TABLES))
            self._say(f"{self.path} has been changed: {wrong}; the file as it was is kept in {copy}")
        else:
            self._say(f"{self.path} has been taken away: {wrong}")

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
    table = parsed(path)
    return table.columns, table.rows


def parsed(path: Path, numbers: Sequence[str] = ()) -> Table:
    """What a CSV file holds, where a row has a number in each of the columns `numbers`; empty if there is no file."""
    if not path.exists():
        return Table([], [], [])
    # A power cut may leave any bytes, and spreadsheets begin a file with a mark: neither keeps the table from being
    # read. A line at a time: a stray quote would otherwise take all the lines up to the next one into its cell.
    first, *lines = path.read_bytes().decode("utf-8-sig", errors="replace").split("\n")
    if not lines:
        return Table([], [], [])  # not even the header is whole
    try:
        columns = _header(first, numbers)
    except ValueError as error:
        return Table([], [], [f"line 1 {error}", *lines[:-1]])  # nothing tells what the others mean
    rows, unread, tail = [], [], None
    for i, line in enumerate(lines):
        try:
            row = _row(line, columns, numbers)
        except ValueError as error:
            if i < len(lines) - 1:
                unread.append(f"line {i + 2} {error}")
            continue
        if i == len(lines) - 1:
            tail = row
        elif row:
            rows.append(row)
    return Table(columns, rows, unread, tail)


def _header(line: str, numbers: Sequence[str]) -> list[str]:
    """The names of the columns; ValueError if they are not those of the table."""
    columns = _cells(line)
    missing = [name for name in numbers if name not in columns]
    if missing:
        raise ValueError(f"names no column {missing[0]!r}")
    if len(set(columns)) < len(columns):
        raise ValueError("names a column twice")
    return columns


def _row(line: str, columns: Sequence[str], numbers: Sequence[str]) -> dict[str, str] | None:
    """The cells by name, None for an empty line; ValueError if the line is no row."""
    if not line.strip():
        return None
    cells = _cells(line)
    if len(cells) != len(columns):
        raise ValueError(f"has {len(cells)} cells of {len(columns)}")
    row = dict(zip(columns, cells, strict=True))
    for name in numbers:
        if not _is_number(row[name]):
            raise ValueError(f"has no number in column {name!r}")
    return row


def _cells(line: str) -> list[str]:
    if "\ufffd" in line:
        raise ValueError("is not UTF-8 text")
    try:
        return next(csv.reader([line.removesuffix("\r")], strict=True), [])
    except csv.Error as error:
        raise ValueError(f"is not CSV ({error})") from None


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _size(path: Path) -> int:
    """The bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _cell(value: Any) -> Any:
    """`value` as it is written: Python's floats with nine digits, others as they print (NumPy's are exact)."""
    return f"{value:.9g}" if isinstance(value, float) else value

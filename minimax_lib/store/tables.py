"""Tables on disk that only grow."""

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minimax_lib.store.files import append_durably, copy_aside, write_atomically

Row = Mapping[str, Any]
OLD_TABLES = "old_tables"
OLD_NAMES = {"task": "maze", "solved_rate": "solved"}  # what earlier versions called columns of their tables of tasks


@dataclasses.dataclass(frozen=True)
class Table:
    """The content of a CSV file."""

    columns: list[str]
    rows: list[dict[str, str]]
    unread: list[str]  # a sentence for each line that is not a row
    tail: dict[str, str] | None = None  # the last line, if it has no line break and is as long as a row


class CsvWriter:
    """A table on disk that only grows. Its columns are those of its rows, in their order.

    Rows are on disk when `write` returns. A crash may cut off the last line, and may leave rows of work that was lost.
    Opening the table drops both, in one step.

    Anything else that is wrong with the file was done from outside, before the table was opened or later. Then the
    table keeps what can be read, the file as it was is copied to the folder `OLD_TABLES` beside it, and one line says
    so.

    A table that an earlier version began keeps its header: `OLD_NAMES` says under which names its columns go on.
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

        `numbers` are columns that must hold a number: a row without one is not read. `n_rows` is the number of rows
        that should be kept, if it is known.
        """
        self.path, self._key, self._say = path, key, say
        self._numbers = (key, *numbers)
        self.columns: list[str] = []
        self.n_rows = 0
        self._size = 0  # bytes of the file, as this process left it
        self.kept = self._take_up(last, n_rows)  # rows of the start, without those that are written later

    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows, which must all have the same columns. In the rows before, new columns are empty."""
        if _size(self.path) != self._size:
            self._take_up(math.inf, self.n_rows)
        names = old_names(self.columns)
        rows = [{names.get(name, name): value for name, value in row.items()} for row in rows]
        new = [name for name in rows[0] if name not in self.columns]
        if new:
            # Read again: `kept` does not have the rows that were written since the start.
            earlier = parsed(self.path, self._numbers).rows
            self.columns += new
            self._rewrite(earlier)
        append_durably(self.path, self._lines(rows))
        self.n_rows += len(rows)
        self._size = _size(self.path)

    def _take_up(self, last: float, n_rows: int | None) -> list[dict[str, str]]:
        """The rows to go on from. The file is left with them alone."""
        found = parsed(self.path, self._numbers)
        # The last line may have no line break. If it is from before the checkpoint, it is complete: somebody has saved
        # the file without its last line break. If it is later, a crash may have cut it off anywhere.
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
        # No file is made here: `RunFolder.holds_run` takes a folder with metrics for a run.
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
    """(columns, complete rows) of a CSV file, without a last line that was cut off; empty if there is no file.

    Columns that an earlier version called otherwise have today's names.
    """
    table = parsed(path)
    names = {old: name for name, old in old_names(table.columns).items()}
    rows = [{names.get(name, name): cell for name, cell in row.items()} for row in table.rows]
    return [names.get(name, name) for name in table.columns], rows


def old_names(columns: Sequence[str]) -> dict[str, str]:
    """Today's names of columns -> those in the header `columns` of an earlier version; empty for any other header."""
    # Only tables of tasks had such names. In metrics.csv, which has a clock, they would be metrics of a plugin.
    if "maze" not in columns or "clock" in columns:
        return {}
    return {name: old for name, old in OLD_NAMES.items() if old in columns and name not in columns}


def parsed(path: Path, numbers: Sequence[str] = ()) -> Table:
    """The content of a CSV file, whose rows have a number in each of the columns `numbers`; empty without a file."""
    if not path.exists():
        return Table([], [], [])
    # The table must be readable whatever bytes a power cut has left, and with the mark that spreadsheets put first.
    # Lines are parsed one by one. Otherwise a stray quote would join all lines up to the next quote in one cell.
    first, *lines = path.read_bytes().decode("utf-8-sig", errors="replace").split("\n")
    if not lines:
        return Table([], [], [])  # not even the header is whole
    try:
        columns = _header(first, numbers)
    except ValueError as error:
        return Table([], [], [f"line 1 {error}", *lines[:-1]])  # without a header, no line can be read
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
    """The names of the columns. ValueError if they are not those of the table."""
    columns = _cells(line)
    missing = [name for name in numbers if name not in columns]
    if missing:
        raise ValueError(f"names no column {missing[0]!r}")
    if len(set(columns)) < len(columns):
        raise ValueError("names a column twice")
    return columns


def _row(line: str, columns: Sequence[str], numbers: Sequence[str]) -> dict[str, str] | None:
    """The cells by name, None for an empty line. ValueError if the line is not a row."""
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
    """The number of bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _cell(value: Any) -> Any:
    """`value` as it is written: Python's floats with nine digits, all others as they print.

    NumPy's floats print exactly.
    """
    return f"{value:.9g}" if isinstance(value, float) else value

"""Tables on disk that only grow."""

import contextlib
import csv
import dataclasses
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minimax_lib.files import MOST_TABLE, UnreadableFile, opened, read_bytes
from minimax_lib.messages import shown
from minimax_lib.store.files import append_durably, copy_aside, say_unread, write_atomically

Row = Mapping[str, Any]
OLD_TABLES = "old_tables"
KEYS = ("update", "seed")  # columns of the tables of a run that say what a row is of
TEXTS = frozenset({"task", "protocol", "actions", "opponent", "player"})  # columns of text, in any table
LONGEST_HINT = 1000  # bytes of a header that are looked at to say what may be wrong with it
OLD_NAMES = {"task": "maze", "solved_rate": "solved"}  # what earlier versions called columns of their tables of tasks


@dataclasses.dataclass(frozen=True)
class Table:
    """The content of a CSV file."""

    columns: list[str]
    rows: list[dict[str, str]]
    lines: list[int]  # the number of the line that each row stands in
    unread: dict[int, str]  # what is wrong with each line that is not a row, by its number
    tail: dict[str, str] | None = None  # the last line, if it has no line break and is as long as a row
    cut: int = 0  # the number of the last line, if it has no line break


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
        wrong = [f"line {number} {why}" for number, why in list(found.unread.items())[:1]]
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


def read_table(path: Path, keys: Sequence[str] = ()) -> tuple[list[str], list[dict[str, str]]]:
    """(columns, rows) of a CSV file that a run or an evaluation has written; empty if there is no file.

    `keys` are columns that must hold a number: a row without one is left out, and so is a last line that was cut off.
    Columns that an earlier version called otherwise have today's names. A warning (`UnreadLines`) says which lines are
    left out, and where a column has what is no number. ValueError in one line where nothing can be read.
    """
    table = parsed(path, keys)
    if table.unread and not table.columns:
        raise UnreadableFile(path, f"cannot be read: line 1 {table.unread[1]}{_hint(path)}")
    names = {old: name for name, old in old_names(table.columns).items()}
    columns = [names.get(name, name) for name in table.columns]
    faults = table.unread | _no_numbers(columns, table)
    if table.cut:
        faults[table.cut] = "has no line break: it is left out, since it may have been cut off"
    if faults:
        say_unread(path, faults)
    return columns, [{names.get(name, name): cell for name, cell in row.items()} for row in table.rows]


def _no_numbers(columns: Sequence[str], table: Table) -> dict[int, str]:
    """What is wrong with each row that has a cell that is no number, in a column of numbers; by the line's number."""
    numeric = [name for name, new in zip(table.columns, columns, strict=True) if new not in TEXTS]
    found = {}
    for number, row in zip(table.lines, table.rows, strict=True):
        wrong = next((name for name in numeric if row[name] and not _is_float(row[name])), None)
        if wrong is not None:
            found[number] = f"has {shown(row[wrong])} in column {wrong!r}, which is no number"
    return found


def _hint(path: Path) -> str:
    """What may have been done to a table whose header cannot be read."""
    with opened(path, MOST_TABLE) as file:
        line = file.readline(LONGEST_HINT)
    if line[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in line:
        return " (it looks like UTF-16: save it as UTF-8)"
    other = next((mark for mark in ";\t" if mark.encode() in line), None)
    return f" (its cells are divided by {other!r}: save it with commas)" if other else ""


def old_names(columns: Sequence[str]) -> dict[str, str]:
    """Today's names of columns -> those in the header `columns` of an earlier version; empty for any other header."""
    # Only tables of tasks had such names. In metrics.csv, which has a clock, they would be metrics of a plugin.
    if "maze" not in columns or "clock" in columns:
        return {}
    return {name: old for name, old in OLD_NAMES.items() if old in columns and name not in columns}


def parsed(path: Path, numbers: Sequence[str] = ()) -> Table:
    """The content of a CSV file, whose rows have a number in each of the columns `numbers`; empty without a file.

    UnreadableFile where it is no regular file, or has more bytes than any table.
    """
    if not path.exists():
        return Table([], [], [], {})
    # The table must be readable whatever bytes a power cut has left, and with the mark that spreadsheets put first.
    # Lines are parsed one by one. Otherwise a stray quote would join all lines up to the next quote in one cell.
    first, *lines = read_bytes(path, MOST_TABLE).decode("utf-8-sig", errors="replace").split("\n")
    if not lines:
        return Table([], [], [], {}, cut=1 if first else 0)  # not even the header is whole
    try:
        columns, n_blank = _header(first, numbers)
    except ValueError as error:
        # Without a header, no line can be read.
        return Table([], [], [], {1: str(error)} | dict.fromkeys(range(2, len(lines) + 1), ""))
    rows, places, tail = [], [], None
    unread: dict[int, str] = {}
    for number, line in enumerate(lines[:-1], start=2):
        try:
            row = _row(line, columns, n_blank, numbers)
        except ValueError as error:
            unread[number] = str(error)
            continue
        if row:
            rows.append(row)
            places.append(number)
    with contextlib.suppress(ValueError):
        tail = _row(lines[-1], columns, n_blank, numbers)
    return Table(columns, rows, places, unread, tail, cut=len(lines) + 1 if lines[-1].strip() else 0)


def _header(line: str, numbers: Sequence[str]) -> tuple[list[str], int]:
    """(the names of the columns, blank ones behind them); ValueError if they are not those of the table."""
    columns = cells = _cells(line)
    # A spreadsheet in which somebody has clicked beside the table saves blank columns too.
    while columns and not columns[-1]:
        columns = columns[:-1]
    missing = [name for name in numbers if name not in columns]
    if missing:
        raise ValueError(f"names no column {missing[0]!r}")
    if len(set(columns)) < len(columns):
        raise ValueError("names a column twice")
    return columns, len(cells) - len(columns)


def _row(line: str, columns: Sequence[str], n_blank: int, numbers: Sequence[str]) -> dict[str, str] | None:
    """The cells by name, None for an empty line. ValueError if the line is not a row, up to `n_blank` blank cells."""
    if not line.strip():
        return None
    cells = _cells(line)
    if len(columns) < len(cells) <= len(columns) + n_blank and not any(cells[len(columns) :]):
        cells = cells[: len(columns)]
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
    return _is_float(cell) and math.isfinite(float(cell))


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _size(path: Path) -> int:
    """The number of bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _cell(value: Any) -> Any:
    """`value` as it is written: Python's floats with nine digits, all others as they print.

    NumPy's floats print exactly.
    """
    return f"{value:.9g}" if isinstance(value, float) else value

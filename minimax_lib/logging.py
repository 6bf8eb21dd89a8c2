"""What a run says while it goes on: tables on disk, and a line for people."""

import csv
import dataclasses
import io
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from minimax_lib.files import append_durably, write_atomically

PLAIN_SECONDS = 5.0
FLUSH_SECONDS = 1

Row = Mapping[str, Any]


class Writer(Protocol):
    """Takes rows as they come: numbers and text by name, `update` and `seed` among them."""

    def write(self, rows: Sequence[Row]) -> None: ...


class CsvWriter:
    """A table on disk that only grows; its columns are those of its rows, in their order.

    Rows are on disk when `write` returns. After a crash the last line may be cut off and rows may be there that
    belong to work that was lost: opening the table drops both, in one step.
    """

    def __init__(self, path: Path, key: str, last: int):
        """Keeps the rows of `path` whose column `key` is at most `last` (-1: none of them)."""
        self.path = path
        self.columns, rows = read_table(path)
        self.kept = [row for row in rows if _position(row, key) <= last]
        if path.exists():
            self._rewrite(self.kept)

    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows that all have the same columns. Columns that the table did not have are empty further up."""
        new = [name for name in rows[0] if name not in self.columns]
        if new:
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


class TensorBoardWriter:
    """The same rows as curves for TensorBoard, a folder a seed; text in a row goes before the names of its numbers.

    Needs tensorboardX, which writes in the background and is at most `FLUSH_SECONDS` behind. The first update that is
    written takes the place of what an earlier process wrote from there on.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._seeds: dict[int, Any] = {}

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            curves = self._curves(row["seed"], row["update"])
            label = [value for value in row.values() if isinstance(value, str)]
            numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
            for name in numbers.keys() - {"update", "seed"}:
                curves.add_scalar("/".join([*label, name]), float(numbers[name]), row["update"])

    def close(self) -> None:
        """Waits until everything is written."""
        for curves in self._seeds.values():
            curves.close()

    def _curves(self, seed: int, update: int) -> Any:
        if seed not in self._seeds:
            from tensorboardX import SummaryWriter

            folder = str(self._folder / f"seed_{seed}")
            self._seeds[seed] = SummaryWriter(folder, purge_step=update, flush_secs=FLUSH_SECONDS)
        return self._seeds[seed]


def read_table(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """(columns, complete rows) of a CSV file, without a last line that was cut off; empty if there is no file."""
    if not path.exists():
        return [], []
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        lines = [line for line in file if line.endswith("\n")]
    header, *rows = list(csv.reader(lines)) or [[]]
    return header, [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]


def _position(row: Mapping[str, str], key: str) -> float:
    try:
        return int(row[key])
    except (KeyError, ValueError):
        return math.inf


def _cell(value: Any) -> Any:
    """Nine digits give a 32-bit float back exactly."""
    return f"{value:.9g}" if isinstance(value, float) else value


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a run stands."""

    update: int
    n_updates: int
    steps_per_second: float = math.nan  # environment steps of all seeds, over the last interval
    seconds_left: float = math.nan
    training_return: float = math.nan
    solved_rate: float = math.nan

    def __str__(self) -> str:
        parts = [f"update {self.update:,}/{self.n_updates:,}"]
        if math.isfinite(self.steps_per_second):
            parts.append(f"{self.steps_per_second:,.0f} steps/s")
        if math.isfinite(self.seconds_left):
            parts.append(f"{duration(self.seconds_left)} left")
        if math.isfinite(self.training_return):
            parts.append(f"return {self.training_return:.3f}")
        if math.isfinite(self.solved_rate):
            parts.append(f"solved {self.solved_rate:.0%}")
        return "  ".join(parts)


def duration(seconds: float) -> str:
    """As in 1:02:03, or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """One live line in a terminal; elsewhere plain lines, at most one in `PLAIN_SECONDS` seconds."""

    def __init__(self, console: Console):
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None
        self._activity = ""
        self._standing: Standing | None = None
        self._printed_at = -math.inf

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live:
            self._live.stop()
        self._print_plain()

    def doing(self, activity: str) -> None:
        """What the run is busy with: compiling, training, evaluating, saving."""
        self._activity = activity
        if self._live:
            self._show(self._live)
        elif self._printed_at < 0:
            self._print(f"{activity} ...")

    def stands(self, standing: Standing) -> None:
        """How far the run is."""
        self._standing = standing
        if self._live:
            self._show(self._live)
        elif time.monotonic() - self._printed_at >= PLAIN_SECONDS:
            self._print_plain()

    def say(self, line: str) -> None:
        """A line that stays."""
        self._print_plain()
        self._print(line)

    def _show(self, live: Live) -> None:
        text = Text(f"{self._activity:<10}  {self._standing or ''}", no_wrap=True, overflow="ellipsis")
        live.update(Spinner("dots", text))

    def _print_plain(self) -> None:
        """Where there is no live line: how far the run is, unless that has been printed."""
        if self._standing and not self._live:
            self._print(str(self._standing))
            self._standing = None
            self._printed_at = time.monotonic()

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

"""What a run says to people while it goes on."""

import dataclasses
import math
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

PLAIN_SECONDS = 5.0


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
        # Elsewhere, rich would show nothing of a transient line: plain lines take its place.
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
        # The end of a run may have been held back by `PLAIN_SECONDS`.
        self._print_plain()

    def doing(self, activity: str) -> None:
        """What the run is busy with: compiling, training, evaluating, saving."""
        self._activity = activity
        if self._live:
            self._show(self._live)
        # Plain lines tell of activities only until the first interval is done: after it, the updates say enough.
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
        # What was held back by `PLAIN_SECONDS` comes first: a log reads in the order in which things happened.
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
        # Lines hold paths and messages: brackets in them are no markup, and a long one must not be broken in two.
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

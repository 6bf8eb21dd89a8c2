"""What a run prints while it goes on."""

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
TRAINING = "training"  # the one activity without a time: what the line says of the run is enough


@dataclasses.dataclass(frozen=True)
class Standing:
    """How far a run is, for the progress line."""

    update: int
    n_updates: int
    steps_per_second: float = math.nan  # environment steps of all seeds, over the last interval
    seconds_left: float = math.nan
    training_return: float = math.nan
    solved_rate: float = math.nan
    alive: float = math.nan  # share of the agents' steps in which they were alive, where there are several agents
    about: str = ""  # what comes first: of a sweep, its trials

    def __str__(self) -> str:
        parts = [*([self.about] if self.about else []), f"update {self.update:,}/{self.n_updates:,}"]
        if math.isfinite(self.steps_per_second):
            parts.append(f"{self.steps_per_second:,.0f} steps/s")
        if math.isfinite(self.seconds_left):
            parts.append(f"{duration(self.seconds_left)} left")
        if math.isfinite(self.training_return):
            parts.append(f"return {self.training_return:.3f}")
        if math.isfinite(self.solved_rate):
            parts.append(f"solved {self.solved_rate:.0%}")
        if math.isfinite(self.alive):
            parts.append(f"alive {self.alive:.0%}")
        return "  ".join(parts)

    def within(self, width: int) -> str:
        """As much of it as fits into `width` characters: what comes last is left out first."""
        parts = str(self).split("  ")
        while len(parts) > 1 and len("  ".join(parts)) > width:
            parts.pop()
        return "  ".join(parts)


def duration(seconds: float) -> str:
    """A time as 1:02:03, or 2:03 if it is less than an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """One live line in a terminal. Elsewhere plain lines, at most one in `PLAIN_SECONDS` seconds."""

    def __init__(self, console: Console):
        self.console = console
        self._spinner = Spinner("dots")
        self._activity, self._since = "", 0.0
        self._standing: Standing | None = None
        self._printed_at = -math.inf
        # Outside a terminal, rich would show nothing of a transient line. Plain lines take its place.
        live = Live(console=console, get_renderable=self._line, refresh_per_second=8, transient=True)
        self._live = live if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live:
            self._live.stop()
        # The last line may have been held back by `PLAIN_SECONDS`.
        self._print_plain()

    def doing(self, activity: str) -> None:
        """Shows what the run is doing: compiling, training, evaluating, saving. In a terminal, for how long too."""
        if activity != self._activity:
            self._activity, self._since = activity, time.monotonic()
        if self._live:
            self._live.refresh()
        # Plain lines name activities only until the first interval is done. After that, the updates say enough.
        elif self._printed_at < 0:
            self._print(f"{activity} ...")

    def stands(self, standing: Standing) -> None:
        """Shows how far the run is."""
        self._standing = standing
        if self._live:
            self._live.refresh()
        elif time.monotonic() - self._printed_at >= PLAIN_SECONDS:
            self._print_plain()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        # What was held back by `PLAIN_SECONDS` comes first, so that a log reads in the order of events.
        self._print_plain()
        self._print(line)

    def _line(self) -> Text:
        """What is done, for how long, and how far the run is: one line, however narrow the terminal."""
        doing = self._activity
        if doing and doing != TRAINING:
            doing += f"  {duration(time.monotonic() - self._since)}"
        parts = [doing] if doing and (doing != TRAINING or not self._standing) else []
        if self._standing:
            parts.append(self._standing.within(self.console.width - len("  ".join([*parts, ""])) - 3))
        sign = self._spinner.render(self.console.get_time())
        return Text.assemble(str(sign), " ", "  ".join(parts), no_wrap=True, overflow="ellipsis")

    def _print_plain(self) -> None:
        """Prints how far the run is, if there is no live line and it has not been printed yet."""
        if self._standing and not self._live:
            self._print(str(self._standing))
            self._standing = None
            self._printed_at = time.monotonic()

    def _print(self, line: str) -> None:
        # Lines hold paths and messages. Brackets in them are not markup, and a long line must not be broken.
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

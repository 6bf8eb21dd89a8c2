"""How a process leaves on a signal: the one line that it prints, and its exit status."""

import signal
import sys

# A closed terminal (SIGHUP) is no signal of every system.
ENDING = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """A signal asks the process to leave. As every KeyboardInterrupt, it is no `Exception`: nobody handles it."""

    def __init__(self, number: int):
        super().__init__()
        self.number = signal.Signals(number)


def exit_status(number: signal.Signals) -> int:
    """The exit status of a process that a signal has ended, as shells count it: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + number


def last_line(number: signal.Signals, more: str = "") -> str:
    """What is said of a process that the signal ends; `more` says when, or what to do next."""
    return ("interrupted" if number == signal.SIGINT else f"ended by {number.name}") + more


def interrupted(error: KeyboardInterrupt, more: str = "") -> int:
    """Prints that line; the exit status."""
    number = error.number if isinstance(error, Interrupted) else signal.SIGINT
    print(last_line(number, more), file=sys.stderr, flush=True)
    return exit_status(number)

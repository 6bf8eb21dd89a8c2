"""How each command starts: the entry points of the package, `train.py` and `evaluate.py`.

Here, and only here, output is made unfailing and signals are taken over, before anything that is slow is imported.
`python -m minimax_lib.commands.launch train ...` is `minimax-train ...`.
"""

import atexit
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from minimax_lib.leaving import ENDING, Interrupted, exit_status, interrupted, last_line
from minimax_lib.output import guard_output, show_cursor, write_at_once

COMMANDS = ("train", "evaluate", "plot", "draw", "play", "report", "sweep")
PATIENCE = 2.0  # seconds that a command has to leave after a signal


class Signals:
    """What becomes of Ctrl-C, SIGTERM and SIGHUP. Those that are ignored (nohup) stay so.

    `leave` is called with the number of the first; a second Ctrl-C leaves at once. Python calls no handler while XLA
    compiles, so a thread listens too, and ends the process after `PATIENCE` seconds.
    """

    def __init__(self) -> None:
        self.leave: Callable[[int], None] = leave_at_once
        self.number: int | None = None  # of the first that Python has handled
        self._heard: int | None = None  # of the first that the thread has heard, perhaps before Python handles it
        self.status: int | None = None  # of the command, when it has ended
        self._taken = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        if self._taken:
            reader, writer = os.pipe()
            os.set_blocking(writer, False)
            signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            threading.Thread(target=self._listen, args=(reader,), daemon=True).start()
        for number in self._taken:
            signal.signal(number, self._handle)
        # Registered first, so it runs last: Python is about to give the signals back, and the work is done.
        atexit.register(self._ignore)

    def _ignore(self) -> None:
        for number in self._taken:
            signal.signal(number, signal.SIG_IGN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            self.leave(number)
        # A second SIGTERM asks for nothing new. A second Ctrl-C comes from a person who does not want to wait.
        elif number == signal.SIGINT:
            self._end()

    def _listen(self, reader: int) -> None:
        self._heard = self._next(reader)
        end = threading.Timer(PATIENCE, self._end)
        end.daemon = True
        end.start()
        while self._next(reader) != signal.SIGINT:
            pass
        self._end()

    def _next(self, reader: int) -> int:
        while True:
            number = os.read(reader, 1)[0]
            if number in self._taken:
                return number

    def _end(self) -> None:
        if self.status is not None:
            os._exit(self.status)
        leave_at_once(self.number or self._heard or signal.SIGINT)


def launched(command: str) -> int:
    """The exit status of a command with the words of this process."""
    guard_output()
    # XLA's alarm about a slow compilation would break into the progress line. Its errors are raised in Python too.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    signals = Signals()  # they leave at once: there is nothing to tidy up yet, and an import may swallow exceptions
    main = importlib.import_module(f"minimax_lib.commands.{command}").main
    sys.unraisablehook = quietly(sys.unraisablehook)
    signals.leave = raise_interrupted
    status = 1  # of an error that Python prints
    try:
        status = main()
    except KeyboardInterrupt as error:
        status = interrupted(error)
    except Exception:
        # Code in C may turn an interruption into any error.
        if signals.number is None:
            raise
        status = interrupted(Interrupted(signals.number))
    except SystemExit as error:  # the help has been printed
        status = error.code if isinstance(error.code, int) else 1
    finally:
        # The work is over. From here on, a signal only makes the end quicker.
        signals.status, signals.leave = status, lambda number: os._exit(status)
    if signals.number is not None:
        sys.stdout.flush()
        # Without waiting for threads, as Python would: XLA's may be compiling for minutes.
        os._exit(exit_status(signal.Signals(signals.number)))
    return status


def raise_interrupted(number: int) -> None:
    raise Interrupted(number)


def leave_at_once(number: int) -> None:
    """Prints one line and ends the process, whatever its threads are doing."""
    show_cursor()
    write_at_once(last_line(signal.Signals(number)))
    os._exit(exit_status(signal.Signals(number)))


def quietly(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`hook`, but nothing is printed of an interruption where Python cannot pass it on, as in a destructor."""
    return lambda told: None if isinstance(told.exc_value, KeyboardInterrupt) else hook(told)


def train() -> int:
    """minimax-train."""
    return launched("train")


def evaluate() -> int:
    """minimax-evaluate."""
    return launched("evaluate")


def plot() -> int:
    """minimax-plot."""
    return launched("plot")


def draw() -> int:
    """minimax-draw."""
    return launched("draw")


def play() -> int:
    """minimax-play."""
    return launched("play")


def report() -> int:
    """minimax-report."""
    return launched("report")


def sweep() -> int:
    """minimax-sweep."""
    return launched("sweep")


if __name__ == "__main__":
    command = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if command not in COMMANDS:
        write_at_once(f"error: unknown command {command!r}: choose from {', '.join(COMMANDS)}")
        sys.exit(2)
    sys.exit(launched(command))

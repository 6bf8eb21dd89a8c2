"""SIGINT and SIGTERM as requests, so that a run can save before it leaves."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class StopRequest:
    """A context in which the first SIGINT or SIGTERM is only noted, in `signal`; a later SIGINT is a KeyboardInterrupt.

    Outside the main thread, where Python delivers no signals, it notes nothing.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            line = f"\n{self.signal.name}: saving at the end of this interval (Ctrl-C leaves at once)\n"
            os.write(2, line.encode())  # past Python's buffers, which the interrupted code may be using
        # A second SIGTERM asks for nothing new. A second Ctrl-C is a person who does not want to wait.
        elif number == signal.SIGINT:
            raise KeyboardInterrupt


def exit_status(number: signal.Signals) -> int:
    """The exit status that shells give to a process that a signal has ended: 130 for SIGINT, 143 for SIGTERM."""
    return 128 + number

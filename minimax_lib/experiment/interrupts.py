"""SIGINT, SIGTERM and SIGHUP as requests, so that a run can save before it leaves."""

import contextlib
import os
import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from minimax_lib.leaving import ENDING, exit_status
from minimax_lib.output import show_cursor, write_at_once

PATIENCE = 2.0  # seconds that Python has to end on a second Ctrl-C


class StopRequest:
    """A context that notes the first SIGINT, SIGTERM or SIGHUP in `signal`. A later SIGINT raises KeyboardInterrupt.

    A terminal that is closed sends SIGHUP, which stays ignored where it was (nohup).

    If the context has not ended `PATIENCE` seconds after that, or at the next signal, the process prints `last_words`
    and ends. Outside the main thread Python delivers no signals, and the context notes nothing.
    """

    def __init__(self, last_words: str = "interrupted") -> None:
        self.signal: signal.Signals | None = None
        self._last_words = last_words
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # Python runs signal handlers in the main thread, between two of its own steps. XLA, or a disk that does not
            # answer, may hold that thread for any time. Bytes on the wakeup socket arrive in spite of that.
            received, self._bytes = socket.socketpair()
            self._bytes.setblocking(False)
            numbers = [number for number in ENDING if number == signal.SIGINT or not is_ignored(number)]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
            self._bytes_before = signal.set_wakeup_fd(self._bytes.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(received,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._before:
            signal.set_wakeup_fd(self._bytes_before)
            self._bytes.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = signal.Signals(number)
            write_at_once(f"\n{self.signal.name}: saving at the end of this interval (Ctrl-C leaves at once)")
        # A second SIGTERM asks for nothing new. A second Ctrl-C means: do not wait.
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    def _watch(self, received: socket.socket) -> None:
        """Ends the process if a second Ctrl-C has not done so. Returns when the context ends."""
        with received:
            n_signals = 0
            while True:
                number = received.recv(1)
                if not number:
                    return
                n_signals += number[0] in ENDING
                if n_signals > 1 and number[0] == signal.SIGINT:
                    break
            received.settimeout(PATIENCE)
            with contextlib.suppress(TimeoutError):
                if not received.recv(1):
                    return
            leave_at_once(self._last_words)


def is_ignored(number: signal.Signals) -> bool:
    """Whether this process was started so that the signal does nothing."""
    return signal.getsignal(number) is signal.SIG_IGN


def leave_at_once(line: str) -> None:
    """Prints `line` and ends the process with Ctrl-C's exit status, whatever its threads are doing."""
    show_cursor()
    write_at_once(line)
    os._exit(exit_status(signal.SIGINT))

"""Standard output and error that cannot fail: what cannot be shown or written is left out, and the work goes on."""

import contextlib
import errno
import io
import os
import select
import sys
from typing import Any

SHOW_CURSOR = b"\x1b[?25h"
STREAMS = {1: "stdout", 2: "stderr"}  # the attributes of sys, by file descriptor


class Unfailing(io.FileIO):
    """A file descriptor. Once a write fails, this and all later ones are dropped.

    A pipe that nobody reads (`| head`) is dropped in silence. Of a full disk, one line on stderr tells.
    """

    def __init__(self, number: int, name: str):
        super().__init__(number, "w", closefd=False)
        self._label, self._lost = name, False

    def write(self, data: Any, /) -> int:
        """The number of bytes in `data`, whatever became of them."""
        n, left = memoryview(data).nbytes, memoryview(data).cast("B")
        try:
            while left and not self._lost:
                n_written = super().write(left)
                if n_written is None:  # another process has made the terminal non-blocking, and it is full
                    select.select([], [self], [], 1)
                left = left[n_written or 0 :]
        except OSError as error:
            self._lost = True
            if error.errno != errno.EPIPE:
                write_at_once(f"warning: {self._label} cannot be written: {error.strerror}")
        return n


def guard_output() -> None:
    """Makes sys.stdout and sys.stderr unfailing, with a replacement for letters that the terminal does not have."""
    keep_open()
    for number, name in STREAMS.items():
        before = getattr(sys, name)
        encoding = getattr(before, "encoding", None) or "utf-8"
        errors = "replace" if number == 1 else "backslashreplace"
        if before is not None:
            with contextlib.suppress(OSError):
                before.flush()
        buffer = io.BufferedWriter(Unfailing(number, f"standard {'output' if number == 1 else 'error'}"))
        # A line appears when it ends: of output in a pipe, a process that is killed would lose the last 8,000 bytes.
        setattr(sys, name, io.TextIOWrapper(buffer, encoding, errors, line_buffering=True))


def keep_open() -> None:
    """Opens the null device as each of the three standard files that is closed (`>&-`).

    Otherwise the next file that is opened, maybe a checkpoint, would take its number and what is printed.
    """
    for number in (0, *STREAMS):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)


def show_cursor() -> None:
    """Gives a terminal its cursor back, which the line of progress hides. It cannot fail."""
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, SHOW_CURSOR)


def write_at_once(line: str) -> None:
    """Writes a line on stderr past Python's buffers, which interrupted code may be using. It cannot fail."""
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="backslashreplace"))

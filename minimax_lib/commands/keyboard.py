"""The terminal of `minimax-play`: its keys, its screen, and what is needed of it."""

import contextlib
import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

CLEAR, HOME, END_OF_LINE, BELOW = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
OPEN, CLOSE = "\x1b[?1049h\x1b[?25l" + CLEAR, "\x1b[?25h\x1b[?1049l"  # another screen, without a cursor; and back
ARROWS = {"\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left"}
ARROWS |= {sequence.replace("[", "O"): name for sequence, name in ARROWS.items()}  # as some terminals send them
LETTERS = {"w": "up", "a": "left", "s": "down", "d": "right"}
LEAVE = ("q", "\x1b", "\x04")  # q, Escape, Ctrl-D

ReadKey = Callable[[float | None], str | None]  # the next key; None if there is none within so many seconds
Write = Callable[[str], Any]


@contextlib.contextmanager
def terminal() -> Iterator[tuple[ReadKey, Write]]:
    """(the keys, the screen) of this process's terminal, which is as it was after the block."""
    import termios  # not on Windows, as `check_terminal` says
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        tty.setcbreak(number)  # keys come one by one, and are not shown; Ctrl-C still interrupts
        write(OPEN)
        yield Keys(number).read, write
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
        write(CLOSE)


class Keys:
    """The keys that are typed, by name. Arrows come as several characters, and fast ones all at once."""

    def __init__(self, number: int):
        self._number, self._typed = number, ""

    def read(self, wait: float | None) -> str | None:
        """The next key; None if none is pressed within `wait` seconds."""
        if not self._typed:
            if not select.select([self._number], [], [], wait)[0]:
                return None
            typed = os.read(self._number, 1024)
            if not typed:
                return LEAVE[0]  # the terminal is gone
            self._typed = typed.decode(errors="replace")
        for sequence, name in ARROWS.items():
            if self._typed.startswith(sequence):
                self._typed = self._typed.removeprefix(sequence)
                return name
        if self._typed.startswith(("\x1b[", "\x1bO")):
            self._typed = ""  # some other key of several characters
            return ""
        key, self._typed = self._typed[0], self._typed[1:]
        return key


def check_terminal() -> None:
    """ValueError where there is no keyboard, or no screen to draw on."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None or not stream.isatty():
            raise ValueError(
                f"standard {name} is not a terminal, which minimax-play needs: minimax-draw writes pictures"
            )
    try:
        import termios  # noqa: F401
    except ImportError:
        raise ValueError("this system has no terminal that minimax-play knows: minimax-draw writes pictures") from None


def has_colours() -> bool:
    """Whether the terminal shows colours and the letters that arrows are."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return encoding == "utf8" and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "dumb")

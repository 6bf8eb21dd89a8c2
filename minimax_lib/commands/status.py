"""How commands begin and end: what is refused, what is said, and the exit status."""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from minimax_lib.config.words import as_typed
from minimax_lib.leaving import interrupted
from minimax_lib.messages import failure, printable

Request = TypeVar("Request")


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """A block, or a command, in which what the package warns its users of is one line on stderr, each line once."""
    said: set[str] = set()
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if not issubclass(category, UserWarning):
            shown(message, category, *where)
        elif str(message) not in said:
            said.add(str(message))
            print(f"warning: {printable(' '.join(str(message).split()))}", file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = shown


@plain_warnings()
def carried_out(
    argv: Sequence[str] | None, prepare: Callable[[Sequence[str]], Request], work: Callable[[Request], int]
) -> int:
    """The exit status of a command with the words `argv` (by default this process's).

    `prepare` checks all that is asked for: its ValueError or OSError is one line on stderr and status 2. `work` does it
    and gives the status: what fails from then on is one line and status 1. Ctrl-C is status 130.
    """
    try:
        request = prepare(sys.argv[1:] if argv is None else argv)
    except (ValueError, OSError) as error:
        return refuse(error, argv)
    except KeyboardInterrupt as error:
        return interrupted(error)
    try:
        return work(request)
    except KeyboardInterrupt as error:
        return interrupted(error)
    except _failures() as error:  # the types are asked for only when something has failed
        from minimax_lib.experiment.failures import XLA_ERRORS, picture_failure

        line = picture_failure(error) if isinstance(error, XLA_ERRORS) else failure(error)
        print(f"error: {printable(line)}", file=sys.stderr)
        return 1


def refuse(error: ValueError | OSError, argv: Sequence[str] | None = None) -> int:
    """2, the exit status for bad input, which is printed as one line, with the flags as they were typed.

    Bad input is also a folder that may not be searched, an OSError. All of this package's messages are one line. An
    error of several lines is a bug, and keeps its traceback.
    """
    if not isinstance(error, ValueError):
        message = failure(error)
    elif "\n" in str(error):
        raise error
    else:
        message = as_typed(str(error), sys.argv[1:] if argv is None else argv)
    print(f"error: {printable(message)}", file=sys.stderr)
    return 2


def without_sweeps(folders: Sequence[str]) -> list[str]:
    """`folders` without those of sweeps, where something else is named: `runs/*` finds `runs/sweeps` too."""
    sweeps = [
        folder for folder in folders if any(Path(folder).glob("sweep.yaml")) or any(Path(folder).glob("*/sweep.yaml"))
    ]
    if len(sweeps) == len(folders):
        return list(folders)  # what is wrong with them is said where runs are read
    for folder in sweeps:
        print(f"note: {printable(folder)} holds sweeps, and is left out", file=sys.stderr)
    return [folder for folder in folders if folder not in sweeps]


def _failures() -> tuple[type[Exception], ...]:
    """What fails without being a bug."""
    from minimax_lib.experiment.failures import XLA_ERRORS  # slow to import, as what follows
    from minimax_lib.store.checkpoint import CheckpointError

    return OSError, CheckpointError, *XLA_ERRORS


def nothing_drawn() -> int:
    """Says so; the exit status."""
    print("error: nothing can be drawn from these runs", file=sys.stderr)
    return 1


def say(line: str) -> None:
    """Prints a line."""
    print(printable(line), flush=True)

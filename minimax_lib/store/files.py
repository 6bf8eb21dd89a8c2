"""Files that are written completely or not at all, and the list of checkpoints in a folder."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path

from minimax_lib.files import MOST_TABLE, UnreadableFile, check_regular, naming, read_bytes
from minimax_lib.messages import one_line

MOST_NAMED = 5  # further lines in a warning


class UnreadLines(UserWarning):
    """Some lines of a file could not be read. One line, with the name of the file. Commands print it as it is."""


def say_unread(path: Path, faults: Mapping[int, str]) -> None:
    """Warns of lines of `path` that could not be read, by their numbers. Says what is wrong with the first of them."""
    (first, why), *others = sorted(faults.items())
    numbers = ", ".join(str(number) for number, _ in others[:MOST_NAMED])
    hidden = f", and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
    more = f" (lines with faults too: {numbers}{hidden})" if others else ""
    warnings.warn(f"{path}: line {first} {why}{more}", UnreadLines, stacklevel=3)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replaces `path` in one step: a reader sees the old content or the new one, also after a crash.

    OSError, with the name of the file, where it cannot be written. Then nothing is left of the new content.
    """
    # In the same folder: a file cannot be moved in one step from one file system to another.
    partial = path.with_name(f"{path.name}.partial")
    # It must be a new file. In another user's folder, a file of this name may be a link to anywhere.
    partial.unlink(missing_ok=True)
    with naming(path):
        # The new file is on disk before it gets its name. Otherwise a power cut could leave an empty file of that name.
        _write_whole(partial, content)
        os.replace(partial, path)


def write_new(path: Path, content: str | bytes) -> None:
    """Writes a file that does not exist, and waits until the disk has it. FileExistsError where it does.

    OSError, with the name of the file, where it cannot be written whole. Then it is not there.
    """
    with naming(path):
        _write_whole(path, content)


def _write_whole(path: Path, content: str | bytes) -> None:
    with path.open("xb") as file:
        try:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def append_durably(path: Path, text: str) -> None:
    """Adds `text` to the end of `path` and waits until the disk has it. OSError, with the name of the file, if not."""
    if path.exists():
        check_regular(path, path.stat(), None)  # a pipe would wait for a reader
    with naming(path), path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def copy_aside(path: Path, folder: Path) -> Path:
    """Copies `path` into `folder`, and returns the path of the copy. If its name is taken, a number is added to it."""
    folder.mkdir(exist_ok=True)
    content, n_taken = read_bytes(path, MOST_TABLE), 0
    while True:
        copy = folder / (f"{path.stem}-{n_taken}{path.suffix}" if n_taken else path.name)
        try:
            write_new(copy, content)
            return copy
        except FileExistsError:
            n_taken += 1


def saved_updates(folder: Path) -> list[int]:
    """The updates of which `folder` has a complete checkpoint, oldest first; empty if there is no folder.

    UnreadableFile where it may not be read.
    """
    # Only names that a run itself writes. "007" or digits of another script would name a checkpoint that is not there.
    return sorted(int(name) for name in names_in(folder) if name == _canonical(name))


def names_in(folder: Path) -> list[str]:
    """What is in `folder`; empty if there is no folder. UnreadableFile where it may not be read."""
    # `Path.glob` would find nothing there, as if all had been lost.
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableFile(folder, f"cannot be read: {error.strerror or one_line(error)}") from None


def _canonical(name: str) -> str | None:
    """The number `name`, as a run would write it; None if it is not a number."""
    return str(int(name)) if name.isascii() and name.isdecimal() else None

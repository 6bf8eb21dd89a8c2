"""Files that are written whole or not at all, and which checkpoints there are."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` in one step: whoever reads it, also after a crash, sees the old text or the new one."""
    # Beside `path`, since a file cannot be moved in one step from one file system to another.
    partial = path.with_name(f"{path.name}.partial")
    # A new file, and not one that is there: in somebody else's folder that may be a link to anywhere.
    partial.unlink(missing_ok=True)
    with partial.open("x", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        # Before the new file takes its name: after a power cut, the name could otherwise stand for an empty file.
        os.fsync(file.fileno())
    os.replace(partial, path)


def append_durably(path: Path, text: str) -> None:
    """Adds `text` to the end of `path` and waits until the disk has it."""
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def copy_aside(path: Path, folder: Path) -> Path:
    """A copy of `path` in `folder`, under its name or, where that is taken, its name and a number; where it is."""
    folder.mkdir(exist_ok=True)
    content, n_taken = path.read_bytes(), 0
    while True:
        copy = folder / (f"{path.stem}-{n_taken}{path.suffix}" if n_taken else path.name)
        try:
            with copy.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            return copy
        except FileExistsError:
            n_taken += 1


def saved_updates(folder: Path) -> list[int]:
    """The updates of which `folder` has a complete checkpoint, oldest first; empty if there is no folder."""
    # Only names that a run writes: digits of other scripts, or 007, would be taken for a checkpoint that is not there.
    return sorted(int(path.name) for path in folder.glob("*") if path.name == _canonical(path.name))


def _canonical(name: str) -> str | None:
    """The number `name` as a run writes it; None if it is no number."""
    return str(int(name)) if name.isascii() and name.isdecimal() else None

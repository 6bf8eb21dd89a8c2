"""Files that are written whole or not at all, and which checkpoints there are."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replaces `path` in one step: whoever reads it, also after a crash, sees the old text or the new one."""
    # Beside `path`, since a file cannot be moved in one step from one file system to another.
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
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


def saved_updates(folder: Path) -> list[int]:
    """The updates of which `folder` has a complete checkpoint, oldest first; empty if there is no folder."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())

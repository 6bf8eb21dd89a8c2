"""Files that are written completely or not at all, and the list of checkpoints in a folder."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replaces `path` in one step: a reader sees the old content or the new one, also after a crash."""
    # In the same folder: a file cannot be moved in one step from one file system to another.
    partial = path.with_name(f"{path.name}.partial")
    # It must be a new file. In another user's folder, a file of this name may be a link to anywhere.
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        # Before the new file gets its name. Otherwise a power cut could leave an empty file of that name.
        os.fsync(file.fileno())
    os.replace(partial, path)


def append_durably(path: Path, text: str) -> None:
    """Adds `text` to the end of `path` and waits until the disk has it."""
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def copy_aside(path: Path, folder: Path) -> Path:
    """Copies `path` into `folder`, and returns the path of the copy. If its name is taken, a number is added to it."""
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
    # Only names that a run itself writes. "007" or digits of another script would name a checkpoint that is not there.
    return sorted(int(path.name) for path in folder.glob("*") if path.name == _canonical(path.name))


def _canonical(name: str) -> str | None:
    """The number `name`, as a run would write it; None if it is not a number."""
    return str(int(name)) if name.isascii() and name.isdecimal() else None

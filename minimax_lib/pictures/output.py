"""A folder of figures. No file that the user has put there is lost."""

import hashlib
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

from minimax_lib.files import MOST_TABLE, UnreadableFile, read_bytes, read_json
from minimax_lib.store.files import write_atomically

RECORD = ".minimax-plot.json"  # the fingerprints of the files that were written here, by name


class FigureFolder:
    """A folder that figures are written to.

    A file that an earlier call of the command wrote and that has not changed since is replaced. Any other file is kept,
    another figure of this call too: then the new figure's files get a number (`curve-return-2.png`).
    """

    def __init__(self, path: Path, record: str = RECORD):
        """OSError if there is no such folder and it cannot be made."""
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._record_file = path / record
        self._record = self._read_record()
        self._written: set[Path] = set()  # by this object

    def _read_record(self) -> dict[str, str]:
        try:
            found = read_json(self._record_file)
        except UnreadableFile:
            return {}  # then no file is known to be ours
        return {str(name): str(mark) for name, mark in found.items()} if isinstance(found, dict) else {}

    def write(self, name: str, contents: Mapping[str, bytes]) -> list[Path]:
        """Writes the files `name`.ENDING with the contents by ending, all under one number; where they are."""
        for number in itertools.count(1):
            stem = name if number == 1 else f"{name}-{number}"
            paths = {self.path / f"{stem}.{ending}": content for ending, content in contents.items()}
            if all(self._may_be_written(path, content) for path, content in paths.items()):
                break
        for path, content in paths.items():
            write_atomically(path, content)  # a link is replaced, and what it points to is left alone
            self._record[path.name] = _mark(content)
        self._written |= paths.keys()
        write_atomically(self._record_file, json.dumps(self._record, indent=1, sort_keys=True) + "\n")
        return list(paths)

    def _may_be_written(self, path: Path, content: bytes) -> bool:
        if not (path.exists() or path.is_symlink()):
            return True
        try:
            there = read_bytes(path, MOST_TABLE)
        except UnreadableFile:
            return False
        # Two figures of one call may have one name: those of two logs that are both called tasks.csv.
        is_earlier = path not in self._written and self._record.get(path.name) == _mark(there)
        return there == content or is_earlier


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

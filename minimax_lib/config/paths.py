"""Checks of paths and names of files, for all commands."""

import os
from pathlib import Path

from minimax_lib.messages import is_plain, shown

LONGEST_NAME, LONGEST_PATH = 255, 4000  # bytes, on all common file systems


def check_path(name: str, path: str) -> None:
    """ValueError where the setting `name` is not a path that a file can have."""
    if not is_plain(path):
        raise ValueError(f"{name} is {shown(path)}: it must be text without control characters")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ValueError(f"{name} is {shown(path)}: it must be at most {LONGEST_PATH} bytes long")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(path).parts):
        raise ValueError(f"{name} is {shown(path)}: the name of a folder must be at most {LONGEST_NAME} bytes long")


def check_cache(place: str) -> None:
    """ValueError where compiled programs cannot be kept in `place`."""
    if not place:
        raise ValueError("compilation_cache is '': it must be auto, none, or a folder")

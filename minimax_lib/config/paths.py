"""Checks of paths and names of files, for all commands."""

import os
from pathlib import Path

from minimax_lib.messages import is_invisible, is_plain, shown

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
LONGEST_NAME, LONGEST_PATH = 255, 4000  # bytes, on all common file systems


def check_path(name: str, path: str) -> None:
    """ValueError where the setting `name` is not a path that a file can have."""
    if not is_plain(path):
        raise ValueError(f"{name} is {shown(path)}: it must be text without control characters")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ValueError(f"{name} is {shown(path)}: it must be at most {LONGEST_PATH} bytes long")
    if any(is_invisible(part) for part in Path(path).parts):
        raise ValueError(f"{name} is {shown(path)}: the name of a folder must have a letter that can be seen")
    if any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(path).parts):
        raise ValueError(f"{name} is {shown(path)}: the name of a folder must be at most {LONGEST_NAME} bytes long")


def check_no_home(name: str, path: str) -> None:
    """ValueError where `path` begins with ~, and what is written there would come into a folder of that name.

    Shells put the home folder in its place, but not in --log-dir=~/runs, and not in a file.
    """
    if Path(path).parts[:1] == ("~",) and not os.path.exists("~"):
        raise ValueError(
            f"{name} is {shown(path)}, where ~ does not stand for your home folder: write it out, as in "
            f"{shown(os.path.expanduser(path))}"
        )


def at_home(name: str, path: str | Path) -> Path:
    """The path that the setting `name` is, with ~ as the home folder; ValueError where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        home = Path(path).parts[0]
        raise ValueError(f"{name} is {shown(str(path))}: there is no home folder {shown(home)}") from None


def check_cache(place: str) -> None:
    """ValueError where compiled programs cannot be kept in `place`."""
    if not place:
        raise ValueError("compilation_cache is '': it must be auto, none, or a folder")


def cache_folder(place: str) -> Path | None:
    """The folder that keeps compiled programs: with auto that of JAX's own variable, or one in the user's cache."""
    if place == "none":
        return None
    if place == "auto":
        return Path(os.environ.get(CACHE_VARIABLE) or user_cache() / "minimax_lib" / "jax")
    return Path(place)


def user_cache() -> Path:
    """The user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))


def check_cache_folder(place: str) -> None:
    """ValueError where a folder for compiled programs that somebody has named cannot be one: there is a file."""
    check_cache(place)
    check_no_home("compilation_cache", place)
    folder = cache_folder(place)
    if folder is None or (place == "auto" and not os.environ.get(CACHE_VARIABLE)):
        return
    there = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not there.is_dir():
        asked = f"compilation_cache is {shown(place)}"
        named = f"{asked} and {CACHE_VARIABLE} is {shown(str(folder))}" if place == "auto" else asked
        raise ValueError(f"{named}: it must be a folder, and {shown(str(there))} is a file")

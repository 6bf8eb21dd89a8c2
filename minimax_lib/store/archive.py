"""The archive of a run: parameters alone, of chosen updates. Nothing in it is ever deleted or overwritten."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minimax_lib.files import Forms
from minimax_lib.store.files import copy_aside, names_in, write_atomically
from minimax_lib.store.parameters import about_params, load_params, npz_bytes

FILE = re.compile(r"update-(0|[1-9][0-9]*)\.npz")
OTHERS = "others"  # a folder in the archive for files that were in the way


def archived(folder: Path) -> dict[int, Path]:
    """Update -> file of every archive in `folder`, oldest first; empty if there is no folder.

    UnreadableFile where it may not be read.
    """
    found = {int(name[1]): folder / name[0] for name in map(FILE.fullmatch, names_in(folder)) if name}
    return dict(sorted(found.items()))


def keep(folder: Path, update: int, params: Mapping[str, Any], about: Mapping[str, Any]) -> Path | None:
    """Writes the parameters of an update, with what `about` (JSON) says of them.

    The file appears when it is complete. One with the same parameters is left as it is: a resumed run comes to the same
    updates again. One with others is moved to the folder `OTHERS`. Returns its new path, and None if there was none.
    """
    path = folder / f"update-{update}.npz"
    content = npz_bytes(params, {"update": update} | dict(about))
    folder.mkdir(exist_ok=True)
    moved = None
    if path.exists():
        if _has_parameters(path, params):
            return None
        moved = copy_aside(path, folder / OTHERS)
    write_atomically(path, content)
    return moved


def read(path: Path, wanted: Forms) -> tuple[int, Any, dict[str, Any]]:
    """(update, parameters [S, A, ...], what the file says of them).

    ValueError in one line if it cannot be read, or has not the parameters `wanted` (see `load_params`).
    """
    return int(path.stem.removeprefix("update-")), load_params(path, wanted), about_params(path)


def _has_parameters(path: Path, params: Mapping[str, Any]) -> bool:
    try:
        found = load_params(path)
    except ValueError:
        return False
    return _equal(found, params)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) or isinstance(other, Mapping):
        both = isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys()
        return both and all(_equal(one[name], other[name]) for name in one)
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)

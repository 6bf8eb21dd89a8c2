"""Parameters of a network as a NumPy archive, which any other program can read."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import numpy as np

PREFIX = "params/"  # of the names of arrays
ABOUT = "about"  # the name of the text


def save_params(path: str | Path, params: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> Path:
    """Writes nested dicts of arrays as an .npz file, and returns its path. No file is ever overwritten.

    The array in `params["a"]["b"]` is called `params/a/b`. `about` (JSON) is kept as the text `about`. ValueError in
    one line where the file exists, cannot be written, or `params` cannot be named so.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path is {str(path)!r}: it must end with .npz")
    content = npz_bytes(params, about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise ValueError(f"{path} exists: no file is overwritten, choose another name") from None
    except OSError as error:
        raise ValueError(f"cannot write to {path}: {error.strerror or error}") from None
    return path


def npz_bytes(params: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> bytes:
    """The content of the file that `save_params` writes. The same parameters have the same bytes."""
    arrays = named(jax.tree.map(np.asarray, jax.device_get(params)))
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **{ABOUT: np.array(json.dumps(about or {}))}, **arrays)
    return file.getvalue()


def named(params: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays, or their shapes, by the names that they have in a file; ValueError if they cannot be in one."""
    arrays = dict(_named(params, PREFIX.rstrip("/")))
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise ValueError(f"{name} is of the type {array.dtype}: an .npz file has only NumPy's own numbers")
    return arrays


def load_params(path: str | Path) -> dict[str, Any]:
    """The parameters in an .npz file as `save_params` wrote them, as NumPy arrays.

    Nothing in the file is run. ValueError in one line where it cannot be read.
    """
    params: dict[str, Any] = {}
    for name, array in _archive(Path(path)).items():
        if name.startswith(PREFIX):
            *way, last = name.removeprefix(PREFIX).split("/")
            place = params
            for part in way:
                place = place.setdefault(part, {})
            place[last] = array
    if not params:
        raise ValueError(f"{path} holds no parameters: no array in it is called {PREFIX}...")
    return params


def about_params(path: str | Path) -> dict[str, Any]:
    """What the file says about its parameters; empty if it says nothing."""
    archive = _archive(Path(path))
    try:
        about = json.loads(str(archive[ABOUT])) if ABOUT in archive else {}
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise ValueError(f"{path} is damaged: the text {ABOUT!r} in it is not what was written")
    return about


def _archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or 'it is damaged'}") from None
    # A file of another kind (numpy tries pickle on it, which is off), a single array, and a damaged archive.
    except (ValueError, EOFError, TypeError, BadZipFile):
        raise ValueError(f"{path} is not an .npz file of plain arrays") from None


def _named(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, array) of every leaf of nested dicts."""
    if not isinstance(tree, Mapping):
        if jax.tree_util.all_leaves([tree]):
            yield name, tree
            return
        raise ValueError(f"{name} is a {type(tree).__name__}: only nested dicts of arrays can be exported")
    for key, part in tree.items():
        if not isinstance(key, str) or "/" in key:
            raise ValueError(f"{name} has the key {key!r}: a key must be text without a slash")
        yield from _named(part, f"{name}/{key}")

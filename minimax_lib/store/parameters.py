"""Parameters of a network as a NumPy archive, which any other program can read."""

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from minimax_lib.config.paths import at_home
from minimax_lib.files import Forms, UnreadableFile, read_arrays
from minimax_lib.messages import shown
from minimax_lib.store.files import write_new

PREFIX = "params/"  # of the names of arrays
ABOUT = "about"  # the name of the text
NUMBERS = "biufc"  # kinds of types: NumPy's own numbers
DEEPEST = 50  # groups of parameters within each other
MOST_ABOUT = 1_000_000  # characters of it; a real one has some thousand


def save_params(path: str | Path, params: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> Path:
    """Writes nested dicts of arrays as an .npz file, and returns its path. No file is ever overwritten.

    The array in `params["a"]["b"]` is called `params/a/b`. `about` (JSON) is kept as the text `about`. ValueError in
    one line where the file exists, cannot be written, or `params` cannot be named so.
    """
    path = at_home("path", path)
    if path.suffix != ".npz":
        raise ValueError(f"path is {str(path)!r}: it must end with .npz")
    content = npz_bytes(params, about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, content)
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
        if array.dtype.kind not in NUMBERS:
            raise ValueError(f"{name} is of the type {array.dtype}: an .npz file has only NumPy's own numbers")
    return arrays


def load_params(path: str | Path, wanted: Forms | None = None) -> dict[str, Any]:
    """The parameters in an .npz file as `save_params` wrote them, as NumPy arrays.

    Nothing in the file is run. ValueError in one line where it cannot be read, or where its parameters have not the
    types and shapes `wanted` (by `named`; None: any): then none of them has been read.
    """

    def fault(forms: Forms) -> str:
        found = {name: form for name, form in forms.items() if name.startswith(PREFIX)}
        if wanted is not None and found != dict(wanted):
            return "does not hold the parameters of this run"
        for name, (kind, _) in found.items():
            if kind.kind not in NUMBERS:
                return f"is damaged: {shown(name)} in it is of the type {kind}"
        return _fault_in_names(found) if found else f"holds no parameters: no array in it is called {PREFIX}..."

    params: dict[str, Any] = {}
    for name, array in read_arrays(at_home("path", path), lambda name: name.startswith(PREFIX), fault).items():
        *way, last = name.removeprefix(PREFIX).split("/")
        place = params
        for part in way:
            place = place.setdefault(part, {})
        place[last] = array
    return params


def about_params(path: str | Path) -> dict[str, Any]:
    """What the file says about its parameters; empty if it says nothing. ValueError in one line as `load_params`."""

    def fault(forms: Forms) -> str:
        kind, shape = forms.get(ABOUT, (np.dtype("U1"), ()))
        is_text = kind.kind == "U" and shape == () and kind.itemsize <= 4 * MOST_ABOUT
        return "" if is_text else f"is damaged: {ABOUT!r} in it is {kind}{list(shape)} and no text that was written"

    archive = read_arrays(at_home("path", path), ABOUT.__eq__, fault)
    try:
        about = json.loads(str(archive[ABOUT])) if ABOUT in archive else {}
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise UnreadableFile(path, f"is damaged: the text {ABOUT!r} in it is not what was written")
    return about


def forms_of(params: Any) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """(type, shape) of each array, or of its shape, by the name that it has in a file."""
    return {name: (np.dtype(x.dtype), tuple(x.shape)) for name, x in named(params).items()}


def _fault_in_names(forms: Forms) -> str:
    """What is wrong with the names of parameters: one cannot be an array and hold others too."""
    for name in forms:
        way = name.split("/")
        if len(way) > DEEPEST:
            return f"is damaged: {shown(name)} in it is nested too deep"
        for i in range(1, len(way)):
            if "/".join(way[:i]) in forms:
                return f"is damaged: {shown('/'.join(way[:i]))} in it is an array, and holds {shown(name)} too"
    return ""


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

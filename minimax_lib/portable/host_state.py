"""The state of a host as a flat dict of NumPy arrays, with the settings that it belongs to and a checksum of each."""

import dataclasses
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.files import forms_in
from minimax_lib.messages import one_line, printable

VERSION = 2
# Version 1 had no checksums. It also saved the attempts under way, which cannot go on.
LEFT_OUT = {1: ("tally.", "books[", "steps["), VERSION: ()}
HEADING = ("version", "settings", "checksums")


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of `tree` by their way through it, below `name`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {name + jax.tree_util.keystr(path): np.array(_data(x)) for path, x in paths}


def _is_key(x: Any) -> bool:
    return isinstance(x, jax.Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _data(x: Any) -> Any:
    return jax.random.key_data(x) if _is_key(x) else x


def settings(name: str, value: Any) -> dict[str, str]:
    """The fields of `value`, and of what is in it, by name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {name: type(value).__name__}
        for field in dataclasses.fields(value):
            parts |= settings(f"{name}.{field.name}", getattr(value, field.name))
        return parts
    if isinstance(value, tuple | list) and any(dataclasses.is_dataclass(part) for part in value):
        return {k: v for i, part in enumerate(value) for k, v in settings(f"{name}[{i}]", part).items()}
    if callable(value):
        return {name: getattr(value, "__qualname__", type(value).__name__)}
    if isinstance(value, np.ndarray | jax.Array):
        value = np.asarray(value)
        return {name: f"{value.dtype}{list(value.shape)} {hashlib.sha1(value.tobytes()).hexdigest()[:12]}"}
    shown = repr(value)
    return {name: shown if len(shown) <= 200 else f"{shown[:80]}... {hashlib.sha1(shown.encode()).hexdigest()[:12]}"}


def sealed(own: dict[str, str], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays with a heading: the version, the settings `own`, and a checksum of each array."""
    sums = {name: _checksum(array) for name, array in arrays.items()}
    heading = {"settings": np.array(json.dumps(own)), "checksums": np.array(json.dumps(sums))}
    return {"version": np.array(VERSION, np.int32)} | heading | arrays


def tasks_in(settings: dict[str, Any]) -> int | None:
    """The number of tasks that settings of a core name; none if they name none."""
    found = [str(value) for name, value in settings.items() if re.fullmatch(r"core(\.inner)*\.n_tasks", name)]
    return int(found[0]) if found and re.fullmatch(r"[1-9]\d{0,9}", found[0]) else None


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


class Saved:
    """A saved state from outside, which should be one of `sealed`. All of it is checked before any part is used.

    Every check is a ValueError in one line. `take` gives the parts, and `done` says that there are no others. `own` are
    the settings that it must have; a function gives them for those that it has.
    """

    def __init__(self, arrays: Any, own: dict[str, str] | Callable[[dict[str, Any]], dict[str, str]]):
        self._arrays = read_arrays(arrays)
        version = self._arrays.get("version")
        if version is None or version.shape != () or version.dtype.kind not in "iu" or int(version) not in LEFT_OUT:
            known = " or ".join(map(str, LEFT_OUT))
            raise ValueError(f"the saved state has version {printable(str(version))}: it must be {known}")
        self._version = int(version)
        self.settings = theirs = self._table("settings")
        own = own(theirs) if callable(own) else own
        for name in sorted(own.keys() | theirs.keys(), key=lambda name: (name.count("."), name)):
            if theirs.get(name) != own.get(name):
                raise ValueError(
                    f"the state was saved with {printable(name)}={printable(str(theirs.get(name)))}, and this Host has "
                    f"{printable(name)}={own.get(name)}"
                )
        self._sums = self._table("checksums") if self._version == VERSION else None
        self._taken: set[str] = set(HEADING[: 2 if self._sums is None else 3])

    def take(self, name: str, like: Any) -> Any:
        """A tree in the form of `like`, of the arrays below `name`."""
        paths, form = jax.tree_util.tree_flatten_with_path(like)
        leaves = []
        for path, x in paths:
            found = self._array(name + jax.tree_util.keystr(path), np.asarray(_data(x)))
            leaves.append(jax.random.wrap_key_data(jnp.asarray(found)) if _is_key(x) else found)
        return jax.tree_util.tree_unflatten(form, leaves)

    def content(self, name: str) -> bytes:
        """Bytes of any length."""
        found = self._arrays.get(name, np.zeros((), np.uint8))
        return self._array(name, np.zeros(found.size, np.uint8)).tobytes()

    def count(self, name: str, most: int | None = None) -> int:
        """A whole number from 0 to `most`."""
        number = int(self._array(name, np.array(0)))
        if number < 0 or (most is not None and number > most):
            allowed = "at least 0" if most is None else f"from 0 to {most}"
            raise ValueError(f"{name!r} is {number} in the saved state: it must be {allowed}")
        return number

    def has(self, name: str) -> bool:
        """Whether there are arrays below `name`."""
        return any(known.startswith(name) for known in self._arrays)

    def done(self) -> None:
        """All has been taken."""
        for name in self._sums or ():
            if name not in self._arrays:
                raise ValueError(f"the saved state has no array {printable(name)!r}")
        for name in self._arrays:
            if name not in self._taken and not name.startswith(LEFT_OUT[self._version]):
                raise ValueError(f"the saved state has an array {name!r}, of which this Host knows nothing")

    def _array(self, name: str, wanted: np.ndarray) -> np.ndarray:
        found = self._arrays.get(name)
        if found is None:
            raise ValueError(f"the saved state has no array {name!r}")
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise ValueError(
                f"{name!r} is {found.dtype}{list(found.shape)} in the saved state: it must be "
                f"{wanted.dtype}{list(wanted.shape)}"
            )
        if self._sums is not None and self._sums.get(name) != _checksum(found):
            raise ValueError(f"{name!r} is damaged in the saved state: it is not what was saved")
        if self._sums is None and (wrong := _impossible(found, wanted)):
            raise ValueError(f"{name!r} is damaged in the saved state: it has {wrong}")
        self._taken.add(name)
        return found

    def _table(self, name: str) -> dict[str, Any]:
        """The dict that was written as text."""
        try:
            table = json.loads(str(self._arrays[name]))
        except (KeyError, ValueError, RecursionError):
            table = None
        if not isinstance(table, dict):
            raise ValueError(f"the saved state has no readable {name}: it is damaged, or state_dict did not give it")
        return table


def _impossible(found: np.ndarray, like: np.ndarray) -> str:
    """What numbers without a checksum have that can hardly be: NaN, or counts below 0, where `like` has none."""
    if found.dtype.kind == "f" and np.isnan(found).any() and not np.isnan(like).any():
        return "nan"
    return "negative numbers" if found.dtype.kind == "i" and (found < 0).any() and not (like < 0).any() else ""


def read_arrays(arrays: Any) -> dict[str, np.ndarray]:
    """All arrays of a saved state. A file that `numpy.load` has opened is read here. ValueError in one line."""
    if not isinstance(arrays, Mapping):
        raise ValueError(f"the saved state is a {type(arrays).__name__}: it must be the dict that state_dict gave")
    if isinstance(arrays, np.lib.npyio.NpzFile) and arrays.zip is not None:
        _check_archive(arrays.zip)
    found = {}
    for name in arrays:
        try:
            found[name] = np.asarray(arrays[name])
        except Exception as error:  # whatever NumPy and zip files say of damaged bytes
            raise ValueError(f"{name!r} cannot be read from the saved state: {one_line(error)}") from error
        if not isinstance(name, str) or found[name].dtype.kind not in "biufUV":
            raise ValueError(f"{name!r} is a {type(arrays[name]).__name__} in the saved state: it must be an array")
    return found


def _check_archive(archive: Any) -> None:
    """ValueError unless the headers in an archive that `numpy.load` has opened say that it can be read."""
    try:
        forms_in(archive, archive.start_dir)  # the list of members begins behind all of them
    except Exception as error:  # as above
        raise ValueError(f"the saved state is refused: {one_line(error)}") from error

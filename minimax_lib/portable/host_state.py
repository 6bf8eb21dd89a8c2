"""The state of a `Host` as a flat dict of NumPy arrays, with the settings that it belongs to."""

import dataclasses
import hashlib
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

VERSION = 1


def flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    """The arrays of `tree` by their way through it, below `name`."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {name + jax.tree_util.keystr(path): np.array(_data(x)) for path, x in paths}


def filled(name: str, like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A tree in the form of `like`, of arrays that `flat` has given. ValueError in one line if they do not fit."""
    paths, form = jax.tree_util.tree_flatten_with_path(like)
    leaves = []
    for path, x in paths:
        place = name + jax.tree_util.keystr(path)
        wanted = np.asarray(_data(x))
        found = arrays.get(place)
        if found is None:
            raise ValueError(f"the saved state has no array {place!r}")
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise ValueError(
                f"{place!r} is {found.dtype}{list(found.shape)} in the saved state: it must be "
                f"{wanted.dtype}{list(wanted.shape)}"
            )
        leaves.append(jax.random.wrap_key_data(jnp.asarray(found)) if _is_key(x) else found)
    return jax.tree_util.tree_unflatten(form, leaves)


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


def heading(own: dict[str, str]) -> dict[str, np.ndarray]:
    """What stands beside the arrays."""
    return {"version": np.array(VERSION, np.int32), "settings": np.array(json.dumps(own))}


def check_heading(arrays: dict[str, np.ndarray], own: dict[str, str]) -> None:
    """ValueError in one line if the state was saved by another version, or with other settings."""
    version = arrays.get("version")
    if version is None or int(version) != VERSION:
        raise ValueError(f"the saved state has version {version}: it must be {VERSION}")
    theirs = json.loads(str(arrays["settings"]))
    for name in sorted(own.keys() | theirs.keys(), key=lambda name: (name.count("."), name)):
        if theirs.get(name) != own.get(name):
            raise ValueError(
                f"the state was saved with {name}={theirs.get(name)}, and this Host has {name}={own.get(name)}"
            )

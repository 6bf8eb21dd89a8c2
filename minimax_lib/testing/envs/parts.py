"""What all conformance checks are made of: each raises an AssertionError in a sentence, or says nothing."""

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Level
from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def require(holds: bool, sentence: str) -> None:
    """AssertionError with the sentence, unless it `holds`."""
    if not holds:
        raise AssertionError(sentence)


def at(path: tuple) -> str:
    """Which part of a tree."""
    return jax.tree_util.keystr(path) or "its only leaf"


def kind_of(leaf: Any) -> str:
    """Type and shape of an array."""
    return f"{leaf.dtype}{list(leaf.shape)}{' (weak)' if getattr(leaf, 'weak_type', False) else ''}"


def is_frozen(settings: Any) -> bool:
    """Whether the fields of a dataclass cannot be set."""
    # A copy, since the attempt to change it may succeed.
    twin = copy.copy(settings)
    try:
        for field in dataclasses.fields(twin):
            setattr(twin, field.name, None)
    except dataclasses.FrozenInstanceError:
        return True
    # Without fields nothing was tried, and nothing can be changed.
    return not dataclasses.fields(twin)


def described(tree: Any) -> list[str]:
    """Every part of a tree: its name, type and shape, and whether its type is weak, so that it may change again."""
    return [
        f"{jax.tree_util.keystr(path, simple=True)} {'weak ' if x.weak_type else ''}{x.dtype}{list(x.shape)}".strip()
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    ]


def check_strong(what: str, tree: Any) -> None:
    """No part of `tree` is weakly typed.

    A plain Python number is. Its type may change in the first step, and the next step then compiles again.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        require(not leaf.weak_type, f"{what}: {at(path)} is weakly typed: give it a dtype where it is made")


def check_same_types(what: str, before: Any, after: Any) -> None:
    """Two trees have the same structure, shapes and types."""
    old_structure, new_structure = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    require(old_structure == new_structure, f"{what} changes from {old_structure} to {new_structure}")
    leaves = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in leaves:
        same = (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)
        require(same, f"{what} changes at {at(path)} from {kind_of(old)} to {kind_of(new)}")


def same_levels(expected: Level, found: Level, sentence: str) -> None:
    """Both are the same, to the bit."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(found), strict=True)
    for (path, x), y in pairs:
        require(np.array_equal(x, y), f"{sentence}: {at(path)} differs")


def numbers(tree: Any) -> list[np.ndarray]:
    """Every leaf as plain numbers, keys included."""
    leaves = jax.tree.leaves(tree)
    keys = (jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in leaves)
    return [np.asarray(x) for x in keys]


def check_fits(space: Space, value: Any, n_leading: int, what: str) -> None:
    """`value` fits the space, with `n_leading` axes before it. Floats may pass a bound by rounding (`Box.slack`)."""
    if isinstance(space, Dict):
        names = {name for name, _ in space.items}
        require(isinstance(value, dict) and set(value) == names, f"{what} is not a dict of {', '.join(sorted(names))}")
        for name, part in space.items:
            check_fits(part, value[name], n_leading, f"{what}, at {name!r},")
        return
    if isinstance(space, MultiDiscrete):
        fits = value.shape[n_leading:] == (len(space.sizes),) and value.dtype == np.int32
        wanted = f"int32[{len(space.sizes)}]"
        require(fits, f"{what} is {value.dtype}{list(value.shape[n_leading:])}: the space says {wanted}")
        require(bool(((value >= 0) & (value < space.sizes)).all()), f"{what} is outside of {space}")
        return
    box = Box(0, space.n - 1, (), "int32") if isinstance(space, Discrete) else space
    shape = value.shape[n_leading:]
    fits = shape == box.shape and value.dtype == np.dtype(box.dtype)
    require(fits, f"{what} is {value.dtype}{list(shape)}: the space says {box.dtype}{list(box.shape)}")
    low, high = value.min(), value.max()
    inside = box.low - box.slack(box.low) <= low and high <= box.high + box.slack(box.high)
    require(bool(inside), f"{what} runs from {low} to {high}, outside [{box.low}, {box.high}]")

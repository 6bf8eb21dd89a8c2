"""Spaces of gymnax, as spaces of this package."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Box, Dict, Discrete, Space

UNBOUNDED = 1e30  # above it, there is no bound: gymnax then writes the largest float


def space_of(theirs: Sequence[Any]) -> Space:
    """One space that contains all of `theirs`, which differ only in their bounds.

    A Box of this package has one bound for all its entries: the widest one of `theirs`. ValueError for a kind of space
    that this package does not have.
    """
    from gymnax.environments import spaces

    first = theirs[0]
    if isinstance(first, spaces.Discrete):
        return Discrete(int(first.n))
    if isinstance(first, spaces.Box):
        low = min(_bound(np.min(space.low)) for space in theirs)
        high = max(_bound(np.max(space.high)) for space in theirs)
        return Box(low, high, tuple(first.shape), np.dtype(first.dtype).name)
    if isinstance(first, spaces.Dict):
        return Dict(tuple((name, space_of([space.spaces[name] for space in theirs])) for name in first.spaces))
    raise ValueError(f"env has a space of the kind {type(first).__name__}: it must be a Discrete, a Box or a Dict")


def _bound(value: Any) -> float:
    value = float(value)
    return value if abs(value) < UNBOUNDED else float(np.copysign(np.inf, value))


def fitted(space: Space, value: Any) -> Any:
    """An observation in the dtypes of its space."""
    if isinstance(space, Dict):
        return {name: fitted(part, value[name]) for name, part in space.items}
    return jnp.asarray(value, space.dtype if isinstance(space, Box) else jnp.int32)

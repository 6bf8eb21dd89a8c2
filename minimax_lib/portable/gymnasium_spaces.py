"""Spaces, observations and actions of this package as those of Gymnasium."""

from typing import Any

import gymnasium
import numpy as np

from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete, Space


def gymnasium_space(space: Space) -> gymnasium.Space:
    """The same space in Gymnasium. Boxes of bool, as action masks, are MultiBinary, whose numbers are int8."""
    match space:
        case Discrete():
            return gymnasium.spaces.Discrete(space.n)
        case MultiDiscrete():
            return gymnasium.spaces.MultiDiscrete(list(space.sizes))
        case Box(dtype="bool"):
            return gymnasium.spaces.MultiBinary(space.shape)
        case Box():
            dtype = np.dtype(space.dtype)
            low, high = (
                bound if np.issubdtype(dtype, np.floating) else int(bound) for bound in (space.low, space.high)
            )
            return gymnasium.spaces.Box(low, high, space.shape, dtype)  # type: ignore[arg-type]
        case Dict():
            return gymnasium.spaces.Dict({name: gymnasium_space(part) for name, part in space.items})


def to_gymnasium(space: gymnasium.Space, value: Any) -> Any:
    """An observation, or a batch of them, in the types of `space`; a single Discrete one is a NumPy number."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: to_gymnasium(part, value[name]) for name, part in space.items()}
    return np.array(value, space.dtype)[()]

"""How much of its task an attempt has done, where the environment does not say."""

import dataclasses

import numpy as np

from minimax_lib.portable.numbers import checked


@dataclasses.dataclass(frozen=True)
class Solved:
    """1 where the episode has terminated with a return above 0, otherwise 0."""

    def __call__(self, returns: np.ndarray, terminated: np.ndarray) -> np.ndarray:
        """f32[M], of returns f32[M]; bool[M] is False at a time limit."""
        return (np.asarray(terminated) & (returns > 0)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Scaled:
    """The return times `scale` plus `shift`, cut off at 0 and 1."""

    scale: float
    shift: float = 0.0

    def __post_init__(self) -> None:
        for name in ("scale", "shift"):
            checked(name, getattr(self, name), ())

    def __call__(self, returns: np.ndarray, terminated: np.ndarray) -> np.ndarray:
        """f32[M], of returns f32[M]."""
        return np.clip(returns * self.scale + self.shift, 0, 1).astype(np.float32)

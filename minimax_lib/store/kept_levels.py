"""The levels that a replay method keeps, as a loaded run shows them."""

import dataclasses

import jax
import numpy as np

from minimax_lib.curricula.level_buffer import Ancestors
from minimax_lib.envs.base import Level


@dataclasses.dataclass(frozen=True)
class KeptLevels:
    """The levels that a replay method keeps, in C slots. Members are NumPy arrays, or None if the method has none."""

    levels: Level  # [C, ...]; a placeholder where not filled
    filled: np.ndarray  # bool[C]
    scores: np.ndarray  # f32[C], what the method ranks levels by; -inf where not filled
    best_returns: np.ndarray | None = None  # f32[C], the highest undiscounted return ever reached
    ages: np.ndarray | None = None  # i32[C], levels sampled since this one was
    n_mutations: np.ndarray | None = None  # i32[C], mutations along the level's lineage
    ancestors: Ancestors | None = None  # of the C levels, where the run keeps them (ACCEL with n_ancestors)

    def __len__(self) -> int:
        return int(self.filled.sum())

    @property
    def ranked(self) -> np.ndarray:
        """i64[len(self)], the filled slots, the highest score first."""
        return np.argsort(-self.scores, kind="stable")[: len(self)]

    def best(self, n: int) -> Level:
        """The `n` levels with the highest scores, [n, ...]; fewer if there are fewer."""
        return jax.tree.map(lambda x: x[self.ranked[:n]], self.levels)

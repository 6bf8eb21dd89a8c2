"""The PyPI package `minigrid` on levels that are handed to it. Import it only where minigrid is installed."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from minigrid.minigrid_env import MiniGridEnv

from minimax_lib.registry import unknown_name


class MiniGridOnLevels(MiniGridEnv):
    """The base of MiniGrid on the levels of one of our worlds. A subclass lays out `level` in `_gen_grid`.

    `reset(options={"level": level})` says which level is played, from then on. In a vector environment, all rows get
    the same options: with `{"levels": levels}` [B, ...], each takes that of its own `row`.
    """

    level: Any = None  # as NumPy arrays; None before the first reset

    def __init__(self, row: int, **options: Any):
        self.row = row
        super().__init__(**options)

    def shape_of(self, level: Any) -> tuple[int, ...]:
        """The rows and columns of a level."""
        raise NotImplementedError

    def wanted_shape(self) -> tuple[int, ...]:
        """Those that it must have."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Opens an episode. ValueError for a level that does not fit, or if there never was one."""
        for name in options or {}:
            if name not in ("level", "levels"):
                raise unknown_name("option of reset", name, ("level", "levels"))
        if options and "levels" in options:
            options = {"level": jax.tree.map(lambda x: x[self.row], options["levels"])}
        if options:
            self.level = self._fitting(options["level"])
        if self.level is None:
            raise ValueError('reset without a level: the first one needs options={"level": level}')
        return super().reset(seed=seed)

    def _fitting(self, level: Any) -> Any:
        level = jax.tree.map(np.asarray, level)
        if self.shape_of(level) != self.wanted_shape():
            raise ValueError(f"the level is {list(self.shape_of(level))}: it must be {list(self.wanted_shape())}")
        return level

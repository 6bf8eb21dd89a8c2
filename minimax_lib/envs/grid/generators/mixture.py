"""Families of levels in a larger frame, and several of them at once."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.grid.cells import EMPTY, WALL
from minimax_lib.envs.grid.level import Level
from minimax_lib.settings import keep_tuple


def padded(level: Level, height: int, width: int, outside: np.uint16 = EMPTY) -> Level:
    """The level in the upper left corner of a frame of this size."""
    more = (0, height - level.grid.shape[0]), (0, width - level.grid.shape[1])
    return level.replace(grid=jnp.pad(level.grid, more, constant_values=outside))


@dataclasses.dataclass(frozen=True)
class Padded:
    """A family in a larger frame. Around it are walls, which is what an agent sees outside of the frame anyway."""

    family: Any
    height: int
    width: int
    max_steps: int

    def sample_level(self, key: jax.Array) -> Level:
        """A random level of the family."""
        return padded(self.family.sample_level(key), self.height, self.width, WALL)


@dataclasses.dataclass(frozen=True)
class MixedFamilies:
    """Each level is from one of several families, in the upper left corner of a frame that is large enough for all.

    The rest of the frame is empty. The difficulty is the number of the family. Under `jax.vmap`, every family draws a
    level for each that is used.
    """

    families: tuple[str, ...] = ("multi_room_n4_random", "unlock", "unlock_pickup", "door_key", "simple_crossing")
    """Names of families, with their default settings. In Python, they may also be families themselves."""
    weights: tuple[float, ...] = ()
    """How often each of them is drawn, compared with the others. None given: all are equally likely."""

    def __post_init__(self) -> None:
        for name in ("families", "weights"):
            keep_tuple(self, name)
        if not self.families:
            raise ValueError("families is empty: a mixture needs at least one family")
        parts = self.parts  # an unknown name is refused here
        if self.weights and len(self.weights) != len(parts):
            raise ValueError(
                f"weights has {len(self.weights)} numbers: it must have one for each of {len(parts)} families"
            )
        if any(not weight >= 0 or weight == float("inf") for weight in self.weights):
            raise ValueError(f"weights={self.weights}: each must be a number of at least 0")
        if self.weights and sum(self.weights) == 0:
            raise ValueError(f"weights={self.weights}: at least one must be greater than 0")

    @property
    def parts(self) -> tuple[Any, ...]:
        """The families themselves."""
        # The names stay as they are: settings are written to files.
        return tuple(_family(part) for part in self.families)

    @property
    def height(self) -> int:
        """Rows of cells of the frame."""
        return max(part.height for part in self.parts)

    @property
    def width(self) -> int:
        """Columns of cells of the frame."""
        return max(part.width for part in self.parts)

    @property
    def max_steps(self) -> int:
        return max(part.max_steps for part in self.parts)

    @property
    def difficulties(self) -> tuple[int, ...]:
        """The numbers of the families."""
        return tuple(range(len(self.parts)))

    def sample_level(self, key: jax.Array) -> Level:
        """A random level of a random family."""
        k_family, k_level = jax.random.split(key)
        weights = np.array(self.weights or [1.0] * len(self.parts))
        share = jnp.asarray(weights / weights.sum(), jnp.float32)
        return self.sample_of(k_level, jax.random.choice(k_family, len(self.parts), p=share))

    def sample_of(self, key: jax.Array, difficulty: jax.Array) -> Level:
        """A random level of the family with this number."""

        def sampler(part: Any) -> Any:
            return lambda key: padded(part.sample_level(key), self.height, self.width)

        level = jax.lax.switch(difficulty, [sampler(part) for part in self.parts], key)
        return level.replace(difficulty=jnp.asarray(difficulty, jnp.int32))


def _family(part: Any) -> Any:
    """The family with this name, with its default settings; or the family itself."""
    if not isinstance(part, str):
        if not hasattr(part, "sample_level"):
            raise ValueError(f"families has {part!r}: each must be a family of levels, or the name of one")
        return part
    from minimax_lib.envs.grid.generators.registry import FAMILIES  # which knows this class too

    return FAMILIES[part]()

"""What draws the random levels of the object world."""

from typing import Protocol

import jax

from minimax_lib.envs.grid.level import Level


class LevelFamily(Protocol):
    """A frozen dataclass, whose fields are the settings of its random levels. They are checked when it is built."""

    @property
    def height(self) -> int:
        """Rows of the frame, with the border."""
        ...

    @property
    def width(self) -> int:
        """Columns of the frame, with the border."""
        ...

    @property
    def max_steps(self) -> int:
        """The largest `max_steps` that a level of the family can have."""
        ...

    def sample_level(self, key: jax.Array) -> Level:
        """A random level. It is valid (`grid.validity.is_valid`)."""
        ...


class Square:
    """A frame of `size` rows and columns."""

    size: int

    @property
    def height(self) -> int:
        """Rows of cells of the frame."""
        return self.size

    @property
    def width(self) -> int:
        """Columns of cells of the frame."""
        return self.size

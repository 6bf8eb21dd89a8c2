"""The interface of writers."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from minimax_lib.store.tables import Row


class Writer(Protocol):
    """Takes rows as they come. A row is numbers and text by name, with `update` and `seed` among them."""

    def write(self, rows: Sequence[Row]) -> None: ...


@runtime_checkable
class PictureWriter(Writer, Protocol):
    """A writer with this one more method, which takes the pictures of `--pictures-every`.

    They are drawn in the background: rows of a later update may come before them.
    """

    def write_pictures(self, update: int, seed: int, pictures: Mapping[str, np.ndarray]) -> None:
        """`pictures` (u8[H, W, 3]) by name: best, sources, lineage, designs, episodes."""
        ...


def curves_of(row: Row) -> dict[str, float]:
    """The numbers of a row, by the names of their curves, but for `update` and `seed`.

    Text in a row comes before the names of its numbers: the row of the task "Labyrinth" has the curve
    "Labyrinth/return".
    """
    label = [value for value in row.values() if isinstance(value, str)]
    numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
    return {"/".join([*label, name]): float(numbers[name]) for name in numbers if name not in ("update", "seed")}

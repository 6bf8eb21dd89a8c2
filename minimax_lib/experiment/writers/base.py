"""The interface of writers."""

from collections.abc import Sequence
from typing import Protocol

from minimax_lib.store.tables import Row


class Writer(Protocol):
    """Takes rows as they come. A row is numbers and text by name, with `update` and `seed` among them.

    A writer with the method `write_pictures(update, seed, pictures)` is given those of `--pictures-every` too:
    u8[H, W, 3] by name (best, sources, lineage, designs, episodes). They are drawn in the background: rows of a later
    update may come before them.
    """

    def write(self, rows: Sequence[Row]) -> None: ...


def curves_of(row: Row) -> dict[str, float]:
    """The numbers of a row, by the names of their curves, but for `update` and `seed`.

    Text in a row comes before the names of its numbers: the row of the task "Labyrinth" has the curve
    "Labyrinth/return".
    """
    label = [value for value in row.values() if isinstance(value, str)]
    numbers = {name: value for name, value in row.items() if not isinstance(value, str)}
    return {"/".join([*label, name]): float(numbers[name]) for name in numbers if name not in ("update", "seed")}

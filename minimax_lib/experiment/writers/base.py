"""What a writer is."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Row = Mapping[str, Any]


class Writer(Protocol):
    """Takes rows as they come: numbers and text by name, `update` and `seed` among them."""

    def write(self, rows: Sequence[Row]) -> None: ...

"""Results that wait to be handed to a core, in NumPy arrays of one size."""

from typing import Any

import numpy as np

from minimax_lib.portable.encodings import blank, copied, n_rows, rows_of, write
from minimax_lib.portable.reads import Reads

TYPES = {"length": np.int32, "valid": np.bool_, "episode": np.bool_}
EMPTY = {"score": np.nan}  # in an entry that nothing is written to


class Waiting:
    """At most `size` results. Only the fields are kept that the core reads."""

    def __init__(self, reads: Reads, size: int):
        self.size, self.n = size, 0
        self.task = blank(reads.encoding, size)
        kinds: dict[str, Any] = {name: TYPES.get(name, np.float32) for name in reads.fields - {"task"}}
        self.fields = {name: np.empty(size, kind) for name, kind in kinds.items()}
        self.clear()

    def clear(self) -> None:
        """Nothing waits."""
        self.n = 0
        for name, values in self.fields.items():
            values[:] = EMPTY.get(name, 0)

    def add(self, task: Any, given: dict[str, Any], first: int) -> int:
        """How many of the entries from `first` on have found room. Other values of `given` than arrays are of all."""
        taken = min(n_rows(task) - first, self.size - self.n)
        ours, theirs = slice(self.n, self.n + taken), slice(first, first + taken)
        write(self.task, ours, rows_of(task, theirs))
        for name, values in self.fields.items():
            value = given[name]
            values[ours] = value[theirs] if np.ndim(value) else value
        self.n += taken
        return taken

    def arrays(self) -> dict[str, Any]:
        """Copies of all, in their order: a compiled function may read them later."""
        return {"task": copied(self.task)} | {name: values.copy() for name, values in self.fields.items()}

    def restore(self, n: int, arrays: dict[str, Any]) -> None:
        """The same as when `arrays` were taken."""
        self.n = n
        write(self.task, slice(None), arrays["task"])
        for name, values in self.fields.items():
            values[:] = arrays[name]

"""Which tasks are interesting beside others: matrices for OMNI, from JSON files or from a function."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from minimax_lib.files import read_json
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.names import number_of, numbers_by_name

Missing = Literal["refuse", "boring"]
# (name of a task, rates f[N]) -> N times whether that task is still interesting to an agent that can do the named one
Rule = Callable[[str, np.ndarray], Sequence[bool] | None]


@dataclasses.dataclass(frozen=True)
class Interesting:
    """bool[N, N], packed into bytes: a field of a curriculum must be hashable."""

    n_tasks: int
    _interesting: bytes
    _present: bytes
    _missing: bytes

    @classmethod
    def of(cls, interesting: Any, present: Any = None, missing: Any = None) -> "Interesting":
        """From arrays bool[N, N], bool[N] (None: all) and bool[N, N] (None: none)."""
        matrix = np.asarray(interesting, bool)
        n = len(matrix)
        rows = np.ones(n, bool) if present is None else np.asarray(present, bool)
        gaps = np.zeros((n, n), bool) if missing is None else np.asarray(missing, bool)
        if matrix.shape != (n, n):
            raise ValueError(f"the matrix of interesting tasks has shape {matrix.shape}: it must be square")
        for name, x, shape in (("present", rows, (n,)), ("missing", gaps, (n, n))):
            if x.shape != shape:
                raise ValueError(f"{name} has shape {x.shape}: it must be {shape}, as the matrix is {matrix.shape}")
        return cls(n, *(np.packbits(x).tobytes() for x in (matrix, rows, gaps)))

    @classmethod
    def all_of(cls, n_tasks: int) -> "Interesting":
        """No task makes another one boring."""
        return cls.of(~np.eye(n_tasks, dtype=bool))

    @classmethod
    def of_json(cls, path: str | Path, names: Sequence[str], missing: Missing = "refuse") -> "Interesting":
        """From a file {task: {other task: true or false}}. ValueError in one line if it is no such file."""
        return cls.of_table(read_json(path), names, missing, str(path))

    @classmethod
    def of_table(
        cls, table: Any, names: Sequence[str], missing: Missing = "refuse", source: str = "the table"
    ) -> "Interesting":
        """From {task: {other task: bool}}. A task without a row makes nothing boring. Its own entry does not matter.

        Tasks are called by their names, or by their numbers ("0", "1", and so on).

        An entry that is missing in a row is refused. Or with `missing` "boring", it makes that task boring even if it
        was interesting before, as Syllabus does.
        """
        if missing not in get_args(Missing):
            raise unknown_name("missing", missing, get_args(Missing))
        n, numbers = len(names), numbers_by_name(names)
        interesting, present, gaps = np.ones((n, n), bool), np.zeros(n, bool), np.zeros((n, n), bool)
        for task, row in _entries(table, f"{source} is"):
            i = number_of(task, numbers, source)
            present[i] = True
            gaps[i], gaps[i, i] = True, False
            for other, value in _entries(row, f"{source}: the row of {task!r} is"):
                if not isinstance(value, bool):
                    raise ValueError(f"{source}: the entry {task!r}, {other!r} is {value!r}: it must be true or false")
                j = number_of(other, numbers, source)
                interesting[i, j], gaps[i, j] = value, False
        if missing == "refuse" and gaps.any():
            i, j = np.argwhere(gaps)[0]
            raise ValueError(f"{source}: the row of {names[i]!r} has no entry {names[j]!r}")
        return cls.of(interesting, present, gaps)

    @classmethod
    def by_rule(cls, rule: Rule, names: Sequence[str], rates: Any) -> "Interesting":
        """Asks `rule` for every task. It returns a list for all tasks, or None if it does not know."""
        answers = [rule(name, np.asarray(rates)) for name in names]
        for name, answer in zip(names, answers, strict=True):
            if answer is not None and len(answer) != len(names):
                raise ValueError(f"the answer for {name!r} has {len(answer)} entries: there are {len(names)} tasks")
        anything = [[True] * len(names) if answer is None else list(answer) for answer in answers]
        return cls.of(anything, [answer is not None for answer in answers])

    @property
    def interesting(self) -> np.ndarray:
        """bool[N, N]"""
        return self._unpacked(self._interesting, (self.n_tasks, self.n_tasks))

    @property
    def present(self) -> np.ndarray:
        """bool[N]"""
        return self._unpacked(self._present, (self.n_tasks,))

    @property
    def missing(self) -> np.ndarray:
        """bool[N, N]"""
        return self._unpacked(self._missing, (self.n_tasks, self.n_tasks))

    def _unpacked(self, packed: bytes, shape: tuple[int, ...]) -> np.ndarray:
        bits = np.unpackbits(np.frombuffer(packed, np.uint8), count=int(np.prod(shape)))
        return bits.astype(bool).reshape(shape)


def _entries(table: Any, what: str) -> list[tuple[str, Any]]:
    if not isinstance(table, Mapping):
        raise ValueError(f"{what} {type(table).__name__}: it must be a table of tasks")
    return list(table.items())

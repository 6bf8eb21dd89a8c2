"""Tasks for environments that evaluate, while a curriculum chooses those of the training."""

from typing import Any

import jax
import numpy as np

from minimax_lib.portable.encodings import joined, n_rows, rows_of
from minimax_lib.portable.host_programs import check_space, cpu
from minimax_lib.portable.numbers import checked, checked_seed, checked_tasks

BLOCK = 64  # tasks of a box that are drawn at once


class EvaluationHost:
    """Takes the place of a `Host` in an adaptor. It draws tasks, and their results change nothing.

    The tasks are `tasks`, one after another and then from the beginning, or else uniform over the space. They depend on
    the seed alone, so that two evaluations play the same.
    """

    reads_scores = False

    def __init__(self, space: Any, tasks: Any = None, seed: int = 0):
        check_space(space)
        self.space, self._rng = space, np.random.default_rng(checked_seed(seed))
        with jax.default_device(cpu()):
            self._key = jax.random.key(seed)
            self.encoding = jax.eval_shape(lambda key: space.sample(key, 1), self._key)
        self._tasks = None if tasks is None else checked_tasks(space, tasks, self.encoding)
        if self._tasks is not None and not n_rows(self._tasks):
            raise ValueError("tasks is empty: give at least one task, or none for all tasks of the space")
        self._ready: Any = rows_of(self._tasks, slice(0, 0)) if self._tasks is not None else None
        self._n_blocks = 0
        self.attempts: Any = None

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next tasks."""
        while self._ready is None or n_rows(self._ready) < n:
            block = self._block()
            self._ready = block if self._ready is None else joined([self._ready, block])
        drawn, self._ready = rows_of(self._ready, slice(0, n)), rows_of(self._ready, slice(n, None))
        return drawn

    def decode(self, tasks: Any) -> list[Any]:
        """What an environment takes, of encodings [n, ...]."""
        return [self.space.decode(rows_of(tasks, i)) for i in range(n_rows(tasks))]

    def report(self, task: Any, progress: Any = None, *others: Any, **named: Any) -> None:
        """Reports to no curriculum. A wrong progress is refused, as in training."""
        if progress is not None:
            checked("progress", progress, None, 0, 1)

    def evaluation(self, tasks: Any = None, seed: int = 0) -> "EvaluationHost":
        """As `Host.evaluation`."""
        return EvaluationHost(self.space, tasks, seed)

    def _block(self) -> Any:
        if self._tasks is not None:
            return self._tasks
        if self.space.n is not None:
            return self._rng.integers(self.space.n, size=BLOCK).astype(np.int32)
        self._n_blocks += 1
        with jax.default_device(cpu()):
            drawn = self.space.sample(jax.random.fold_in(self._key, self._n_blocks), BLOCK)
        return jax.tree.map(np.asarray, drawn)

"""Several curricula at once, each for its own part of the task."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.tasks.core import Results, draws_from_weights, episodes_needed, leaves_out, trains_of
from minimax_lib.tasks.spaces import check_count


@dataclasses.dataclass(frozen=True)
class ProductCurriculum:
    """Independent draws of all `cores`; each is told its own part of what comes back.

    If all of them have lists, a task is one number, and the number of the last core runs fastest, as in the space
    `Product`. With a box among them, a task is a tuple.
    """

    cores: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", tuple(self.cores))
        if not self.cores:
            raise ValueError("cores is empty: there must be one or more")
        if self.n_tasks is not None:
            check_count(self.n_tasks)
        elif self.leaves_out:
            names = ", ".join(type(core).__name__ for core in self.cores)
            raise ValueError(f"cores is {names}: beside a box, none may leave tasks out of learning, as RobustPLR does")

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return tuple(core.n_tasks for core in self.cores)

    @property
    def n_tasks(self) -> int | None:
        sizes = [size for size in self.sizes if size is not None]
        return math.prod(sizes) if len(sizes) == len(self.cores) else None

    @property
    def reads_scores(self) -> bool:
        return any(core.reads_scores for core in self.cores)

    @property
    def from_weights(self) -> bool:
        return all(map(draws_from_weights, self.cores))

    @property
    def min_episodes(self) -> int:
        return max(episodes_needed(core) for core in self.cores) if self.n_tasks else 0

    def init(self, key: jax.Array) -> tuple[Any, ...]:
        keys = jax.random.split(key, len(self.cores))
        return tuple(core.init(k) for core, k in zip(self.cores, keys, strict=True))

    def sample(self, key: jax.Array, state: tuple[Any, ...], n: int) -> Any:
        keys = jax.random.split(key, len(self.cores))
        drawn = tuple(core.sample(k, s, n) for core, k, s in zip(self.cores, keys, state, strict=True))
        return drawn if self.n_tasks is None else self._joined(drawn)

    def started(self, state: tuple[Any, ...], tasks: Any, valid: jax.Array) -> tuple[Any, ...]:
        parts = zip(self.cores, state, self._parts(tasks), strict=True)
        return tuple(core.started(s, part, valid) for core, s, part in parts)

    def update(self, state: tuple[Any, ...], results: Results) -> tuple[Any, ...]:
        parts = zip(self.cores, state, self._parts(results.task), strict=True)
        return tuple(core.update(s, results.replace(task=part)) for core, s, part in parts)

    def evaluated(self, state: tuple[Any, ...], rates: jax.Array, known: jax.Array) -> tuple[Any, ...]:
        """The rate of a part is the mean over the known tasks that have it."""
        table, counts = rates.reshape(self.sizes), known.reshape(self.sizes).astype(jnp.float32)

        def one(i: int, core: Any, s: Any) -> Any:
            others = tuple(axis for axis in range(len(self.cores)) if axis != i)
            n = counts.sum(others)
            mean = jnp.where(counts > 0, table, 0.0).sum(others) / jnp.maximum(n, 1.0)
            return core.evaluated(s, mean, n > 0) if episodes_needed(core) else s

        return tuple(one(i, core, s) for i, (core, s) in enumerate(zip(self.cores, state, strict=True)))

    def weights(self, state: tuple[Any, ...]) -> Any:
        if self.n_tasks is None:
            return None
        weights = [core.weights(s) for core, s in zip(self.cores, state, strict=True)]
        return functools.reduce(lambda a, b: jnp.outer(a, b).reshape(-1), weights)

    def trains(self, state: tuple[Any, ...]) -> jax.Array:
        """bool[n_tasks], the tasks to learn from: every core learns from its part."""
        found = [trains_of(core, s) for core, s in zip(self.cores, state, strict=True)]
        return functools.reduce(lambda a, b: (a[:, None] & b[None, :]).reshape(-1), found)

    @property
    def leaves_out(self) -> bool:
        return any(map(leaves_out, self.cores))

    def report(self, state: tuple[Any, ...]) -> dict[str, jax.Array]:
        """The metrics of core number i begin with "i/"."""
        reports = [core.report(s) for core, s in zip(self.cores, state, strict=True)]
        return {f"{i}/{name}": value for i, report in enumerate(reports) for name, value in report.items()}

    def _joined(self, drawn: tuple[jax.Array, ...]) -> jax.Array:
        number = jnp.zeros_like(drawn[0])
        for size, part in zip(self.sizes, drawn, strict=True):
            number = number * jnp.int32(size) + part
        return number

    def _parts(self, tasks: Any) -> tuple[Any, ...]:
        if self.n_tasks is None:
            return tasks
        parts = []
        for size in self.sizes[::-1]:
            tasks, part = jnp.divmod(tasks, jnp.int32(size))
            parts.append(part)
        return tuple(parts[::-1])

"""The same curriculum for a list of millions of tasks."""

import dataclasses
from typing import Any

import jax

from minimax_lib.tasks.core import Results, episodes_needed, leaves_out, trains_of
from minimax_lib.tasks.weighted import Around


@dataclasses.dataclass(frozen=True)
class LongList(Around):
    """`inner`, which a `Host` keeps in NumPy: a draw looks at a few tasks, and not at all of them.

    It draws with the same weights, but other random numbers. For `Frontier`, for `ListedPLR` and `RobustPLR` by rank,
    and for curricula that draw from their weights alone. In compiled training, it is `inner`.
    """

    @property
    def min_episodes(self) -> int:
        return episodes_needed(self.inner)

    def init(self, key: jax.Array) -> Any:
        return self.inner.init(key)

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        return self.inner.sample(key, state, n)

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any:
        return self.inner.started(state, tasks, valid)

    def update(self, state: Any, results: Results) -> Any:
        return self.inner.update(state, results)

    def evaluated(self, state: Any, rates: jax.Array, known: jax.Array) -> Any:
        return self.inner.evaluated(state, rates, known)

    def trains(self, state: Any) -> jax.Array:
        return trains_of(self.inner, state)

    @property
    def leaves_out(self) -> bool:
        return leaves_out(self.inner)

    def weights(self, state: Any) -> jax.Array:
        return self.inner.weights(state)

    def report(self, state: Any) -> dict[str, jax.Array]:
        return self.inner.report(state)

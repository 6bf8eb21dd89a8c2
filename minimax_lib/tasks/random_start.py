"""Random tasks for a first stretch, for every curriculum."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results, episodes_needed, leaves_out, trains_of
from minimax_lib.tasks.rates import check_at_least
from minimax_lib.tasks.uniform import Uniform
from minimax_lib.tasks.weighted import Around


class RandomStartState(struct.PyTreeNode):
    inner: Any
    begun: jax.Array  # i32[], attempts, up to the end of the stretch


@dataclasses.dataclass(frozen=True)
class RandomStart(Around):
    """The first `n_first` attempts are on random tasks, and `inner` learns from them. Then it chooses alone.

    Where tasks cannot be listed, `start` says what random means: `UniformOver(space)`.
    """

    n_first: int
    start: Any = None

    def __post_init__(self) -> None:
        check_at_least("n_first", self.n_first, 1)
        if self.start is None:
            if self.n_tasks is None:
                raise ValueError("the tasks cannot be listed: give start, such as UniformOver(space)")
            object.__setattr__(self, "start", Uniform(self.n_tasks))
        if self.start.n_tasks != self.n_tasks:
            raise ValueError(f"start has {self.start.n_tasks} tasks: it must have {self.n_tasks}, as inner")

    @property
    def min_episodes(self) -> int:
        return episodes_needed(self.inner)

    def init(self, key: jax.Array) -> RandomStartState:
        return RandomStartState(self.inner.init(key), jnp.zeros((), jnp.int32))

    def sample(self, key: jax.Array, state: RandomStartState, n: int) -> Any:
        k_start, k_inner = jax.random.split(key)
        random = self.start.sample(k_start, (), n)
        chosen = self.inner.sample(k_inner, state.inner, n)
        return jax.tree.map(lambda a, b: jnp.where(state.begun < self.n_first, a, b), random, chosen)

    def started(self, state: RandomStartState, tasks: Any, valid: jax.Array) -> RandomStartState:
        begun = jnp.minimum(state.begun + valid.sum(dtype=jnp.int32), self.n_first)
        return super().started(state, tasks, valid).replace(begun=begun)

    def update(self, state: RandomStartState, results: Results) -> RandomStartState:
        return state.replace(inner=self.inner.update(state.inner, results))

    def evaluated(self, state: RandomStartState, rates: jax.Array, known: jax.Array) -> RandomStartState:
        if not episodes_needed(self.inner):
            return state
        return state.replace(inner=self.inner.evaluated(state.inner, rates, known))

    def trains(self, state: RandomStartState) -> jax.Array:
        """bool[N], the tasks to learn from."""
        return trains_of(self.inner, state.inner)

    @property
    def leaves_out(self) -> bool:
        return leaves_out(self.inner)

    def weights(self, state: RandomStartState) -> Any:
        found = self.inner.weights(state.inner)
        return None if found is None else jnp.where(state.begun < self.n_first, self.start.weights(()), found)

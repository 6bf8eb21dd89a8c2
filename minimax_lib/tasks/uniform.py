"""All tasks alike: the baseline of every other task curriculum."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.tasks.spaces import Stratified
from minimax_lib.tasks.weighted import Weighted


@dataclasses.dataclass(frozen=True)
class Uniform(Weighted):
    """All tasks have the same chance.

    It is domain randomisation over a list.
    """

    n_tasks: int

    divides = True

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        return jax.random.randint(key, (n,), 0, self.n_tasks, jnp.int32)  # cheaper than from weights

    def weights(self, state: Any) -> jax.Array:
        return jnp.full(self.n_tasks, 1.0 / self.n_tasks, jnp.float32)


@dataclasses.dataclass(frozen=True)
class UniformOver(Weighted):
    """Domain randomisation over a task space: a box too, or a product with a box; of strata, one and then its task."""

    space: Any

    @property
    def n_tasks(self) -> Any:  # type: ignore[override]
        return self.space.n

    def sample(self, key: jax.Array, state: Any, n: int) -> Any:
        return self.space.sample(key, n)

    def weights(self, state: Any) -> Any:
        if self.space.n is None:
            return None
        if isinstance(self.space, Stratified):
            sizes = jnp.asarray([len(stratum) for stratum in self.space.strata], jnp.float32)
            return 1.0 / (len(sizes) * sizes[self.space.stratum])
        return jnp.full(self.space.n, 1.0 / self.space.n, jnp.float32)

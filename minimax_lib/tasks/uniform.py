"""All tasks alike: the baseline of every other task curriculum."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.tasks.core import Results


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Every task has the same chance (domain randomisation over a list)."""

    n_tasks: int

    reads_scores = False

    def init(self, key: jax.Array) -> tuple[()]:
        return ()

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        return jax.random.randint(key, (n,), 0, self.n_tasks, jnp.int32)

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any:
        return state

    def update(self, state: Any, results: Results) -> Any:
        return state

    def weights(self, state: Any) -> jax.Array:
        return jnp.full(self.n_tasks, 1.0 / self.n_tasks, jnp.float32)

    def report(self, state: Any) -> dict[str, jax.Array]:
        return {}

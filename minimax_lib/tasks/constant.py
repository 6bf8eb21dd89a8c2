"""Always the same task."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.tasks.weighted import Weighted


@dataclasses.dataclass(frozen=True)
class Constant(Weighted):
    """Always the same task."""

    n_tasks: int
    task: int = 0
    """Number of the task."""

    def __post_init__(self) -> None:
        if not 0 <= self.task < self.n_tasks:
            raise ValueError(f"task is {self.task}: it must be a number from 0 to {self.n_tasks - 1}")

    def weights(self, state: Any) -> jax.Array:
        return (jnp.arange(self.n_tasks, dtype=jnp.int32) == self.task).astype(jnp.float32)

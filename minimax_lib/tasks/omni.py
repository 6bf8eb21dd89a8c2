"""OMNI: tasks that are boring beside those that the student can do have hardly any weight (Zhang et al. 2023)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import episodes_needed
from minimax_lib.tasks.interesting import Interesting
from minimax_lib.tasks.rates import check_share
from minimax_lib.tasks.weighted import Filter


class OmniState(struct.PyTreeNode):
    """The matrix is part of the state: it may be replaced during training (`set_interesting`)."""

    inner: Any
    interesting: jax.Array  # bool[N, N], whether task j is still interesting to an agent that can do task i
    present: jax.Array  # bool[N], something is known of row i
    missing: jax.Array  # bool[N, N], nothing is known of j beside i: boring, even if it was interesting before
    rates: jax.Array  # f32[N], of the last evaluation
    boring: jax.Array  # bool[N]


@dataclasses.dataclass(frozen=True)
class Omni(Filter):
    """`inner`, with the weights of boring tasks multiplied by `factor_of_boring`.

    Tasks are visited by their rates of success, the highest first; of equal ones, the lowest number. If a task is
    not boring yet, it is interesting, and its row says which others become boring. Without a matrix, nothing is boring.
    """

    interesting: Interesting | None = None
    factor_of_boring: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("factor_of_boring", self.factor_of_boring)
        if not episodes_needed(self.inner):
            raise ValueError(f"inner is {type(self.inner).__name__}: it must be a curriculum that is told rates")
        if self.interesting is not None and self.interesting.n_tasks != self.n_tasks:
            raise ValueError(
                f"the matrix of interesting tasks has {self.interesting.n_tasks} tasks: there are {self.n_tasks}"
            )

    def init(self, key: jax.Array) -> OmniState:
        matrix = self.interesting or Interesting.all_of(self.n_tasks)
        return OmniState(
            inner=self.inner.init(key),
            interesting=jnp.asarray(matrix.interesting),
            present=jnp.asarray(matrix.present),
            missing=jnp.asarray(matrix.missing),
            rates=jnp.zeros(self.n_tasks, jnp.float32),
            boring=jnp.zeros(self.n_tasks, bool),  # until the first evaluation
        )

    def evaluated(self, state: OmniState, rates: jax.Array, known: jax.Array) -> OmniState:
        state = super().evaluated(state, rates, known)
        return self._sorted_out(state.replace(rates=self.rates_after(state.rates, rates, known)))

    def set_interesting(self, state: OmniState, interesting: jax.Array, present: jax.Array | None = None) -> OmniState:
        """The state with another matrix (bool[N, N]) and its rows that count (bool[N]; None: all)."""
        present = jnp.ones(self.n_tasks, bool) if present is None else present
        matrix = {"interesting": interesting, "present": present, "missing": jnp.zeros_like(state.missing)}
        return self._sorted_out(state.replace(**matrix))

    def _sorted_out(self, state: OmniState) -> OmniState:
        """The state with the tasks that are boring now."""

        def visit(loop: tuple[jax.Array, jax.Array], i: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
            chosen, boring = loop
            is_chosen = ~boring[i]
            chosen = chosen.at[i].set(is_chosen)
            found = (~state.interesting[i] & ~chosen) | state.missing[i]
            return (chosen, boring | (found & is_chosen & state.present[i])), None

        nothing = jnp.zeros(self.n_tasks, bool)
        order = jnp.argsort(-state.rates, stable=True)
        (_, boring), _ = jax.lax.scan(visit, (nothing, nothing), order)
        return state.replace(boring=boring)

    def factor(self, state: OmniState) -> jax.Array:
        return jnp.where(state.boring, self.factor_of_boring, 1.0)

    def report(self, state: OmniState) -> dict[str, jax.Array]:
        return super().report(state) | {"tasks/boring": state.boring.mean(dtype=jnp.float32)}

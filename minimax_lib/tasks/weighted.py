"""Distributions over N tasks, and filters of their weights."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results, draws_from_weights, episodes_needed, kinds_in, takes_groups
from minimax_lib.tasks.draws import draw
from minimax_lib.tasks.rates import Unseen


class Weighted:
    """A task curriculum that draws from its weights. To write one, say `n_tasks`, `weights`, and what changes them."""

    n_tasks: int
    reads_scores = False
    divides = False
    """Of several devices, each may have a core for a part of the list. Otherwise all have the same, for all of it."""

    def init(self, key: jax.Array) -> Any:
        return ()

    def weights(self, state: Any) -> jax.Array:
        raise NotImplementedError

    def sample(self, key: jax.Array, state: Any, n: int) -> jax.Array:
        return draw(key, self.weights(state), n)

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any:
        return state

    def update(self, state: Any, results: Results) -> Any:
        return state

    def report(self, state: Any) -> dict[str, jax.Array]:
        return {}


def reweighted(weights: jax.Array, factor: jax.Array) -> jax.Array:
    """f32[N] that add up to 1: `weights` times `factor`, both f32[N]. If all of that is 0, the weights as they were."""
    found = weights * factor
    total = found.sum()
    return jnp.where(total > 0, found / jnp.where(total > 0, total, 1.0), weights)


@dataclasses.dataclass(frozen=True)
class Around(Weighted):
    """The base of curricula round another one. The state has a field `inner`."""

    inner: Any

    @property
    def n_tasks(self) -> int:  # type: ignore[override]
        return self.inner.n_tasks

    @property
    def reads_scores(self) -> bool:  # type: ignore[override]
        return self.inner.reads_scores

    @property
    def from_weights(self) -> bool:
        return draws_from_weights(self.inner)

    @property
    def takes_groups(self) -> bool:
        return takes_groups(self.inner)

    @property
    def unseen(self) -> Unseen:
        """What a task without a new rate counts as: the setting of the inner curriculum, where it has one."""
        return getattr(self.inner, "unseen", "zero")

    def started(self, state: Any, tasks: jax.Array, valid: jax.Array) -> Any:
        return state.replace(inner=self.inner.started(state.inner, tasks, valid))

    def report(self, state: Any) -> dict[str, jax.Array]:
        return self.inner.report(state.inner)


@dataclasses.dataclass(frozen=True)
class Filter(Around):
    """A curriculum round another one, whose weights it multiplies by a `factor`."""

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Weighted) or not draws_from_weights(self.inner):
            raise ValueError(
                f"inner is {kinds_in(self.inner)}: it must be a curriculum that draws from its weights alone (Weighted)"
            )

    @property
    def min_episodes(self) -> int:
        return episodes_needed(self.inner)

    def rates_after(self, before: jax.Array, rates: jax.Array, known: jax.Array) -> jax.Array:
        """f32[n_tasks], the rates after an evaluation: they were `before`, and tasks that are not `known` have none."""
        return jnp.where(known, rates, before if self.unseen == "keep" else 0.0)

    def factor(self, state: Any) -> jax.Array:
        """f32[n_tasks], not negative."""
        raise NotImplementedError

    def weights(self, state: Any) -> jax.Array:
        return reweighted(self.inner.weights(state.inner), self.factor(state))

    def update(self, state: Any, results: Results) -> Any:
        return state.replace(inner=self.inner.update(state.inner, results))

    def evaluated(self, state: Any, rates: jax.Array, known: jax.Array) -> Any:
        if not episodes_needed(self.inner):
            return state
        return state.replace(inner=self.inner.evaluated(state.inner, rates, known))


class MaskedState(struct.PyTreeNode):
    inner: Any


@dataclasses.dataclass(frozen=True)
class Masked(Filter):
    """Only the tasks that are `allowed` are drawn."""

    allowed: tuple[bool, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "allowed", tuple(map(bool, self.allowed)))
        if len(self.allowed) != self.n_tasks or not any(self.allowed):
            raise ValueError(f"allowed has {len(self.allowed)} entries: it needs {self.n_tasks}, one of them true")

    def init(self, key: jax.Array) -> MaskedState:
        return MaskedState(self.inner.init(key))

    def factor(self, state: MaskedState) -> jax.Array:
        return jnp.asarray(self.allowed, jnp.float32)

    def weights(self, state: MaskedState) -> jax.Array:
        # Where the inner weights leave nothing that is allowed, the mask alone decides.
        allowed = self.factor(state)
        found = self.inner.weights(state.inner) * allowed
        return reweighted(jnp.where(found.sum() > 0, found, allowed), allowed)

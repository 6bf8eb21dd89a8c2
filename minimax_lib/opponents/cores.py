"""Which copies in the bank the student meets: task curricula, whose tasks are the slots.

Their state is the bank's `Record`. `book` changes it, and none of the curricula do.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.opponents.bank import LIVE, Record, filled, first_record, win_rates
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import TaskCurriculum, able
from minimax_lib.tasks.rates import check_share
from minimax_lib.tasks.weighted import Weighted, reweighted

Weighting = Literal["hard", "var"]


@runtime_checkable
class Opponents(TaskCurriculum, Protocol):
    """A task curriculum whose tasks are the slots of a bank, and whose state is the bank's `Record`.

    `sample` may draw LIVE, the student as it is now. `weights` are the shares of the slots in all draws. So they add up
    to 1 - `live_share`.
    """

    @property
    def live_share(self) -> float:
        """The share of draws that are LIVE."""
        ...


@dataclasses.dataclass(frozen=True)
class FromBank(Weighted):
    """The base of opponents that are drawn from the bank alone. To write one, say its `preference`."""

    n_tasks: int

    live_share = 0.0

    def init(self, key: jax.Array) -> Record:
        """The record of a new bank."""
        return first_record(self.n_tasks)

    def preference(self, record: Record) -> jax.Array:
        """f32[K], to which the weights are in proportion; none negative. Those of empty slots do not count."""
        raise NotImplementedError

    def weights(self, state: Record) -> jax.Array:
        """f32[K] that add up to 1, 0 for an empty slot. Where no copy is preferred, all have the same."""
        there = filled(state).astype(jnp.float32)
        return reweighted(there / jnp.maximum(there.sum(), 1.0), self.preference(state))


@dataclasses.dataclass(frozen=True)
class FictitiousSelfPlay(FromBank):
    """All copies in the bank have the same chance (fictitious self-play).

    Heinrich et al. 2015.
    """

    def preference(self, record: Record) -> jax.Array:
        return jnp.ones(self.n_tasks, jnp.float32)


@dataclasses.dataclass(frozen=True)
class DeltaUniform(FromBank):
    """The newest copies in the bank have the same chance, the others none.

    Their number is rounded up to whole copies, and to at least one.
    """

    delta: float = 0.5
    """Share of the copies that are too old. 0 is fictitious self-play, 1 leaves the newest copy alone."""

    def __post_init__(self) -> None:
        check_share("delta", self.delta)

    def preference(self, record: Record) -> jax.Array:
        # A table made on the host: in float32, a product that should be whole may be rounded up to one copy more.
        n_newest = jnp.asarray(newest(self.n_tasks, self.delta), jnp.int32)[filled(record).sum(dtype=jnp.int32)]
        last = jnp.sort(record.serial, descending=True)[n_newest - 1]
        return (record.serial >= last).astype(jnp.float32)


def newest(n: int, delta: float) -> Sequence[int]:
    """How many of 0 .. n copies the newest share 1 - `delta` is."""
    return [max(1, math.ceil(round((1 - delta) * m, 6))) for m in range(n + 1)]


@dataclasses.dataclass(frozen=True)
class PFSP(FromBank):
    """Copies by the student's rate p of wins against them: those that beat it come first (prioritised fictitious
    self-play).

    Vinyals et al. 2019. `var` is for a student that loses to most. A copy that was never met counts as one of those
    with the highest weight: its p is 0, with var 1/2.
    """

    weighting: Weighting = "hard"
    """hard: (1 - p)^exponent, the copies that beat the student. var: p (1 - p), those that are as good as it is."""
    exponent: float = 2.0
    """Of `hard`: how much copies that beat the student are preferred. 0: all alike."""
    smoothing: float = 0.01
    """What is added to every weight, so that beaten copies come back."""
    draw: float = 0.5
    """What a draw counts as, between 0 (a loss) and 1 (a win)."""

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            raise unknown_name("weighting", self.weighting, get_args(Weighting))
        check_share("draw", self.draw)
        for name in ("exponent", "smoothing"):
            if not (getattr(self, name) >= 0 and np.isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it must be finite and at least 0")

    def preference(self, record: Record) -> jax.Array:
        rate, met = win_rates(record, self.draw)
        if self.weighting == "hard":
            return (1.0 - rate) ** self.exponent + self.smoothing
        rate = jnp.where(met, rate, 0.5)
        return rate * (1.0 - rate) + self.smoothing


@dataclasses.dataclass(frozen=True)
class SelfPlay(Weighted):
    """The student plays itself as it is now."""

    n_tasks: int

    live_share = 1.0

    def init(self, key: jax.Array) -> Record:
        return first_record(self.n_tasks)

    def weights(self, state: Record) -> jax.Array:
        """f32[K], all 0."""
        return jnp.zeros(self.n_tasks, jnp.float32)

    def sample(self, key: jax.Array, state: Record, n: int) -> jax.Array:
        return jnp.full(n, LIVE, jnp.int32)


@dataclasses.dataclass(frozen=True)
class Mixture(Weighted):
    """The student as it is now with probability `share`, else an opponent of `inner`."""

    inner: Any
    share: float = 0.5

    def __post_init__(self) -> None:
        check_share("share", self.share)
        if not able(self.inner, "live_share"):
            raise ValueError(f"inner is {type(self.inner).__name__}: it must be `Opponents`")

    @property
    def n_tasks(self) -> int:  # type: ignore[override]
        return self.inner.n_tasks

    @property
    def live_share(self) -> float:
        return self.share + (1.0 - self.share) * self.inner.live_share

    def init(self, key: jax.Array) -> Record:
        return self.inner.init(key)

    def weights(self, state: Record) -> jax.Array:
        """f32[K] that add up to 1 - `live_share`."""
        return (1.0 - self.share) * self.inner.weights(state)

    def sample(self, key: jax.Array, state: Record, n: int) -> jax.Array:
        k_live, k_inner = jax.random.split(key)
        live = jax.random.bernoulli(k_live, self.share, (n,))
        return jnp.where(live, LIVE, self.inner.sample(k_inner, state, n))

"""Rates of success from training itself, for curricula that would have to be evaluated otherwise."""

import dataclasses
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.registry import unknown_name
from minimax_lib.tasks.core import Results, draws_from_weights, episodes_needed, kinds_in
from minimax_lib.tasks.rates import check_at_least, check_share, successes
from minimax_lib.tasks.weighted import Around, Weighted

Count = Literal["attempts", "episodes"]


class AttemptCounts(struct.PyTreeNode):
    """Attempts on N tasks since the last update of the rates."""

    successes: jax.Array  # f32[N]
    attempts: jax.Array  # f32[N]


class OnlineState(struct.PyTreeNode):
    inner: Any
    tally: AttemptCounts
    count: jax.Array  # i32[], attempts or episodes since the last update of the rates


@dataclasses.dataclass(frozen=True)
class Online(Around):
    """`inner`, told the rates of the attempts that end in training: no evaluation is needed.

    With `inner` a `LearningProgress`, it is online learning progress. A task that was not tried since the last update
    has no rate then. What that means is a setting of `inner` (`unseen`).
    """

    every: int = 1000
    """Attempts (or episodes) between two updates of the rates."""
    uniform: float = 0.25
    """Share of the draws that are uniform over all tasks."""
    save_last: bool = False
    """The last rate of a task counts as its first attempt after an update of the rates."""
    count: Count = "attempts"
    """What `every` counts: attempts or episodes. An episode may hold several attempts."""
    continuous: bool = False
    """Progress between 0 and 1 counts, not only what is solved."""

    def __post_init__(self) -> None:
        check_at_least("every", self.every, 1)
        check_share("uniform", self.uniform)
        if self.count not in get_args(Count):
            raise unknown_name("count", self.count, get_args(Count))
        if not episodes_needed(self.inner):
            raise ValueError(f"inner is {type(self.inner).__name__}: it must be a curriculum that is told rates")
        if not draws_from_weights(self.inner):
            raise ValueError(
                f"inner is {kinds_in(self.inner)}: it must draw from its weights alone, without PLR or a queue in it"
            )
        if self.save_last and self.unseen == "keep":
            raise ValueError("save_last is True: inner.unseen must be zero, since no task is unseen then")

    def init(self, key: jax.Array) -> OnlineState:
        zeros = jnp.zeros(self.n_tasks, jnp.float32)
        return OnlineState(self.inner.init(key), AttemptCounts(zeros, zeros), jnp.zeros((), jnp.int32))

    def update(self, state: OnlineState, results: Results) -> OnlineState:
        solved = successes(results, self.continuous)
        counts = results.valid & results.episode if self.count == "episodes" else results.valid
        number = state.count + jnp.cumsum(counts, dtype=jnp.int32)
        interval = (number - counts) // self.every  # which update each result comes before
        n_updates = number[-1] // self.every

        def with_results(tally: AttemptCounts, i: jax.Array) -> AttemptCounts:
            mine = (results.valid & (interval == i)).astype(jnp.float32)
            return AttemptCounts(
                tally.successes.at[results.task].add(mine * jnp.where(results.valid, solved, 0.0)),
                tally.attempts.at[results.task].add(mine),
            )

        def one(loop: tuple[jax.Array, Any, AttemptCounts]) -> tuple[jax.Array, Any, AttemptCounts]:
            i, inner, tally = loop
            tally = with_results(tally, i)
            rates = tally.successes / jnp.maximum(tally.attempts, 1.0)
            inner = self.inner.evaluated(inner, rates, tally.attempts > 0)
            kept = 1.0 if self.save_last else 0.0
            return i + 1, inner, AttemptCounts(kept * rates, jnp.full(self.n_tasks, kept, jnp.float32))

        # One iteration for each update, not for each result: mostly there is one at most.
        inner = self.inner.update(state.inner, results)
        loop = (jnp.zeros((), jnp.int32), inner, state.tally)
        _, inner, tally = jax.lax.while_loop(lambda loop: loop[0] < n_updates, one, loop)
        return OnlineState(inner, with_results(tally, n_updates), number[-1] % self.every)

    def quiet(self, state: OnlineState) -> jax.Array:
        # An inner curriculum that learns from results may change with any of them.
        learns = type(self.inner).update is not Weighted.update
        return jnp.where(learns, 0, self.every - 1 - state.count)

    def weights(self, state: OnlineState) -> jax.Array:
        return (1.0 - self.uniform) * self.inner.weights(state.inner) + self.uniform / self.n_tasks

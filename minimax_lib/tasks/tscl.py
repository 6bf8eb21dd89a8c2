"""TSCL-Window: tasks on which the return changes fastest (Matiisen et al. 2020, algorithm 4).

As the Prioritized Level Replay paper uses it: one window of results for each task, and no phase in which all tasks are
first tried.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.clock import Begun
from minimax_lib.tasks.core import Results
from minimax_lib.tasks.ordered import in_order
from minimax_lib.tasks.preference import Preference
from minimax_lib.tasks.weighted import Weighted


class TSCLState(struct.PyTreeNode):
    """The latest K results of N tasks."""

    times: jax.Array  # i32[N, K], the number of attempts on all tasks that had ended by then
    returns: jax.Array  # f32[N, K]
    counts: jax.Array  # i32[N], results so far; the latest stands at place (count - 1) mod K
    n_ended: jax.Array  # i32[]
    scores: jax.Array  # f32[N], the size of the slopes
    begun: Begun


@dataclasses.dataclass(frozen=True)
class TSCL(Weighted):
    """Tasks on which the return changes fastest (teacher-student curriculum learning, its window algorithm).

    A task's score is the absolute slope of its latest returns over the number of attempts.
    """

    n_tasks: int
    preference: Preference = Preference(transform="eps_greedy", eps=0.5, staleness=0.0)
    window: int = 10
    """Results of each task that the slope is drawn through."""
    alpha: float = 1.0
    """Weight of the newest slope; the rest is the task's score before it."""

    divides = True

    def __post_init__(self) -> None:
        if self.window < 2:
            raise ValueError(f"window is {self.window}: it must be at least 2, since one result has no slope")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}: it must be between 0 and 1")

    def init(self, key: jax.Array) -> TSCLState:
        n, shape = self.n_tasks, (self.n_tasks, self.window)
        return TSCLState(
            times=jnp.zeros(shape, jnp.int32),
            returns=jnp.zeros(shape, jnp.float32),
            counts=jnp.zeros(n, jnp.int32),
            n_ended=jnp.zeros((), jnp.int32),
            scores=jnp.zeros(n, jnp.float32),
            begun=Begun.none(n),
        )

    def started(self, state: TSCLState, tasks: jax.Array, valid: jax.Array) -> TSCLState:
        return state.replace(begun=state.begun.after(tasks, valid))

    def update(self, state: TSCLState, results: Results) -> TSCLState:
        def one(known: TSCLState, i: jax.Array) -> TSCLState:
            return self._with(known, results.task[i], results.returns[i])

        # A task may have several results in one batch, and each slope follows from the last.
        return in_order(one, state, results.valid)

    def _with(self, state: TSCLState, task: jax.Array, value: jax.Array) -> TSCLState:
        """The state after an attempt on `task` (i32[]) with this return (f32[])."""
        now, place = state.n_ended + 1, state.counts[task] % self.window
        times, returns = state.times.at[task, place].set(now), state.returns.at[task, place].set(value)
        counts = state.counts.at[task].add(1)
        size = jnp.abs(slope(times[task] - now, returns[task], counts[task]))
        score = (1 - self.alpha) * state.scores[task] + self.alpha * size
        return TSCLState(times, returns, counts, now, state.scores.at[task].set(score), state.begun)

    def weights(self, state: TSCLState) -> jax.Array:
        return self.preference.weights(state.scores, state.begun.ages(), jnp.ones(self.n_tasks, bool))

    def report(self, state: TSCLState) -> dict[str, jax.Array]:
        return {
            "tasks/tried": (state.counts > 0).mean(dtype=jnp.float32),
            "tasks/weighted_score": (self.weights(state) * state.scores).sum(),
        }


def slope(times: jax.Array, returns: jax.Array, n: jax.Array) -> jax.Array:
    """f32[]: of the least-squares line through the first min(n, K) points of i32[K] and f32[K]; 0 below two points."""
    valid = jnp.arange(len(times)) < n
    count = jnp.maximum(valid.sum(), 1).astype(jnp.float32)

    def centred(x: jax.Array) -> jax.Array:
        return jnp.where(valid, x - jnp.where(valid, x, 0.0).sum() / count, 0.0)

    x, y = centred(times.astype(jnp.float32)), centred(returns)
    spread = (x * x).sum()
    return jnp.where(spread > 0, (x * y).sum() / jnp.where(spread > 0, spread, 1.0), 0.0)

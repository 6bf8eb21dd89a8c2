"""Prioritized Level Replay on a fixed list of tasks (Jiang et al. 2021a)."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.priorities import least_count
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.clock import Begun, last_entries
from minimax_lib.tasks.core import Results
from minimax_lib.tasks.draws import draw, draw_where
from minimax_lib.tasks.ordered import in_order
from minimax_lib.tasks.preference import Preference

Schedule = Literal["proportionate", "fixed"]


class ListedPLRState(struct.PyTreeNode):
    """What is known of N tasks."""

    scores: jax.Array  # f32[N], 0 where not seen
    seen: jax.Array  # bool[N], the task has a score
    begun: Begun


@dataclasses.dataclass(frozen=True)
class ListedPLR:
    """Tasks come back by their scores and ages, and new ones come in between (Prioritized Level Replay).

    A new task is drawn uniformly from those without a score.
    """

    n_tasks: int
    preference: Preference = Preference()
    schedule: Schedule = "proportionate"
    """Replay with the share of tasks that have a score, but no more than `replay_prob`; or with `replay_prob`."""
    replay_prob: float = 1.0
    """Probability of replaying a task rather than drawing one without a score."""
    min_fill: float = 0.0
    """Share of tasks that must have a score before any is replayed."""
    alpha: float = 1.0
    """Weight of an attempt's score; the rest is the task's score before it."""

    reads_scores = True
    from_weights = False
    divides = True

    def __post_init__(self) -> None:
        if self.schedule not in get_args(Schedule):
            raise unknown_name("schedule", self.schedule, get_args(Schedule))
        for name in ("replay_prob", "min_fill", "alpha"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")
        if self.schedule == "fixed" and self.replay_prob == 1 and self.min_fill < 1:
            raise ValueError(
                "replay_prob is 1 with schedule fixed: after the first scores, no task without one would ever be "
                "drawn, so it must be below 1 (try 0.5), or min_fill must be 1"
            )

    def init(self, key: jax.Array) -> ListedPLRState:
        n = self.n_tasks
        return ListedPLRState(jnp.zeros(n, jnp.float32), jnp.zeros(n, bool), Begun.none(n))

    def sample(self, key: jax.Array, state: ListedPLRState, n: int) -> jax.Array:
        k_coin, k_replay, k_new = jax.random.split(key, 3)
        replays = jax.random.uniform(k_coin, (n,)) < self.replay_probability(state)
        replayed = draw(k_replay, self.weights(state), n)
        # Once all tasks have a score, a draw that is not replayed is uniform over all of them.
        return jnp.where(replays, replayed, draw_where(k_new, ~state.seen, n))

    def replay_probability(self, state: ListedPLRState) -> jax.Array:
        """f32[]: 0 until a share `min_fill` of the tasks has a score."""
        share = state.seen.mean(dtype=jnp.float32)
        if self.schedule == "fixed":  # with all tasks seen, nothing else is left to draw
            probability = jnp.where(state.seen.all(), 1.0, self.replay_prob)
        else:
            probability = jnp.minimum(share, self.replay_prob)
        enough = state.seen.sum(dtype=jnp.int32) >= least_count(self.min_fill, self.n_tasks)
        return jnp.where(enough, probability, 0.0)

    def started(self, state: ListedPLRState, tasks: jax.Array, valid: jax.Array) -> ListedPLRState:
        return state.replace(begun=state.begun.after(tasks, valid))

    def update(self, state: ListedPLRState, results: Results) -> ListedPLRState:
        known = jnp.isfinite(results.score)
        if self.alpha == 1:  # only the last score of each task counts
            last = last_entries(self.n_tasks, results.task, known)
            found = last >= 0
            scores = jnp.where(found, results.score[jnp.maximum(last, 0)], state.scores)
            return state.replace(scores=scores, seen=state.seen | found)

        def one(loop: tuple[jax.Array, jax.Array], i: jax.Array) -> tuple[jax.Array, jax.Array]:
            scores, seen = loop
            task, score = results.task[i], results.score[i]
            mixed = (1 - self.alpha) * scores[task] + self.alpha * score
            return scores.at[task].set(jnp.where(seen[task], mixed, score)), seen.at[task].set(True)

        # A task may have several scores in one batch, and their order counts.
        scores, seen = in_order(one, (state.scores, state.seen), known)
        return state.replace(scores=scores, seen=seen)

    def weights(self, state: ListedPLRState) -> jax.Array:
        """The replay weights; uniform before any task has a score."""
        found = self.preference.weights(state.scores, state.begun.ages(), state.seen)
        return jnp.where(state.seen.any(), found, 1.0 / self.n_tasks)

    def report(self, state: ListedPLRState) -> dict[str, jax.Array]:
        return {
            "tasks/seen": state.seen.mean(dtype=jnp.float32),
            "tasks/replay_probability": self.replay_probability(state),
            "tasks/weighted_score": (self.weights(state) * state.scores).sum(),
            "tasks/weighted_age": (self.weights(state) * state.begun.ages().astype(jnp.float32)).sum(),
        }


@dataclasses.dataclass(frozen=True)
class RobustPLR(ListedPLR):
    """The same, but new tasks are only scored: nothing is learnt from attempts on them (Jiang et al. 2021b).

    For a host alone, whose trainer leaves these attempts out of its update (`Host.trains`).
    """

    def trains(self, state: ListedPLRState) -> jax.Array:
        """bool[N], the tasks to learn from: those that have a score."""
        return state.seen

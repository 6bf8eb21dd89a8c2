"""What a curriculum is told about the levels that it proposed."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.experience import Experience, discounted_mean, experience
from minimax_lib.curricula.scores import Score
from minimax_lib.envs.base import Attempt
from minimax_lib.gae import clipped_gae
from minimax_lib.opponents.bank import Games
from minimax_lib.opponents.duel import OPPONENT_RETURN, Duel, mean_of_seats
from minimax_lib.playing.returns import (
    ONE_ROW_EACH,
    EpisodeReturns,
    Layout,
    episode_returns,
    rows_of_levels,
    split_by_level,
)
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.tasks.attempts import Steps


class Outcome(Protocol):
    """The results of A students on a batch of B levels: all that a curriculum is told."""

    @property
    def episodes(self) -> EpisodeReturns:
        """Statistics of the finished episodes, [A, B]. All rows of a level are pooled."""
        ...

    @property
    def transitions(self) -> Transition:
        """All steps of all rows, [T, A, R], with what was seen and done: for models that scores have."""
        ...

    def score(self, score: Score, best_return: jax.Array, modelled: jax.Array | None = None) -> jax.Array:
        """f32[B]; -inf where no episode finished.

        `best_return` (f32[B]) is the highest return ever reached on each level, this batch included. `modelled`
        (f32[T, A, R]) is what the score's own model says of `transitions`; None where it has none.
        """
        ...

    def steps(self, score: Score | None) -> Steps:
        """All steps of all rows, [T, A * R]; `task` is the number of the level in the batch's queue.

        `score` is a mean over steps, without best returns; None: it is not computed.
        """
        ...

    def games(self, duel: Duel) -> Games:
        """The first of the N games side by side against the opponents of the batch, [T * N] in the order of steps."""
        ...


@dataclasses.dataclass(frozen=True)
class RolloutOutcome:
    """The outcome of a rollout [T, A, R] on B levels, to which its rows belong by `layout`.

    Everything is computed when it is asked for, and nothing is kept. Otherwise, a value that was first computed inside
    `eval_shape` or a branch could leak out of it. So this object never crosses the boundary of a `jit` either.
    """

    agent: AgentPop
    params: Any  # [A, ...], of the students that played; [K, A, ...] where there are parts
    runs: Rollout
    parts: Rollout | None = None  # the K rollouts that `runs` is made of, if several: every leaf leads with K
    layout: Layout = ONE_ROW_EACH
    optimal_returns: Callable[[float], jax.Array] | None = None  # of gamma: f32[B], where the environment knows them

    @property
    def episodes(self) -> EpisodeReturns:
        return episode_returns(split_by_level(self.runs.steps, self.layout), self.layout.n_evals, self.layout.in_turn)

    @property
    def transitions(self) -> Transition:
        return self.runs.steps

    def score(self, score: Score, best_return: jax.Array, modelled: jax.Array | None = None) -> jax.Array:
        """See `Outcome`. Only a score that needs the network, or gradients of it, pays for them."""
        seen = self._experience(score, best_return)
        if modelled is not None:
            seen = seen.replace(modelled=rows_of_levels(modelled, self.layout))
        if score.needs_update:
            seen = seen.replace(change=self._change())
        if score.needs_clipped:
            seen = seen.replace(clipped=self._clipped())
        if score.needs_optimum:
            seen = seen.replace(discounted=self._discounted(), optimum=self._optimum())
        return score(seen)

    def steps(self, score: Score | None) -> Steps:
        """See `Outcome`. ValueError for a score that is not a mean over steps."""
        steps = self.runs.steps
        quantity = jnp.full_like(steps.reward, jnp.nan)
        if score is not None:
            if score.quantity is None:
                raise ValueError("the score of an attempt must be a mean over its steps (Score.quantity)")
            # Who knows the best returns adds them to the mean (`tasks.with_best_returns`).
            best = jnp.full(self.episodes.count.shape[-1], 0.0 if score.adds_best else jnp.nan, jnp.float32)
            quantity = score.quantity(self._experience(score, best))
        assert steps.number is not None
        attempt = steps.attempt or Attempt(progress=steps.progress, ended=steps.done)
        rows = Steps(
            task=steps.number,
            done=attempt.ended,
            progress=attempt.progress,
            episode=steps.done,
            episode_return=steps.episode_return,
            quantity=quantity,
            valid=steps.valid,
            over=self._over(),
        )
        return jax.tree.map(lambda x: x.reshape(len(x), -1), rows)

    def _over(self) -> jax.Array | None:
        """bool[T, A, R], the episode of all agents ended with the step; None where each row is an environment."""
        final = self.runs.final
        if self.runs.steps.valid is None or final is None:
            return None
        return jnp.concatenate([self.runs.steps.first[1:], final.first[None]])

    def games(self, duel: Duel) -> Games:
        """See `Outcome`. The student's return is the mean over its seats, and so is the opponents'."""
        steps = self.runs.steps
        over = self._over()
        if over is None:  # it is not known where all agents begin again, so that each must be alone
            assert self.layout.n_agents == 1
            over = steps.done

        def of_games(x: jax.Array) -> jax.Array:
            """[T, N, S] of what belongs to the rows [T, 1, N * S]."""
            return x.reshape(len(x), -1, self.layout.n_agents)

        ends = of_games(over)[:, :, 0]
        # The first game of each row. Of all that end in a rollout, too many would be short ones.
        is_first = jnp.cumsum(ends, axis=0, dtype=jnp.int32) == 1
        n_groups = len(duel.slots)

        def of_slots(x: jax.Array) -> jax.Array:
            return jnp.broadcast_to(jnp.repeat(x, ends.shape[1] // n_groups), ends.shape).reshape(-1)

        return Games(
            slot=of_slots(duel.slots),
            serial=of_slots(duel.serials),
            student_return=mean_of_seats(of_games(steps.episode_return)).reshape(-1),
            opponent_return=of_games(steps.facts[OPPONENT_RETURN])[:, :, 0].reshape(-1),
            valid=(ends & is_first).reshape(-1),
        )

    def _experience(self, score: Score, best_return: jax.Array) -> Experience:
        logits, values = self._look() if score.needs_network else (None, None)
        discounts = self.agent.gamma, self.agent.gae_lambda
        return experience(self.runs, best_return, *discounts, logits, values, self.layout)

    def _look(self) -> tuple[jax.Array, jax.Array]:
        if self.parts is None:
            return self.agent.look(self.params, self.runs)
        # The students have learnt between the parts. Each part is looked at with the parameters that played it.
        seen = jax.lax.map(lambda part: self.agent.look(*part), (self.params, self.parts))
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), seen)

    def _clipped(self) -> jax.Array:
        """f32[T, A, R], the clipped advantages: of the rows, before they are split by level."""
        td_error, _ = self.runs.advantages(self.agent.gamma, 0.0)
        clipped = clipped_gae(td_error, self.runs.steps.done, self.agent.gamma, self.agent.gae_lambda)
        return rows_of_levels(clipped, self.layout)

    def _discounted(self) -> jax.Array:
        steps = split_by_level(self.runs.steps, self.layout)
        return discounted_mean(steps, self.agent.gamma, self.layout.n_evals)

    def _optimum(self) -> jax.Array:
        if self.optimal_returns is None:
            raise ValueError("a score looks at the best return of a level, which is not known here")
        return self.optimal_returns(self.agent.gamma)

    def _change(self) -> jax.Array:
        """f32[A, B], the mean over the parts: after each of them there is an update."""
        if self.parts is None:
            return self.agent.parameter_change(self.params, self.runs, self.layout.n_evals)

        def of_part(part: tuple[Any, Rollout]) -> jax.Array:
            return self.agent.parameter_change(*part, self.layout.n_evals)

        return jax.lax.map(of_part, (self.params, self.parts)).mean(axis=0)

"""Parallel PLR and parallel ACCEL: every kind of level in one wider batch (Jiang et al. 2023)."""

import dataclasses
import functools
from typing import TYPE_CHECKING

import jax

from minimax_lib.counts import Count
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY, Curriculum, LevelBatch, Plan, Students, joined
from minimax_lib.curricula.outcome import Outcome

if TYPE_CHECKING:  # their settings build a `Parallel`
    from minimax_lib.curricula.levels.accel import Mutation
    from minimax_lib.curricula.levels.plr import PLRCurriculum, PLRState


@dataclasses.dataclass(frozen=True)
class Parallel(Curriculum):
    """One batch of B replayed rows, B new ones and, with a `mutation`, B children of the replayed ones.

    The students learn from the replayed rows, and all rows are scored. Until the buffer is full enough, all rows are
    new and nothing is learnt. `replay_prob` is not used.
    """

    inner: "PLRCurriculum"  # its generator remembers nothing and learns nothing: it makes several batches a step
    mutation: "Mutation | None" = None

    @property
    def plan(self) -> Plan:
        plan = self.inner.plan
        n = plan.n_rows
        if self.mutation is None:
            return dataclasses.replace(plan, n_rows=2 * n, n_train_rows=n)
        return dataclasses.replace(plan, n_rows=3 * n, n_train_rows=n, sources=(NEW, REPLAY, MUTATION))

    def extra_env_steps(self, state: "PLRState") -> Count:
        return self.inner.extra_env_steps(state)

    def init(self, key: jax.Array) -> "PLRState":
        return self.inner.init(key)

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: "PLRState", students: Students
    ) -> "tuple[PLRState, LevelBatch]":
        k_replay, k_first, k_second, k_third, k_edit = jax.random.split(key, 5)
        ready = self.inner.is_ready(state.buffer)

        def new(key: jax.Array) -> LevelBatch:
            proposed = self.inner.generator.propose(shared_key, key, clock, state.generator, students)[1]
            return self.inner.orphaned(proposed)

        first = jax.lax.cond(ready, lambda: self.inner.replayed(k_replay, state.buffer), lambda: new(k_first))
        # The replayed rows come first: they are the ones that the students learn from.
        parts = [first, new(k_second)]
        if self.mutation is not None:
            children = functools.partial(
                self.mutation.children, k_edit, first.levels, first.n_mutations, first.ancestors
            )
            parts.append(jax.lax.cond(ready, children, lambda: new(k_third)))
        return state, joined(parts, train=ready)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: "PLRState", batch: LevelBatch, outcome: Outcome
    ) -> "tuple[PLRState, dict[str, jax.Array]]":
        _, model = self.inner.fitted(key, state.model, outcome)
        buffer, scores = self.inner.scored(state.buffer, batch, outcome, state.model)
        return state.replace(buffer=buffer, model=model), self.inner.metrics(buffer, batch, scores)

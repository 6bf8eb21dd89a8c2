"""Parallel PLR and parallel ACCEL: every kind of level in one wider batch (Jiang et al. 2023)."""

import dataclasses
import functools

import jax

from minimax_lib.curricula.accel import Mutation
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY, LevelBatch, Play
from minimax_lib.curricula.plr import PLR, PLRState, joined
from minimax_lib.envs.batch import SameLevel
from minimax_lib.rollout import Rollout


@dataclasses.dataclass(frozen=True)
class Parallel:
    """B replayed rows, which the students learn from; B new ones; with a `mutation`, B children of the replayed ones.

    All rows are scored. Until the buffer is full enough, all rows are new and nothing is learnt
    (`replay_prob` is not used).
    """

    inner: PLR  # its generator remembers nothing and learns nothing: it makes several batches a step
    mutation: Mutation | None = None
    restart = SameLevel()

    @property
    def sources(self) -> tuple[int, ...]:
        return (NEW, REPLAY) if self.mutation is None else (NEW, REPLAY, MUTATION)

    @property
    def train_rows(self) -> slice:
        return slice(0, self.inner.n_rows)

    @property
    def n_rows(self) -> int:
        return self.inner.n_rows * (2 if self.mutation is None else 3)

    def extra_env_steps(self, clock: int) -> int:
        return self.inner.extra_env_steps(clock)

    def init(self, key: jax.Array) -> PLRState:
        return self.inner.init(key)

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: PLRState, play: Play
    ) -> tuple[PLRState, LevelBatch]:
        k_replay, k_first, k_second, k_third, k_edit = jax.random.split(key, 5)
        ready = self.inner.is_ready(state.buffer)

        def new(key: jax.Array) -> LevelBatch:
            return self.inner.generator.propose(shared, key, clock, state.generator, play)[1]

        ages, first = jax.lax.cond(
            ready,
            lambda: self.inner.replayed(k_replay, state.buffer),
            lambda: (state.buffer.ages, new(k_first)),
        )
        parts = [first, new(k_second)]
        if self.mutation is not None:
            children = functools.partial(self.mutation.children, k_edit, first.levels, first.n_mutations)
            parts.append(jax.lax.cond(ready, children, lambda: new(k_third)))
        state = state.replace(buffer=state.buffer.replace(ages=ages))
        return state, joined(parts, train=ready)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: PLRState, batch: LevelBatch, runs: Rollout
    ) -> tuple[PLRState, dict[str, jax.Array]]:
        buffer, scores = self.inner.scored(state.buffer, batch, runs)
        return state.replace(buffer=buffer), self.inner.metrics(buffer, batch, scores)

"""ACCEL: mutations of the levels that have just been replayed (Parker-Holder et al. 2022)."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.curricula.base import MUTATION, NEW, REPLAY, LevelBatch, Play, level_batch
from minimax_lib.curricula.plr import PLR, PLRState, zeros
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import SameLevel
from minimax_lib.rollout import Rollout, episode_returns

Selection = Literal["batch", "easy", "hard"]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """How children are made of parents: `n_edits` edits each by `edit(key, level, n_edits)`."""

    edit: Callable[[jax.Array, Level, int], Level]
    n_edits: int

    def children(self, key: jax.Array, parents: Level, n_mutations: jax.Array) -> LevelBatch:
        """A batch of one child of each of `parents` [B, ...], whose lineages had `n_mutations` (i32[B])."""
        keys = jax.random.split(key, len(n_mutations))
        levels = jax.vmap(lambda key, level: self.edit(key, level, self.n_edits))(keys, parents)
        batch = level_batch(levels, MUTATION, train=False)
        return batch.replace(n_mutations=n_mutations + self.n_edits)


class ACCELState(struct.PyTreeNode):
    """A replay curriculum, and the parents of the next batch."""

    inner: PLRState
    parents: Level  # [B, ...]
    n_mutations: jax.Array  # i32[B]
    due: jax.Array  # bool[], the last batch was replayed: its children come next; the same on every seed


@dataclasses.dataclass(frozen=True)
class ACCEL:
    """After every replayed batch of `inner`, a batch of its levels' children, which is only scored.

    Parents are the whole batch, or its `n_parents` levels with the highest ("easy") or lowest ("hard") mean return,
    each the parent of as many children as it takes to fill a batch.
    """

    inner: PLR
    mutation: Mutation
    selection: Selection = "batch"
    n_parents: int = 4
    train_rows = slice(None)
    sources = (NEW, REPLAY, MUTATION)
    restart = SameLevel()

    @property
    def n_rows(self) -> int:
        return self.inner.n_rows

    def extra_env_steps(self, clock: int) -> int:
        return self.inner.extra_env_steps(clock)

    def init(self, key: jax.Array) -> ACCELState:
        inner = self.inner.init(key)
        slots = jnp.zeros(self.n_rows, jnp.int32)
        return ACCELState(
            inner=inner,
            parents=jax.tree.map(lambda x: x[slots], inner.buffer.levels),
            n_mutations=slots,
            due=jnp.zeros((), bool),
        )

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: ACCELState, play: Play
    ) -> tuple[ACCELState, LevelBatch]:
        due = axes.everywhere_all(state.due)

        def inner() -> tuple[PLRState, LevelBatch]:
            return self.inner.propose(shared, key, clock, state.inner, play)

        def children() -> tuple[PLRState, LevelBatch]:
            batch = self.mutation.children(key, state.parents, state.n_mutations)
            return state.inner, batch.replace(context=zeros(undesigned))

        undesigned = jax.eval_shape(inner)[1].context

        inner_state, batch = jax.lax.cond(due, children, inner)
        return state.replace(inner=inner_state), batch

    def observe(
        self, key: jax.Array, clock: jax.Array, state: ACCELState, batch: LevelBatch, runs: Rollout
    ) -> tuple[ACCELState, dict[str, jax.Array]]:
        inner, metrics = self.inner.observe(key, clock, state.inner, batch, runs)
        chosen = self.parents(runs)
        return ACCELState(
            inner=inner,
            parents=jax.tree.map(lambda x: x[chosen], batch.levels),
            n_mutations=batch.n_mutations[chosen],
            due=(batch.source == REPLAY).all(),
        ), metrics

    def parents(self, runs: Rollout) -> jax.Array:
        """i32[B], the row that is the parent of each child. A level without a finished episode counts as hardest."""
        rows = jnp.arange(self.n_rows, dtype=jnp.int32)
        if self.selection == "batch":
            return rows
        episodes = episode_returns(runs.steps)
        ease = jnp.where(episodes.count > 0, episodes.mean, -jnp.inf).mean(axis=0)
        order = jnp.argsort(-ease if self.selection == "easy" else ease).astype(jnp.int32)
        return order[rows % self.n_parents]

"""Sampling for learnability (Rutherford et al. 2024)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.curricula.base import NEW, REPLAY, LevelBatch, Play, level_batch
from minimax_lib.curricula.plr import joined
from minimax_lib.curricula.scores import SCORES, outcome
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.batch import SameLevel
from minimax_lib.rollout import Rollout


class SFLState(struct.PyTreeNode):
    """The K levels with the highest learnability at the last scoring."""

    levels: Level  # [K, ...]
    learnability: jax.Array  # f32[K], p (1 - p); -inf where no level is known


@dataclasses.dataclass(frozen=True)
class SFL:
    """Half of each batch uniformly from the most learnable of many random levels, half fresh ones.

    Every `every` steps, `n_scored` random levels are played by the current students and the `n_kept` with the highest
    p (1 - p) are kept, p being the rate of completed episodes that were solved. A level none of whose episodes
    finished is never kept.
    """

    env: Environment
    n_rows: int
    n_scored: int
    n_kept: int
    every: int
    n_steps: int  # of a rollout, to count what scoring costs
    train_rows = slice(None)
    sources = (NEW, REPLAY)
    restart = SameLevel()

    def init(self, key: jax.Array) -> SFLState:
        level = self.env.sample_level(key)
        return SFLState(
            levels=jax.tree.map(lambda x: jnp.tile(x, (self.n_kept,) + (1,) * x.ndim), level),
            learnability=jnp.full(self.n_kept, -jnp.inf, jnp.float32),
        )

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: SFLState, play: Play
    ) -> tuple[SFLState, LevelBatch]:
        k_score, k_fresh, k_kept = jax.random.split(key, 3)
        due = clock % self.every == 0
        state = jax.lax.cond(due, lambda: self.rescored(k_score, play), lambda: state)

        n_kept_rows = self.n_rows // 2
        fresh = level_batch(self._fresh(k_fresh, self.n_rows), NEW, train=True)
        known = jnp.isfinite(state.learnability)
        place = jax.random.randint(k_kept, (n_kept_rows,), 0, jnp.maximum(known.sum(dtype=jnp.int32), 1))
        kept = level_batch(jax.tree.map(lambda x: x[place], state.levels), REPLAY, train=True)
        rest = jax.tree.map(lambda x: x[n_kept_rows:], fresh.replace(train=()))
        first = jax.tree.map(lambda x: x[:n_kept_rows], fresh.replace(train=()))
        chosen = jax.tree.map(lambda a, b: jnp.where(known.any(), a, b), kept.replace(train=()), first)
        return state, joined([chosen, rest], train=jnp.ones((), bool))

    def rescored(self, key: jax.Array, play: Play) -> SFLState:
        """The most learnable of `n_scored` random levels, the highest first; played `n_rows` at a time."""

        def score(key: jax.Array) -> tuple[Level, jax.Array]:
            k_levels, k_play = jax.random.split(key)
            levels = self._fresh(k_levels, self.n_rows)
            return levels, self.score(play(k_play, levels))

        keys = jax.random.split(key, self.n_scored // self.n_rows)
        levels, scores = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.lax.map(score, keys))
        best, place = jax.lax.top_k(scores, self.n_kept)
        return SFLState(levels=jax.tree.map(lambda x: x[place], levels), learnability=best)

    def extra_env_steps(self, clock: int) -> int:
        n_scorings = -(-clock // self.every)
        return n_scorings * self.n_scored * self.n_steps

    def score(self, runs: Rollout) -> jax.Array:
        """f32[B], p (1 - p); -inf where no episode finished."""
        nowhere = jnp.full(runs.last_value.shape[-1], -jnp.inf, jnp.float32)
        return SCORES["learnability"](outcome(runs, nowhere, gamma=0.0, gae_lambda=0.0))

    def _fresh(self, key: jax.Array, n: int) -> Level:
        return jax.vmap(self.env.sample_level)(jax.random.split(key, n))

    def observe(
        self, key: jax.Array, clock: jax.Array, state: SFLState, batch: LevelBatch, runs: Rollout
    ) -> tuple[SFLState, dict[str, Any]]:
        known = jnp.isfinite(state.learnability)
        cost = self.n_scored * self.n_steps
        return state, {
            "sfl/learnability": axes.mean_where(known, state.learnability),
            "sfl/kept": known.mean(dtype=jnp.float32),
            "sfl/scoring_steps": axes.device_sum(jnp.where(clock % self.every == 0, jnp.float32(cost), 0.0)),
        }

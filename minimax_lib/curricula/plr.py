"""Prioritised level replay (Jiang et al. 2021a) and its robust form (Jiang et al. 2021b)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import NEW, REPLAY, Curriculum, LevelBatch, Play
from minimax_lib.curricula.level_buffer import LevelBuffer, ReplaySettings
from minimax_lib.curricula.scores import ScoreRows
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import SameLevel
from minimax_lib.rollout import Rollout, episode_returns


class PLRState(struct.PyTreeNode):
    """What a replay curriculum remembers."""

    generator: Any
    buffer: LevelBuffer


@dataclasses.dataclass(frozen=True)
class PLR:
    """Every batch is either replayed from the level buffer or new from `generator`; every batch is scored.

    Students learn from replayed batches, and from new ones if `train_on_new` (PLR; without it, robust PLR).
    """

    generator: Curriculum
    settings: ReplaySettings
    score: ScoreRows
    train_on_new: bool = False
    identity: Callable[[Level], Any] = level_buffer.whole_level
    train_rows = slice(None)
    sources = (NEW, REPLAY)
    restart = SameLevel()

    @property
    def n_rows(self) -> int:
        return self.generator.n_rows

    def extra_env_steps(self, clock: int) -> int:
        return self.generator.extra_env_steps(clock)

    def init(self, key: jax.Array) -> PLRState:
        generator = self.generator.init(key)
        clock = jnp.zeros((), jnp.int32)
        batch = jax.eval_shape(lambda: self.generator.propose(key, key, clock, generator, never_play))[1]
        placeholder = jax.tree.map(lambda x: x[0], zeros(batch.levels))
        return PLRState(generator=generator, buffer=level_buffer.init(placeholder, self.settings.capacity))

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: PLRState, play: Play
    ) -> tuple[PLRState, LevelBatch]:
        k_coin, k_generator = jax.random.split(shared)
        k_new, k_replay = jax.random.split(key)
        replay = self.replays(k_coin, state.buffer)
        fresh = jax.eval_shape(lambda: self.generator.propose(k_generator, k_new, clock, state.generator, play))[1]

        def new() -> tuple[Any, jax.Array, LevelBatch]:
            generator, batch = self.generator.propose(k_generator, k_new, clock, state.generator, play)
            return generator, state.buffer.ages, batch

        def replayed() -> tuple[Any, jax.Array, LevelBatch]:
            ages, batch = self.replayed(k_replay, state.buffer, context=zeros(fresh.context))
            return state.generator, ages, batch

        generator, ages, batch = jax.lax.cond(replay, replayed, new)
        state = PLRState(generator=generator, buffer=state.buffer.replace(ages=ages))
        return state, batch.replace(train=replay | self.train_on_new)

    def is_ready(self, buffer: LevelBuffer) -> jax.Array:
        """bool[], the same on every seed and device: all buffers are full enough for replay."""
        return axes.everywhere_all(level_buffer.replay_probability(self.settings, buffer) > 0)

    def replays(self, key: jax.Array, buffer: LevelBuffer) -> jax.Array:
        """bool[], the same on every seed and device: the coin says so, and all buffers are full enough."""
        probability = level_buffer.replay_probability(self.settings, buffer)
        return axes.everywhere_all(jax.random.uniform(key) < probability)

    def replayed(self, key: jax.Array, buffer: LevelBuffer, context: Any = ()) -> tuple[jax.Array, LevelBatch]:
        """(the ages of all slots after the draws, a batch from the buffer)."""
        buffer, slots = level_buffer.sample(key, self.settings, buffer, self.n_rows)
        batch = LevelBatch(
            levels=level_buffer.levels_at(buffer, slots),
            slots=slots,
            source=jnp.full_like(slots, REPLAY),
            n_mutations=buffer.n_mutations[slots],
            train=jnp.ones((), bool),
            context=context,
        )
        return buffer.ages, batch

    def observe(
        self, key: jax.Array, clock: jax.Array, state: PLRState, batch: LevelBatch, runs: Rollout
    ) -> tuple[PLRState, dict[str, jax.Array]]:
        buffer, scores = self.scored(state.buffer, batch, runs)
        is_new = axes.everywhere_all((batch.source == NEW).all())

        def taught() -> tuple[Any, dict[str, jax.Array]]:
            return self.generator.observe(key, clock, state.generator, batch, runs)

        def untaught() -> tuple[Any, dict[str, jax.Array]]:
            return state.generator, jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), report_shape)

        report_shape = jax.eval_shape(taught)[1]
        generator, report = jax.lax.cond(is_new, taught, untaught)
        return PLRState(generator=generator, buffer=buffer), report | self.metrics(buffer, batch, scores)

    def scored(self, buffer: LevelBuffer, batch: LevelBatch, runs: Rollout) -> tuple[LevelBuffer, jax.Array]:
        """(the buffer with the batch in it where it is worth keeping, f32[B] scores)."""
        rows = level_buffer.locate(self.settings, buffer, batch.levels, batch.slots, self.identity)
        reached = episode_returns(runs.steps).best.max(axis=0)
        best = level_buffer.best_returns(buffer, rows, reached)
        scores = self.score(runs, best)
        return level_buffer.insert(self.settings, buffer, rows, scores, best, batch.n_mutations), scores

    def metrics(self, buffer: LevelBuffer, batch: LevelBatch, scores: jax.Array) -> dict[str, jax.Array]:
        """The state of the buffer, weighted by how likely its levels are to be replayed, and the batch's scores."""
        weights = level_buffer.weights(self.settings, buffer)
        known = jnp.isfinite(scores)
        n_filled = buffer.filled.sum(dtype=jnp.int32)
        descending = buffer.scores[level_buffer.highest_first(buffer.scores)]  # a sort that `weights` does too

        def weighted(values: jax.Array) -> jax.Array:
            return jnp.where(buffer.filled, weights * values.astype(jnp.float32), 0.0).sum()

        def quantile(share: float) -> jax.Array:
            place = ((1.0 - share) * (n_filled - 1).astype(jnp.float32)).astype(jnp.int32)
            return jnp.where(n_filled > 0, descending[place], jnp.nan)

        return {
            "buffer/fill": buffer.filled.mean(dtype=jnp.float32),
            "buffer/weighted_score": weighted(buffer.scores),
            "buffer/weighted_age": weighted(buffer.ages),
            "buffer/weighted_n_mutations": weighted(buffer.n_mutations),
            "buffer/score_p10": quantile(0.1),
            "buffer/score_p50": quantile(0.5),
            "buffer/score_p90": quantile(0.9),
            "replay_share": (batch.source == REPLAY).mean(dtype=jnp.float32),
            "batch/score": axes.mean_where(known, scores),
            "batch/unfinished": 1.0 - known.mean(dtype=jnp.float32),
        }


def zeros(shapes: Any) -> Any:
    """Zeros in the shapes of a tree of `ShapeDtypeStruct`."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


def never_play(key: jax.Array, levels: Level) -> Rollout:
    """Stands for the students where there are none yet."""
    raise ValueError("this curriculum cannot generate levels for another: it has to see the students play first")


def joined(batches: list[LevelBatch], train: jax.Array) -> LevelBatch:
    """One batch, the rows of all `batches` in their order; their contexts are dropped."""
    parts = [b.replace(context=(), train=()) for b in batches]
    return jax.tree.map(lambda *xs: jnp.concatenate(xs), *parts).replace(train=train)

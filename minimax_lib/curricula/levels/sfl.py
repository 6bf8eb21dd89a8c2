"""Sampling for learnability (Rutherford et al. 2024)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula.base import (
    NEW,
    REPLAY,
    Attempts,
    Curriculum,
    LevelBatch,
    Plan,
    Students,
    joined,
    level_batch,
)
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import MOST_EPISODES, RestartedRollouts
from minimax_lib.envs.base import Environment, Level, sample_levels


class SFLState(struct.PyTreeNode):
    """The K levels with the highest learnability at the last scoring, and when the next scoring is due."""

    levels: Level  # [K, ...]
    learnability: jax.Array  # f32[K], p (1 - p); 0 before the first scoring
    wait: jax.Array  # i32[], batches before the next scoring; the same on every seed
    env_steps: Count  # of all scorings


@dataclasses.dataclass(frozen=True)
class SFLCurriculum(Curriculum):
    """Half of each batch are learnable levels, drawn uniformly from those that were kept. The other half is fresh.

    Every `every` batches, the current students play `n_episodes` whole episodes on each of `n_scored` random levels.
    The `n_kept` levels with the highest p (1 - p) are kept, where p is the rate of solved episodes.
    """

    env: Environment
    n_rows: int
    n_scored: int
    n_kept: int
    n_episodes: int
    every: int

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, sources=(NEW, REPLAY))

    def extra_env_steps(self, state: SFLState) -> Count:
        return state.env_steps

    def init(self, key: jax.Array) -> SFLState:
        level = self.env.sample_level(key)
        return SFLState(
            levels=jax.tree.map(lambda x: jnp.tile(x, (self.n_kept,) + (1,) * x.ndim), level),
            learnability=jnp.zeros(self.n_kept, jnp.float32),
            wait=jnp.zeros((), jnp.int32),
            env_steps=Count.zero(),
        )

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: SFLState, students: Students
    ) -> tuple[SFLState, LevelBatch]:
        k_score, k_fresh, k_kept = jax.random.split(key, 3)
        before, due = state.env_steps, axes.common(state.wait) == 0
        # The clock cannot decide this: as the generator of another curriculum, this one is not asked in every step.
        state = state.replace(wait=jnp.where(due, self.every, state.wait) - 1)
        state = jax.lax.cond(due, lambda: self.rescored(k_score, state, students), lambda: state)

        n_kept_rows = self.n_rows // 2
        place = jax.random.randint(k_kept, (n_kept_rows,), 0, self.n_kept)
        kept = level_batch(jax.tree.map(lambda x: x[place], state.levels), REPLAY)
        fresh = level_batch(sample_levels(self.env, k_fresh, self.n_rows - n_kept_rows), NEW)
        batch = joined([kept, fresh], train=jnp.ones((), bool))
        # The difference is modulo 2**32. It is right as long as one scoring takes fewer steps than that.
        return state, batch.replace(context=(state.env_steps.low - before.low).astype(jnp.float32))

    def rescored(self, key: jax.Array, state: SFLState, students: Students) -> SFLState:
        """The most learnable of `n_scored` random levels, the highest first; played `n_rows` at a time."""

        def score(key: jax.Array) -> tuple[Level, jax.Array, jax.Array]:
            k_levels, k_play = jax.random.split(key)
            levels = sample_levels(self.env, k_levels, self.n_rows)
            # Whole episodes, and several of them. A rollout is about one episode long: its rate would be 0 or 1, and
            # p (1 - p) would be 0 for all levels. It would also leave out long episodes, which are the failed ones.
            attempts = students.attempts(k_play, levels, self.n_episodes)
            return levels, learnability_of(attempts), attempts.env_steps

        # One part is played after another. So memory does not grow with the number of levels.
        levels, scores, env_steps = jax.lax.map(score, jax.random.split(key, self.n_scored // self.n_rows))
        levels, scores = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (levels, scores))
        best, place = jax.lax.top_k(scores, self.n_kept)
        return state.replace(
            levels=jax.tree.map(lambda x: x[place], levels),
            learnability=best,
            env_steps=state.env_steps.plus(env_steps.sum(dtype=jnp.uint32)),
        )

    def observe(
        self, key: jax.Array, clock: jax.Array, state: SFLState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[SFLState, dict[str, jax.Array]]:
        return state, {
            "sfl/learnability": state.learnability.mean(),
            "sfl/scoring_steps": axes.device_sum(batch.context),
        }


def learnability_of(attempts: Attempts) -> jax.Array:
    """f32[B], the mean over the students of p (1 - p), where p is a student's rate of solved episodes."""
    p = attempts.episodes.solved.mean(axis=2, dtype=jnp.float32)
    return (p * (1.0 - p)).mean(axis=0)


@dataclasses.dataclass(frozen=True)
class SFLSettings:
    """Sampling for learnability: train on the levels that are solved about half of the time."""

    every: int = 50
    """Updates between two scorings of random levels with the current students."""
    n_scored: int = 640
    """Random levels in a scoring, a multiple of n_parallel * levels_per_row."""
    n_kept: int = 128
    """Levels that are kept of a scoring: the most learnable. Half of each batch is drawn from them."""
    n_episodes: int = 8
    """Whole episodes of each student on a scored level, which give its rate of solved episodes; at least 2."""

    def __post_init__(self) -> None:
        if self.n_episodes < 2:
            raise ValueError(
                f"runner.n_episodes is {self.n_episodes}: a rate of one episode is 0 or 1, and then no level is "
                "learnable, so it must be at least 2"
            )
        if self.n_episodes > MOST_EPISODES:
            raise ValueError(f"runner.n_episodes is {self.n_episodes}: it must be at most {MOST_EPISODES}")
        if self.every < 1:
            raise ValueError(f"runner.every is {self.every}: it must be at least 1")
        if self.n_scored < 1:
            raise ValueError(f"runner.n_scored is {self.n_scored}: it must be at least 1")
        if not 1 <= self.n_kept <= self.n_scored:
            raise ValueError(
                f"runner.n_kept is {self.n_kept}: it must be between 1 and runner.n_scored, which is {self.n_scored}"
            )

    @property
    def divided(self) -> tuple[str, ...]:
        return ("n_scored", "n_kept")

    def check_rows(self, n_rows: int) -> None:
        """ValueError where batches of `n_rows` levels do not fit."""
        if n_rows % 2:
            raise ValueError(
                f"runner.n_parallel * runner.levels_per_row is {n_rows}: it must be even, half of the levels are fresh"
            )
        if self.n_scored < 1 or self.n_scored % n_rows:
            nearest = n_rows * max(1, round(self.n_scored / n_rows))
            raise ValueError(
                f"runner.n_scored is {self.n_scored}: it must be a multiple of {n_rows} (runner.n_parallel * "
                f"runner.levels_per_row), such as {nearest}"
            )

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        self.check_rows(n_rows)
        return SFLCurriculum(env, n_rows, self.n_scored, self.n_kept, self.n_episodes, self.every)


@dataclasses.dataclass(frozen=True)
class SFLMethod(RestartedRollouts, SFLSettings):
    """Sampling for learnability: train on the levels that are solved about half of the time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_rows(self.levels_per_batch)


SFL = SFLMethod  # the name that it had

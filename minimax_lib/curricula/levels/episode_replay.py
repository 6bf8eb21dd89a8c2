"""Prioritised level replay of an unlimited number of levels, with a draw at the end of every episode.

This is the form of Jiang et al. 2021a, appendix B.3. The levels of `plr` stay in their rows for a whole batch instead.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import NEW, REPLAY, SOURCE_NAMES, Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.level_buffer import LevelBuffer, ReplaySettings
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import QueuedRollouts, check_levels, check_one_agent
from minimax_lib.curricula.tasks.listed import begun_by, best_returns, with_best_returns
from minimax_lib.curricula.tasks.scoring import AttemptScoring
from minimax_lib.curricula.tasks.settings import scored_by
from minimax_lib.envs.base import Environment, Level, sample_levels
from minimax_lib.envs.registry import identity_of
from minimax_lib.envs.restarts import LevelQueue, QueuedLevels
from minimax_lib.tasks import Results, Unfinished, draw
from minimax_lib.tasks.clock import last_entries
from minimax_lib.trees import zeros


class EpisodeReplayState(struct.PyTreeNode):
    """What is remembered from one rollout to the next."""

    buffer: LevelBuffer
    current: Level  # [R, ...], the levels that the rows are on: one of them may have left the buffer since
    slots: jax.Array  # i32[R], the buffer's slots that hold them; -1 if none does
    unfinished: Unfinished


@dataclasses.dataclass(frozen=True)
class EpisodeReplay(Curriculum):
    """Each attempt is on a level of the buffer, or on a new one, which enters the buffer with its first score.

    Draws are made before a rollout, from the weights as they stand then. A table holds all levels of the rollout: those
    of the buffer [C], those that the rows are on [R], and new ones for each row [R * n_fresh].
    """

    env: Environment
    settings: ReplaySettings
    score: Score
    n_rows: int
    n_steps: int
    n_fresh: int
    scoring: AttemptScoring = AttemptScoring()
    identity: Callable[[Level], Any] = level_buffer.whole_level

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, sources=(NEW, REPLAY), restart=QueuedLevels(), scores=(self.score,))

    def init(self, key: jax.Array) -> EpisodeReplayState:
        placeholder = zeros(jax.eval_shape(self.env.sample_level, key))
        return EpisodeReplayState(
            buffer=level_buffer.init(placeholder, self.settings.capacity),
            current=sample_levels(self.env, axes.device_key(key), self.n_rows),
            slots=jnp.full(self.n_rows, -1, jnp.int32),
            unfinished=Unfinished.none(self.n_rows),
        )

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: EpisodeReplayState, students: Students
    ) -> tuple[EpisodeReplayState, LevelBatch]:
        k_fresh, k_coin, k_replay = jax.random.split(key, 3)
        fresh = sample_levels(self.env, k_fresh, self.n_rows * self.n_fresh)
        table = jax.tree.map(lambda *xs: jnp.concatenate(xs), state.buffer.levels, state.current, fresh)
        shape, rows = (self.n_rows, self.n_steps), jnp.arange(self.n_rows, dtype=jnp.int32)[:, None]
        replays = jax.random.uniform(k_coin, shape) < level_buffer.replay_probability(self.settings, state.buffer)
        weights = level_buffer.weights(self.settings, state.buffer)
        replayed = draw(k_replay, weights, self.n_rows * self.n_steps).reshape(shape)
        # A row's new levels are handed out in turn. If it needs more than it has, the first one comes again.
        turn = (jnp.cumsum(~replays, axis=1, dtype=jnp.int32) - 1) % self.n_fresh
        new = self._first_fresh + rows * self.n_fresh + turn
        numbers = jnp.concatenate([self.settings.capacity + rows, jnp.where(replays, replayed, new)], axis=1)
        return state, level_batch(state.current).replace(queue=LevelQueue(table=table, numbers=numbers))

    @property
    def _first_fresh(self) -> int:
        """The number of the first new level in the table."""
        return self.settings.capacity + self.n_rows

    def observe(
        self, key: jax.Array, clock: jax.Array, state: EpisodeReplayState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[EpisodeReplayState, dict[str, jax.Array]]:
        steps = outcome.steps(self.score)
        results, unfinished = self.scoring.results(steps, state.unfinished)
        results = results.in_order()
        begun, current = begun_by(batch.queue.numbers, steps.done)
        homes = self._homes(state.slots)
        if self.score.adds_best:
            results = self._with_best(results, state.buffer, batch.queue.table, homes)
        buffer = state.buffer
        ages = level_buffer.aged(buffer.ages, buffer.filled, homes[begun.reshape(-1)], steps.done.reshape(-1))
        buffer = buffer.replace(ages=ages)
        buffer = rescored(buffer, homes[results.task], results)
        buffer = self._joined(buffer, batch.queue.table, homes, results)
        levels = jax.tree.map(lambda x: x[current], batch.queue.table)
        came = last_entries(len(homes), results.task, jnp.isfinite(results.score))[current] >= 0
        slots = self._held(buffer, levels, homes[current], came)
        after = EpisodeReplayState(buffer, levels, slots, unfinished)
        return after, self._metrics(after, results) | self._level_metrics(batch.queue, steps.done)

    def _homes(self, slots: jax.Array) -> jax.Array:
        """i32[K], the slot that holds each level of the table; -1 if none does."""
        own = jnp.arange(self.settings.capacity, dtype=jnp.int32)
        return jnp.concatenate([own, slots, jnp.full(self.n_rows * self.n_fresh, -1, jnp.int32)])

    def _with_best(self, results: Results, buffer: LevelBuffer, table: Level, homes: jax.Array) -> Results:
        """The results, with the best return of their level in their scores.

        `homes` (i32[K]) are the slots that hold the levels of the table, -1 if none.
        """
        capacity = self.settings.capacity
        n = len(homes) - capacity
        # A new level may be equal to one of the buffer, or to another new one. In a small world most are.
        outside = jax.tree.map(lambda x: x[capacity:], table)
        rows = level_buffer.locate(self.settings, buffer, outside, jnp.full(n, -1, jnp.int32), self.identity)
        same = jnp.where(rows.homes >= 0, rows.homes, rows.groups)
        # What a row was on at the start may be in the buffer without `unique` too.
        same = jnp.where(homes[capacity:] >= 0, homes[capacity:], same)
        tasks = jnp.concatenate([homes[:capacity], same])[results.task]
        unknown = jnp.full(n, -jnp.inf, jnp.float32)
        best = best_returns(jnp.concatenate([buffer.best_returns, unknown]), results.replace(task=tasks))
        return with_best_returns(results.replace(task=tasks), best).replace(task=results.task)

    def _joined(self, buffer: LevelBuffer, table: Level, homes: jax.Array, results: Results) -> LevelBuffer:
        """The buffer after the levels that are not in it have come to it with their latest scores.

        `homes` (i32[K]) are the slots that hold the levels of the table, -1 if none.
        """
        capacity = self.settings.capacity
        outside = jax.tree.map(lambda x: x[capacity:], table)
        n = self.n_rows * (1 + self.n_fresh)
        last = last_entries(capacity + n, results.task, jnp.isfinite(results.score))[capacity:]
        order = jnp.argsort(last)  # the one that was scored first comes first
        last, outside = last[order], jax.tree.map(lambda x: x[order], outside)
        # A level that its row was on at the start may be in the buffer. `rescored` has told it. Here it would count as
        # new: its age would become 0 when its episode ends, and without `unique` it would come to a second slot.
        found = (last >= 0) & (homes[capacity:][order] < 0)
        scores = jnp.where(found, results.score[last], -jnp.inf)
        # Of all attempts: a row that comes to a new level again may have fared better the first time.
        highest = best_returns(jnp.full(capacity + n, -jnp.inf, jnp.float32), results)[capacity:][order]
        returns = jnp.where(found, highest, -jnp.inf)
        rows = level_buffer.locate(self.settings, buffer, outside, jnp.full(n, -1, jnp.int32), self.identity)
        # Ages have changed already, when episodes began (`observe`). Most of these levels have never been played.
        rows = rows.replace(begun=jnp.zeros(n, bool))
        best = level_buffer.best_returns(buffer, rows, returns)
        return level_buffer.insert(self.settings, buffer, rows, scores, best, jnp.zeros(n, jnp.int32))

    def _held(self, buffer: LevelBuffer, levels: Level, slots: jax.Array, came: jax.Array) -> jax.Array:
        """i32[R], the slots that hold `levels` [R, ...] now; -1 if none does.

        They were in `slots` (i32[R], -1: in none). Some `came` to the buffer in this rollout (bool[R]).
        """
        # A row may go on with a level that has a score already: one of which an earlier part, or attempt, was scored.
        slots = jnp.where(came & (slots < 0), level_buffer.homes_of(buffer, levels, self.identity), slots)
        # A slot may have been given to another level, which must not get the score of this one.
        prints = jax.vmap(lambda level: level_buffer.fingerprint(self.identity(level)))(levels)
        same = (buffer.fingerprints[slots] == prints).all(axis=1) & buffer.filled[slots]
        return jnp.where((slots >= 0) & same, slots, -1)

    def _metrics(self, state: EpisodeReplayState, results: Results) -> dict[str, jax.Array]:
        metrics = level_buffer.buffer_metrics(self.settings, state.buffer)
        metrics |= {"tasks/score": axes.mean_where(jnp.isfinite(results.score), results.score)}
        metrics |= {"tasks/length": axes.mean_where(results.valid, results.length.astype(jnp.float32))}
        return metrics

    def _level_metrics(self, queue: LevelQueue, done: jax.Array) -> dict[str, jax.Array]:
        """Metrics of the first level that each row has begun in the rollout, by source."""
        # It was drawn before the rollout, whatever happened there. Where rows are at the end says less: they are mostly
        # on levels whose episodes take long.
        number, begun = queue.numbers[:, 1], done.any(axis=0)
        facts = jax.vmap(self.env.level_metrics)(jax.tree.map(lambda x: x[number], queue.table))
        is_new = number >= self.settings.capacity
        return {
            f"level/{SOURCE_NAMES[source]}/{name}": axes.mean_where(begun & of_source, value)
            for source, of_source in ((NEW, is_new), (REPLAY, ~is_new))
            for name, value in facts.items()
        }


def rescored(buffer: LevelBuffer, slots: jax.Array, results: Results) -> LevelBuffer:
    """The buffer with the latest scores of the levels in `slots` (i32[M], -1: in none)."""
    inside = slots >= 0
    last = last_entries(len(buffer.filled), slots, inside & jnp.isfinite(results.score))
    returns = jnp.where(inside & results.valid, results.returns, -jnp.inf)
    return buffer.replace(
        scores=jnp.where(last >= 0, results.score[last], buffer.scores),
        best_returns=buffer.best_returns.at[jnp.where(inside, slots, 0)].max(returns),
    )


@dataclasses.dataclass(frozen=True)
class EpisodePLR(QueuedRollouts, AttemptScoring, ReplaySettings):
    """Prioritised level replay with a level for each episode, from a buffer of an unlimited number of levels."""

    score: Annotated[str, SCORES] = "l1_value_loss"
    """What a level's replay weight is made of: the mean of a quantity over the steps of an attempt."""
    n_fresh: int = 8
    """New levels of each row in a rollout. If a row needs more, they come again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_fresh < 1:
            raise ValueError(f"runner.n_fresh is {self.n_fresh}: it must be at least 1")
        check_levels("n_fresh", self.n_fresh, self.n_parallel)

    @property
    def divided(self) -> tuple[str, ...]:
        return ("n_parallel", "capacity")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        check_one_agent("episode_plr", env)
        score = scored_by("runner.score", self.score, env, agent)
        return EpisodeReplay(env, self, score, n_rows, self.n_steps, self.n_fresh, self.scoring, identity_of(env))

"""The students as a curriculum sees them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Attempts, LevelBatch, Plan
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import BatchEnv, Rows
from minimax_lib.envs.multi_agent import BatchMultiEnv, batch_of
from minimax_lib.envs.restarts import QueuedLevels, queue_of
from minimax_lib.opponents.duel import BatchDuel
from minimax_lib.playing.episodes import Played, alone
from minimax_lib.playing.living import OfLiving
from minimax_lib.playing.returns import Layout
from minimax_lib.playing.rollout import Rollout, Start, begin, go_on, queued, step
from minimax_lib.trees import mapped, tree_where


def batch_for(env: Any, agent: AgentPop, plan: Plan, n_evals: int = 1, levels_per_row: int = 1) -> Rows:
    """The rows in which the students of a curriculum with this plan play `env`."""
    rows = batch_of(env, agent.n, n_evals, plan.restart if levels_per_row == 1 else QueuedLevels())
    if not plan.n_opponents:
        return rows
    assert isinstance(rows, BatchMultiEnv)  # a curriculum that plans opponents has checked it
    seats, scripted = plan.student_seats, plan.scripted_opponents
    return BatchDuel(rows, agent.agent, plan.n_opponents, plan.greedy_opponents, seats, scripted)


def layout_of(rows: Rows, levels_per_row: int = 1) -> Layout:
    """Which rows belong to which level, where each row plays `levels_per_row` levels in turn."""
    return Layout(rows.rows_per_level, rows.n_agents, levels_per_row, rows.env.max_steps)


def optimal_returns(env: Any, levels: Level) -> Callable[[float], jax.Array] | None:
    """A function of gamma: f32[B], the highest discounted returns on `levels`; None where `env` does not know them."""
    if env.optimal_return is None:
        return None
    return lambda gamma: jax.vmap(lambda level: env.optimal_return(level, gamma))(levels)


def opened(key: jax.Array, env: Rows, agent: AgentPop, batch: LevelBatch, levels_per_row: int = 1) -> Start:
    """The start after a reset of all rows on the batch, each on the first of its levels."""
    levels = batch.levels
    if levels_per_row > 1:
        batch = batch.replace(queue=queue_of(levels, levels_per_row))
        levels = jax.tree.map(lambda x: x[::levels_per_row], levels)
    return prepared(env, begin(key, env, agent, levels), batch)


def prepared(env: Rows, start: Start, batch: LevelBatch) -> Start:
    """`start` with what the batch gives beside its levels: a queue of further levels, or opponents."""
    start = queued(env, start, batch.queue)
    return facing(env, start, batch.duel)


def facing(env: Rows, start: Start, duel: Any) -> Start:
    """`start` with the opponents of a `Duel`; unchanged where there is no other seat."""
    return start.replace(state=env.with_opponents(start.state, duel)) if isinstance(env, BatchDuel) else start


@dataclasses.dataclass(frozen=True)
class CurrentStudents:
    """`curricula.base.Students` with these parameters. They play a rollout of `n_steps` on any levels."""

    env: Rows
    agent: AgentPop
    params: Any
    n_steps: int
    rescale: Callable[[Rollout], Rollout] = lambda runs: runs  # what the runner does to rewards before it learns
    duel: Any = ()  # who sits in the other seats
    levels_per_row: int = 1

    def facing(self, duel: Any) -> "CurrentStudents":
        return dataclasses.replace(self, duel=duel)

    def play(self, key: jax.Array, batch: LevelBatch) -> RolloutOutcome:
        k_reset, k_steps = jax.random.split(key)
        batch = batch if isinstance(self.duel, tuple) else batch.replace(duel=self.duel)
        start = opened(k_reset, self.env, self.agent, batch, self.levels_per_row)
        bootstraps = self.agent.bootstrap_truncated
        runs = go_on(k_steps, self.env, self.agent, self.params, start, self.n_steps, bootstraps)
        layout, optima = layout_of(self.env, self.levels_per_row), optimal_returns(self.env.env, batch.levels)
        return RolloutOutcome(self.agent, self.params, self.rescale(runs), None, layout, optima)

    def attempts(self, key: jax.Array, levels: Level, n_episodes: int, discount: float | None = None) -> Attempts:
        alone = isinstance(self.env, BatchEnv) and not isinstance(self.env, BatchMultiEnv)
        played = self._alone(key, levels, n_episodes, discount) if alone else self._together(key, levels, n_episodes)
        n_rows = jax.tree.leaves(levels)[0].shape[0]
        episodes = jax.tree.map(lambda x: x.reshape(self.agent.n, n_rows, -1), played)
        return Attempts(episodes=episodes, env_steps=played.lengths.sum(dtype=jnp.uint32))

    def _alone(self, key: jax.Array, levels: Level, n_episodes: int, discount: float | None) -> Played:
        """Episodes of one agent each, [A, B * n_episodes]."""
        env = self.env.env
        player = alone(env.single() if env.single else env, self.agent.agent, discount=discount)
        rows = jax.tree.map(lambda x: jnp.repeat(x, n_episodes, axis=0), levels)
        keys = jax.random.split(key, self.agent.n)
        return mapped(lambda key, params: player.play(key, (params,), rows))(keys, self.params)

    def _together(self, key: jax.Array, levels: Level, n_episodes: int) -> Played:
        """Lives in episodes of several agents, [A, B * rows_per_level]."""
        k_reset, k_steps = jax.random.split(key)
        env = self.env.played_out(n_episodes)
        start = facing(env, begin(k_reset, env, self.agent, levels), self.duel)
        none = jnp.zeros(start.first.shape, jnp.float32)
        facts = jax.eval_shape(lambda: env.reset(k_reset, levels)[1].facts)
        blank = Played(none, none.astype(jnp.int32), none, dict.fromkeys(facts, none))

        def under_way(loop: tuple) -> jax.Array:
            time, ended, *_ = loop
            # One answer for all seeds, as in `WholeEpisodes`.
            return axes.any_seed((time < env.env.max_steps) & ~ended.all())

        def one_step(loop: tuple) -> tuple:
            time, ended, stats, now = loop
            keys = jax.random.split(jax.random.fold_in(k_steps, time))
            living: Any = OfLiving(self.agent, ~ended)
            now, _, ts = step(keys, env, living, self.params, now)
            played = Played(ts.stats.returns, ts.stats.lengths, ts.progress, ts.facts)
            return time + 1, ended | ts.done, tree_where(ended, stats, played), now

        loop = jnp.zeros((), jnp.int32), jnp.zeros(start.first.shape, bool), blank, start
        return jax.lax.while_loop(under_way, one_step, loop)[2]

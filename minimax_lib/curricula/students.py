"""The students as a curriculum sees them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Attempts, LevelBatch
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.base import HoldsAttempts, Level
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.episodes import WholeEpisodes
from minimax_lib.rollout import Rollout, begin, go_on, queued
from minimax_lib.trees import mapped


@dataclasses.dataclass(frozen=True)
class CurrentStudents:
    """`curricula.base.Students` with these parameters, who play a rollout of `n_steps` on any levels."""

    env: BatchEnv
    agent: AgentPop
    params: Any
    n_steps: int
    rescale: Callable[[Rollout], Rollout] = lambda runs: runs  # what the runner does to rewards before it learns

    @property
    def env_steps_per_level(self) -> int:
        return self.agent.n * self.env.n_evals * self.n_steps

    def play(self, key: jax.Array, batch: LevelBatch) -> RolloutOutcome:
        k_reset, k_steps = jax.random.split(key)
        start = queued(self.env, begin(k_reset, self.env, self.agent, batch.levels), batch.queue)
        bootstraps = self.agent.bootstrap_truncated
        runs = go_on(k_steps, self.env, self.agent, self.params, start, self.n_steps, bootstraps)
        return RolloutOutcome(self.agent, self.params, self.rescale(runs), n_evals=self.env.n_evals)

    def attempts(self, key: jax.Array, levels: Level, n_episodes: int) -> Attempts:
        env = self.env.env
        player = WholeEpisodes(env.single() if isinstance(env, HoldsAttempts) else env, self.agent.agent)
        rows = jax.tree.map(lambda x: jnp.repeat(x, n_episodes, axis=0), levels)
        keys = jax.random.split(key, self.agent.n)
        played = mapped(lambda key, params: player.play(key, params, rows))(keys, self.params)
        episodes = jax.tree.map(lambda x: x.reshape(self.agent.n, -1, n_episodes), played)
        return Attempts(episodes=episodes, env_steps=played.lengths.sum(dtype=jnp.uint32))

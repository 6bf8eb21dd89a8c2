"""The students as a curriculum sees them."""

import dataclasses
from typing import Any

import jax

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import LevelBatch
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.rollout import rollout


@dataclasses.dataclass(frozen=True)
class CurrentStudents:
    """`curricula.base.Students` with these parameters, who play a rollout of `n_steps` on any levels."""

    env: BatchEnv
    agent: AgentPop
    params: Any
    n_steps: int

    @property
    def env_steps_per_level(self) -> int:
        return self.agent.n * self.env.n_evals * self.n_steps

    def play(self, key: jax.Array, batch: LevelBatch) -> RolloutOutcome:
        bootstraps = self.agent.bootstrap_truncated
        runs = rollout(key, self.env, self.agent, self.params, batch.levels, self.n_steps, bootstraps)
        return RolloutOutcome(self.agent, self.params, runs)

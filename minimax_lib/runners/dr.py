"""Domain randomisation, as a runner."""

import dataclasses

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.dr import DomainRandomisation
from minimax_lib.envs.base import Environment
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


def DRRunner(env: Environment, agent: AgentPop, n_parallel: int, n_steps: int) -> Runner:
    """Trains on fresh random levels only."""
    curriculum = DomainRandomisation(env, n_parallel)
    return Runner(env, agent, curriculum, n_steps, agent.bootstrap_truncated)


@dataclasses.dataclass(frozen=True)
class DR(RolloutSettings):
    """Domain randomisation: every level is fresh."""

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return DRRunner(env, agent, self.n_parallel, self.n_steps)

"""Sampling for learnability, as a runner."""

import dataclasses

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.sfl import SFL as SFLCurriculum
from minimax_lib.envs.base import Environment
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


@dataclasses.dataclass(frozen=True)
class SFL(RolloutSettings):
    """Sampling for learnability: train on the levels that are solved about half of the time."""

    every: int = 50
    """Updates between two scorings of random levels with the current students."""
    n_scored: int = 4992
    """Random levels in a scoring, a multiple of n_parallel."""
    n_kept: int = 1000
    """Most learnable levels of a scoring, from which half of each batch is drawn."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"runner.every is {self.every}: it must be at least 1")
        if self.n_parallel % 2:
            raise ValueError(f"runner.n_parallel is {self.n_parallel}: it must be even, half of the levels are fresh")
        if self.n_scored < 1 or self.n_scored % self.n_parallel:
            nearest = self.n_parallel * max(1, round(self.n_scored / self.n_parallel))
            raise ValueError(
                f"runner.n_scored is {self.n_scored}: it must be a multiple of runner.n_parallel, as {nearest}"
            )
        if not 1 <= self.n_kept <= self.n_scored:
            raise ValueError(f"runner.n_kept is {self.n_kept}: it must be between 1 and {self.n_scored}")

    @property
    def shared(self) -> tuple[str, ...]:
        return ("n_parallel", "n_scored", "n_kept")

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return SFLRunner(env, agent, self)


def SFLRunner(env: Environment, agent: AgentPop, settings: SFL) -> Runner:
    """Trains half on the most learnable levels of the last scoring, half on fresh ones."""
    s = settings
    curriculum = SFLCurriculum(env, s.n_parallel, s.n_scored, s.n_kept, s.every, s.n_steps)
    return Runner(env, agent, curriculum, s.n_steps, agent.bootstrap_truncated)

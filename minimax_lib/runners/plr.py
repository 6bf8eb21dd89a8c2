"""Prioritised level replay, robust and parallel too, as a runner."""

import dataclasses

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.dr import DomainRandomisation
from minimax_lib.curricula.finite import FiniteLevels
from minimax_lib.curricula.level_buffer import ReplaySettings
from minimax_lib.curricula.parallel import Parallel
from minimax_lib.curricula.plr import PLR as PLRCurriculum
from minimax_lib.curricula.scores import SCORES, Scorer
from minimax_lib.envs.base import Environment
from minimax_lib.envs.editing import identity_of
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


@dataclasses.dataclass(frozen=True)
class ReplayRunnerSettings(ReplaySettings, RolloutSettings):
    """What all runners with a level buffer share."""

    score: str = "max_mc"
    """What a level's replay weight is made of, by name."""
    robust: bool = True
    """New levels are only scored, never learnt from (robust PLR); otherwise both."""
    parallel: bool = False
    """Replayed and new levels (and mutations) side by side in one wider batch, with an update on every step."""

    def __post_init__(self) -> None:
        RolloutSettings.__post_init__(self)
        ReplaySettings.__post_init__(self)
        if SCORES[self.score].n_students > self.n_students:
            raise ValueError(f"runner.score is {self.score!r}: it compares students, and this runner has only one")
        if self.parallel and not self.robust:
            raise ValueError("runner.robust is False with runner.parallel: parallel PLR learns from replay only")

    def plr(self, env: Environment, agent: AgentPop, generator: Curriculum) -> PLRCurriculum:
        """The curriculum that replays what `generator` has made."""
        ppo, needed = agent.agent.config, SCORES[self.score].n_values
        if needed > 1 and agent.agent.model.n_values < needed:
            raise ValueError(
                f"model.n_values is {agent.agent.model.n_values}: runner.score={self.score} needs {needed}"
            )
        score = Scorer(SCORES[self.score], ppo.gamma, ppo.gae_lambda)
        return PLRCurriculum(generator, self, score, not self.robust, identity_of(env))

    def runner(self, env: Environment, agent: AgentPop, curriculum: Curriculum) -> Runner:
        """The runner that trains with `curriculum`."""
        looks = SCORES[self.score].needs_network
        return Runner(env, agent, curriculum, self.n_steps, agent.bootstrap_truncated, looks)


@dataclasses.dataclass(frozen=True)
class PLR(ReplayRunnerSettings):
    """Prioritised level replay: levels with a high score come back."""

    n_levels: int = 0
    """Size of a fixed list of training levels, which unseen levels are drawn from; the buffer then has a slot for each,
    and `capacity` is not used. 0: levels without end."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_levels < 0:
            raise ValueError(f"runner.n_levels is {self.n_levels}: it must be at least 0")
        if self.n_levels and self.parallel:
            raise ValueError(f"runner.n_levels is {self.n_levels} with runner.parallel: choose one of them")

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return PLRRunner(env, agent, self)


def PLRRunner(env: Environment, agent: AgentPop, settings: PLR) -> Runner:
    """Trains on levels that come back: PLR, robust PLR or parallel PLR, over fresh levels or a fixed list."""
    n_rows = settings.n_parallel
    generator: Curriculum = DomainRandomisation(env, n_rows)
    if settings.n_levels:
        generator = FiniteLevels(env, n_rows, settings.n_levels)
        settings = dataclasses.replace(settings, capacity=settings.n_levels)
    plr = settings.plr(env, agent, generator)
    curriculum: Curriculum = Parallel(plr) if settings.parallel else plr
    return settings.runner(env, agent, curriculum)

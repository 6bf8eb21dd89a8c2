"""Prioritised level replay, robust and parallel too, as a runner."""

import dataclasses
from typing import Annotated, Any

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.level_buffer import ReplaySettings
from minimax_lib.curricula.parallel import Parallel
from minimax_lib.curricula.plr import PLR as PLRCurriculum
from minimax_lib.curricula.scores import SCORES, Scorer
from minimax_lib.envs.base import Environment
from minimax_lib.envs.editing import identity_of
from minimax_lib.runners.generators import GENERATORS, FiniteList, RandomLevels, Teacher, check_score
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


@dataclasses.dataclass(frozen=True)
class ReplayRunnerSettings(ReplaySettings, RolloutSettings):
    """What all runners with a level buffer share."""

    generator: Annotated[Any, GENERATORS] = RandomLevels()
    """Where new levels come from."""
    n_students: int = 1
    """Students that play every level side by side; a teacher that is paid regret needs two."""
    score: str = "max_mc"
    """What a level's replay weight is made of, by name."""
    robust: bool = True
    """New levels are only scored, never learnt from (robust PLR); otherwise both."""
    parallel: bool = False
    """Replayed and new levels (and mutations) side by side in one wider batch, with an update on every step."""

    def __post_init__(self) -> None:
        RolloutSettings.__post_init__(self)
        ReplaySettings.__post_init__(self)
        SCORES[self.score]  # ValueError for an unknown name
        if self.n_students < 1:
            raise ValueError(f"runner.n_students is {self.n_students}: it must be at least 1")
        if self.parallel and not self.robust:
            raise ValueError("runner.robust is False with runner.parallel: parallel PLR learns from replay only")
        if self.parallel and self.generator.remembers:
            raise ValueError(
                f"runner.generator is {GENERATORS.name_of(type(self.generator))!r} with runner.parallel, which draws "
                "several batches of new levels in a step: choose a generator without memory, as random"
            )
        if isinstance(self.generator, Teacher) and self.generator.ppo.lr_final is not None:
            raise ValueError(
                f"runner.generator.ppo.lr_final is {self.generator.ppo.lr_final}: with replay, how often the teacher "
                "learns is not known beforehand, choose none"
            )

    @property
    def shared(self) -> tuple[str, ...]:
        """With a fixed list, the buffer's slots are as many as a device has of the list."""
        return ("n_parallel",) if isinstance(self.generator, FiniteList) else ("n_parallel", "capacity")

    def plr(self, env: Environment, agent: AgentPop) -> PLRCurriculum:
        """The curriculum that replays what the generator has made."""
        check_score("runner.score", self.score, agent)
        score = Scorer(SCORES[self.score], agent.agent.config.gamma, agent.agent.config.gae_lambda)
        generator = self.generator.build(env, agent, self.n_parallel)
        return PLRCurriculum(generator, self, score, not self.robust, identity_of(env))

    def runner(self, env: Environment, agent: AgentPop, curriculum: Curriculum) -> Runner:
        """The runner that trains with `curriculum`."""
        scores = [self.score, self.generator.score] if isinstance(self.generator, Teacher) else [self.score]
        looks = any(SCORES[score].needs_network for score in scores)
        return Runner(env, agent, curriculum, self.n_steps, agent.bootstrap_truncated, looks)


@dataclasses.dataclass(frozen=True)
class PLR(ReplayRunnerSettings):
    """Prioritised level replay: levels with a high score come back. With a teacher as the generator, REPAIRED."""

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return PLRRunner(env, agent, self)


def PLRRunner(env: Environment, agent: AgentPop, settings: PLR) -> Runner:
    """Trains on levels that come back: PLR, robust PLR, parallel PLR or REPAIRED."""
    if isinstance(settings.generator, FiniteList):
        settings = dataclasses.replace(settings, capacity=settings.generator.n_levels)
    plr = settings.plr(env, agent)
    curriculum: Curriculum = Parallel(plr) if settings.parallel else plr
    return settings.runner(env, agent, curriculum)

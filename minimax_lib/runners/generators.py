"""Where new levels come from: settings of the generators, which a runner hands to its curator, if it has one."""

import dataclasses
from typing import Annotated, Any, ClassVar

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.dr import DomainRandomisation
from minimax_lib.curricula.finite import FiniteLevels
from minimax_lib.curricula.scores import SCORES, Scorer
from minimax_lib.curricula.teacher import DesignedLevels
from minimax_lib.envs.base import Environment
from minimax_lib.envs.editing import editing_of
from minimax_lib.envs.registry import TEACHERS
from minimax_lib.envs.ued import BatchUEDEnv, UEDEnvironment
from minimax_lib.models.registry import MODELS
from minimax_lib.models.settings import LSTM
from minimax_lib.registry import Registry


@dataclasses.dataclass(frozen=True)
class RandomLevels:
    """Random levels of the environment."""

    remembers: ClassVar[bool] = False  # what it proposes depends on what it has seen

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return DomainRandomisation(env, n_rows)


@dataclasses.dataclass(frozen=True)
class SimplestLevels:
    """The simplest levels of the environment (empty mazes), from which mutations make others."""

    remembers: ClassVar[bool] = False

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return DomainRandomisation(editing_of(env).base(env), n_rows)


@dataclasses.dataclass(frozen=True)
class FiniteList:
    """Unseen levels of a fixed list of random ones; a level buffer then has a slot for each, whatever its capacity."""

    n_levels: int = 4000
    """Levels of the list; several devices have a part of it each."""

    remembers: ClassVar[bool] = True
    shared: ClassVar[tuple[str, ...]] = ("n_levels",)

    def __post_init__(self) -> None:
        if self.n_levels < 1:
            raise ValueError(f"generator.n_levels is {self.n_levels}: it must be at least 1")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return FiniteLevels(env, n_rows, self.n_levels)


@dataclasses.dataclass(frozen=True)
class Teacher:
    """Levels designed by a teacher that is paid for what the students make of them."""

    score: str = "relative_regret"
    """What the teacher is paid on the last step of a design, by name."""
    design: Annotated[Any, TEACHERS] = dataclasses.field(default_factory=TEACHERS["AMaze"])
    """The teacher's own environment; goes by the name of the students'."""
    model: Annotated[Any, MODELS] = LSTM(conv_filters=128, embedding_width=10, slow_images=True)
    """The teacher's network."""
    ppo: PPO = PPO(entropy_coef=0.05)
    """How the teacher learns; the default is the high entropy bonus of Mediratta et al. 2023."""

    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        SCORES[self.score]  # ValueError for an unknown name

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        """The generator; ValueError where the teacher, the students and the environment do not fit together."""
        check_score("the teacher's score", self.score, agent)
        pair = UEDEnvironment(env, self.design.build(env))
        network = self.model.build(pair.teacher.observation_space, pair.teacher.action_space)
        teacher = AgentPop(PPOAgent(network, self.ppo, agent.agent.n_total_updates))
        try:
            teacher.check_batch(n_rows, pair.teacher.max_steps)
        except ValueError as error:
            raise ValueError(f"the teacher's {error}") from None
        students = agent.agent.config
        score = Scorer(SCORES[self.score], students.gamma, students.gae_lambda)
        return DesignedLevels(BatchUEDEnv(pair, agent.n), teacher, n_rows, score)


GENERATORS: Registry[Any] = Registry(
    "generator", {"random": RandomLevels, "simplest": SimplestLevels, "finite": FiniteList, "teacher": Teacher}
)


def register_generator(name: str, settings: Any) -> Any:
    """Adds a generator: a frozen dataclass of settings whose `build(env, agent, n_rows)` returns a `Curriculum`.

    Its class variable `remembers` says whether that has a state.
    """
    return GENERATORS.register(name, settings)


def check_score(which: str, name: str, agent: AgentPop) -> None:
    """ValueError where the score called `name`, used as `which`, cannot be computed for these students."""
    score = SCORES[name]
    if agent.n < score.n_students:
        bound = f"{'' if score.most_students else 'at least '}{score.n_students}"
        raise ValueError(
            f"{which} is {name!r}, which compares students: runner.n_students is {agent.n}, "
            f"choose {bound}, or another score"
        )
    if score.most_students is not None and agent.n > score.most_students:
        raise ValueError(
            f"{which} is {name!r}, which compares {score.most_students} students: runner.n_students is {agent.n}, "
            "choose the score population_regret"
        )
    n_values = agent.agent.model.n_values
    if n_values < score.n_values:
        raise ValueError(f"model.n_values is {n_values}: {which}={name} needs {score.n_values}")

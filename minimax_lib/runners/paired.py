"""PAIRED and its relatives, as a runner."""

import dataclasses

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.scores import SCORES
from minimax_lib.envs.base import Environment
from minimax_lib.runners.generators import Teacher
from minimax_lib.runners.settings import RolloutSettings
from minimax_lib.runners.training import Runner


@dataclasses.dataclass(frozen=True)
class PAIRED(RolloutSettings):
    """PAIRED: a teacher designs every level and is paid the regret of two students (protagonist, antagonist).

    Population PAIRED with `n_students` of 2 or more and `teacher.score` population_regret; the minimax adversary with
    one student and neg_return. The first student is the one that is evaluated.
    """

    n_students: int = 2
    """Students that play every level side by side."""
    teacher: Teacher = Teacher()
    """Who designs the levels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_students < 1:
            raise ValueError(f"runner.n_students is {self.n_students}: it must be at least 1")

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return PAIREDRunner(env, agent, self)


def PAIREDRunner(env: Environment, agent: AgentPop, settings: PAIRED) -> Runner:
    """Trains students on what a teacher designs, and the teacher on what they make of it."""
    s = settings
    curriculum = s.teacher.build(env, agent, s.n_parallel)
    looks = SCORES[s.teacher.score].needs_network
    return Runner(env, agent, curriculum, s.n_steps, agent.bootstrap_truncated, looks)

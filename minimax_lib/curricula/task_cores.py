"""The settings of task curricula, by name."""

import dataclasses
from typing import Annotated, Any, ClassVar, Protocol

from minimax_lib.curricula.scores import SCORES
from minimax_lib.registry import Registry
from minimax_lib.tasks import TSCL, ListedPLR, Preference, TaskCurriculum, Uniform
from minimax_lib.tasks.listed_plr import Schedule
from minimax_lib.tasks.preference import Name


class TaskCurriculumSettings(Protocol):
    """What the registry holds: a frozen dataclass, whose fields are flags."""

    divides: ClassVar[bool]
    """Of several devices, each may have a core for a part of the list. Otherwise all have the same, for all of it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        """The curriculum of a list of `n_tasks` tasks."""
        ...


@dataclasses.dataclass(frozen=True)
class UniformSettings:
    """All tasks have the same chance."""

    divides: ClassVar[bool] = True

    def build(self, n_tasks: int) -> TaskCurriculum:
        return Uniform(n_tasks)


@dataclasses.dataclass(frozen=True)
class ListedPLRSettings(Preference):
    """Tasks come back by their scores and ages, and new ones come in between (Prioritized Level Replay)."""

    divides: ClassVar[bool] = True

    score: Annotated[str, SCORES] = "l1_value_loss"
    """What the weight of a task is made of: the mean of a quantity over the steps of an attempt."""
    schedule: Schedule = "proportionate"
    """Replay with the share of tasks that have a score, but no more than `replay_prob`; or with `replay_prob`."""
    replay_prob: float = 1.0
    """Probability of replaying a task rather than drawing one without a score."""
    min_fill: float = 0.0
    """Share of tasks that must have a score before any is replayed."""
    alpha: float = 1.0
    """Weight of an attempt's score; the rest is the task's score before it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return ListedPLR(n_tasks, preference_of(self), self.schedule, self.replay_prob, self.min_fill, self.alpha)


@dataclasses.dataclass(frozen=True)
class TSCLSettings(Preference):
    """Tasks on which the return changes fastest (teacher-student curriculum learning, its window algorithm)."""

    divides: ClassVar[bool] = True

    transform: Name = "eps_greedy"
    staleness: float = 0.0
    eps: float = 0.5
    window: int = 10
    """Results of each task that the slope is drawn through."""
    alpha: float = 1.0
    """Weight of the newest slope; the rest is the task's score before it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return TSCL(n_tasks, preference_of(self), self.window, self.alpha)


def preference_of(settings: Preference) -> Preference:
    """Only the part of `settings` that a `Preference` has."""
    return Preference(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(Preference)})


TASK_CURRICULA: Registry[Any] = Registry(
    "task curriculum",
    {"plr": ListedPLRSettings, "tscl": TSCLSettings, "uniform": UniformSettings},
    elsewhere={"random": "uniform", "dr": "uniform", "tscl_window": "tscl", "level_replay": "plr"},
)

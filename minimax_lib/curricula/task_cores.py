"""The settings of task curricula, by name."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from minimax_lib.curricula.scores import SCORES
from minimax_lib.curricula.task_files import read_strata, read_tasks
from minimax_lib.registry import Registry
from minimax_lib.tasks import (
    SFL,
    TSCL,
    BatchedUniform,
    Constant,
    Interesting,
    LearningProgress,
    ListedPLR,
    Omni,
    Online,
    Preference,
    Sequential,
    Strata,
    TaskCurriculum,
    Uniform,
    Weighted,
)
from minimax_lib.tasks.interesting import Missing
from minimax_lib.tasks.listed_plr import Schedule
from minimax_lib.tasks.online import Count
from minimax_lib.tasks.preference import Name
from minimax_lib.tasks.rates import Unseen
from minimax_lib.tasks.sfl import Sampling
from minimax_lib.tasks.strata import Metric


class TaskCurriculumSettings(Protocol):
    """What the registry holds: a frozen dataclass, whose fields are flags."""

    divides: ClassVar[bool]
    """Of several devices, each may have a core for a part of the list. Otherwise all have the same, for all of it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        """The curriculum of a list of `n_tasks` tasks."""
        ...


@runtime_checkable
class ReadsNames(Protocol):
    """Settings with this one more method: their files may call tasks by their names."""

    def build_named(self, names: Sequence[str]) -> TaskCurriculum:
        """The curriculum of a list of tasks with these names."""
        ...


def core_of(settings: Any, n_tasks: int, name: Callable[[int], str] = str) -> TaskCurriculum:
    """The curriculum of these settings, for a list of `n_tasks` tasks, of which number i is called `name(i)`."""
    if isinstance(settings, ReadsNames):
        return settings.build_named([name(i) for i in range(n_tasks)])
    return settings.build(n_tasks)


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


@dataclasses.dataclass(frozen=True)
class LearningProgressSettings:
    """Tasks on which the rate of success changes. All tasks are evaluated from time to time."""

    divides: ClassVar[bool] = False

    alpha: float = 0.1
    """Weight of the latest rates in the moving averages."""
    theta: float = 0.1
    """Below .5, the same change counts more where the rate is low."""
    normalize: bool = True
    """Rates are taken above those of the first time."""
    unseen: Unseen = "zero"
    """What a task without a new rate counts as. zero: never solved. keep: as before."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return LearningProgress(n_tasks, self.alpha, self.theta, self.normalize, None, self.unseen)


@dataclasses.dataclass(frozen=True)
class SFLSettings:
    """Tasks that are solved sometimes: a task's learnability is r (1 - r), r its rate in an evaluation of all tasks."""

    divides: ClassVar[bool] = False

    sampling: Sampling = "dist"
    """dist: in proportion to learnability. topk: the k most learnable, all alike."""
    k: int = 10
    """Tasks of `topk`."""
    q: float = 1.0
    """Share of the draws that go to these; the rest is uniform over all tasks."""
    normalize: bool = False
    """Rates are taken above those of the first time."""
    unseen: Unseen = "zero"
    """What a task without a new rate counts as. zero: never solved. keep: as before."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return SFL(n_tasks, self.sampling, self.k, self.q, self.normalize, self.unseen)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlineSettings:
    """How rates are taken from training instead of evaluations. A mixin, named before the curriculum's own settings."""

    every: int = 1000
    """Attempts (or episodes) between two updates of the rates."""
    uniform: float = 0.25
    """Share of the draws that are uniform over all tasks."""
    save_last: bool = False
    """The last rate of a task counts as its first attempt after an update of the rates."""
    count: Count = "attempts"
    """What `every` counts: attempts or episodes. An episode may hold several attempts."""
    continuous: bool = False
    """Progress between 0 and 1 counts, not only what is solved."""
    unseen: Unseen = "keep"
    """What a task counts as that was not tried since the last update. keep: as before. zero: never solved, as in
    Syllabus."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        if self.save_last and self.unseen == "keep":
            raise ValueError("runner.core.save_last is True: it needs runner.core.unseen zero, since no task is unseen")
        inner = super().build(n_tasks)  # type: ignore[misc]
        return Online(inner, self.every, self.uniform, self.save_last, self.count, self.continuous)


@dataclasses.dataclass(frozen=True)
class OnlineLearningProgressSettings(OnlineSettings, LearningProgressSettings):
    """Tasks on which the rate of success in training changes. No evaluations are needed."""


@dataclasses.dataclass(frozen=True)
class OnlineSFLSettings(OnlineSettings, SFLSettings):
    """Tasks that are solved sometimes in training. No evaluations are needed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OmniSettings:
    """How boring tasks are left out. A mixin, named before the curriculum's own settings."""

    interesting: str = ""
    """A JSON file {"0": {"1": true, ...}, ...}: whether task 1 is still interesting to a student that can do task 0.
    If the environment has names for its tasks, they may stand in place of the numbers. Empty: nothing is boring."""
    missing: Missing = "refuse"
    """What an entry means that is missing in a row. refuse: the file is wrong. boring: that task is boring."""
    boring: float = 0.001
    """The weights of boring tasks are multiplied by it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return self.build_named([str(i) for i in range(n_tasks)])

    def build_named(self, names: Sequence[str]) -> TaskCurriculum:
        inner = super().build(len(names))  # type: ignore[misc]
        matrix = Interesting.of_json(self.interesting, names, self.missing) if self.interesting else None
        return Omni(inner, matrix, self.boring)


@dataclasses.dataclass(frozen=True)
class OmniLearningProgressSettings(OmniSettings, LearningProgressSettings):
    """Learning progress, where tasks that are boring beside those that the student can do have little weight (OMNI)."""


@dataclasses.dataclass(frozen=True)
class OmniLearnabilitySettings(OmniSettings, SFLSettings):
    """SFL, where tasks that are boring beside those that the student can do have little weight."""


@dataclasses.dataclass(frozen=True)
class StratifiedSettings:
    """Tasks in strata: the best task of each has its weight by another curriculum, the others hardly any."""

    divides: ClassVar[bool] = False

    strata: str = ""
    """A JSON file with a list of lists of tasks, by their numbers or names: each task is in exactly one."""
    inner: "Annotated[Any, TASK_CURRICULA]" = LearningProgressSettings()
    """The curriculum that gives the weights: any but plr and sequential."""
    metric: Metric = "success"
    """What the best task of a stratum has most of: success, weight (score), or learnability."""
    others: float = 0.001
    """The weights of the other tasks are multiplied by it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return self.build_named([str(i) for i in range(n_tasks)])

    def build_named(self, names: Sequence[str]) -> TaskCurriculum:
        strata = read_strata("runner.core.strata", self.strata, names)
        try:
            inner = core_of(self.inner, len(names), names.__getitem__)
        except ValueError as error:  # it knows its settings as those of runner.core
            raise ValueError(str(error).replace("runner.core.", "runner.core.inner.")) from error
        if not isinstance(inner, Weighted):
            name = TASK_CURRICULA.name_of(type(self.inner))
            raise ValueError(f"runner.core.inner is {name}: it must draw from its weights alone, as learning_progress")
        return Strata(inner, strata, self.metric, self.others)


@dataclasses.dataclass(frozen=True)
class SequentialSettings:
    """Stages one after another. Within a stage, all of its tasks have the same chance."""

    divides: ClassVar[bool] = False

    stages: tuple[str, ...] = ()
    """The task numbers of each stage, such as 0-9 10-19 5,20-29."""
    conditions: tuple[str, ...] = ()
    """What ends each stage but the last, such as "steps >= 100000 | episode_return > 0.9 & episodes >= 100". Metrics:
    steps, episodes, tasks (attempts begun), episode_return (mean of the last 1,000), all of the stage; total_steps,
    total_episodes, total_tasks."""
    loop: bool = False
    """The first stage follows the last one. Then the last one needs a condition too."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        stages = tuple(read_tasks("runner.core.stages", stage) for stage in self.stages)
        return Sequential(n_tasks, stages, self.conditions, self.loop)


@dataclasses.dataclass(frozen=True)
class BatchedDRSettings:
    """One random task for all rows, and after a number of steps another one."""

    divides: ClassVar[bool] = False

    batch_steps: int = 100_000
    """Environment steps of ended attempts before the task changes."""
    warmup: int = 5
    """Batches at the beginning in which every draw is uniform by itself."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return BatchedUniform(n_tasks, self.batch_steps, self.warmup)


@dataclasses.dataclass(frozen=True)
class ConstantSettings:
    """Always the same task."""

    divides: ClassVar[bool] = False

    task: int = 0
    """Its number."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return Constant(n_tasks, self.task)


TASK_CURRICULA: Registry[Any] = Registry(
    "task curriculum",
    {
        "plr": ListedPLRSettings,
        "tscl": TSCLSettings,
        "uniform": UniformSettings,
        "learning_progress": LearningProgressSettings,
        "online_learning_progress": OnlineLearningProgressSettings,
        "sfl": SFLSettings,
        "online_sfl": OnlineSFLSettings,
        "omni": OmniLearningProgressSettings,
        "omni_learnability": OmniLearnabilitySettings,
        "stratified": StratifiedSettings,
        "sequential": SequentialSettings,
        "batched_dr": BatchedDRSettings,
        "constant": ConstantSettings,
    },
    elsewhere={
        "random": "uniform",
        "dr": "uniform",
        "domain_randomization": "uniform",
        "tscl_window": "tscl",
        "level_replay": "plr",
        "lp": "learning_progress",
        "online_lp": "online_learning_progress",
        "learnability": "sfl",
        "omni_learning_progress": "omni",
        "batched_domain_randomization": "batched_dr",
    },
)

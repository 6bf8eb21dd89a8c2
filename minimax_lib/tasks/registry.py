"""Task curricula by name, and their settings: the fields of a core are its flags."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

from minimax_lib.files import UnreadableFile
from minimax_lib.messages import shown
from minimax_lib.registry import Registry, unknown_name
from minimax_lib.settings import settings_of
from minimax_lib.tasks.batched import BatchedUniform
from minimax_lib.tasks.constant import Constant
from minimax_lib.tasks.core import TaskCurriculum
from minimax_lib.tasks.files import read_strata, read_tasks
from minimax_lib.tasks.frontier import Frontier
from minimax_lib.tasks.interesting import Interesting, Missing
from minimax_lib.tasks.learning_progress import LearningProgress
from minimax_lib.tasks.listed_plr import ListedPLR
from minimax_lib.tasks.omni import Omni
from minimax_lib.tasks.online import Online
from minimax_lib.tasks.preference import Preference
from minimax_lib.tasks.rates import Unseen
from minimax_lib.tasks.sequential import Sequential
from minimax_lib.tasks.sfl import SFL
from minimax_lib.tasks.strata import Metric, Strata
from minimax_lib.tasks.tscl import TSCL
from minimax_lib.tasks.uniform import Uniform
from minimax_lib.tasks.weighted import Weighted

SCORES: Registry[Any] = Registry("score", {}, elsewhere={"pace": "parameter_change", "pvl": "positive_value_loss"})
"""What a score can be. `curricula.scores` fills it: a score is a function of what students do."""


def core_of(settings: Any, n_tasks: int, name: Callable[[int], str] = str) -> TaskCurriculum:
    """The curriculum of these settings, for a list of `n_tasks` tasks, of which number i is called `name(i)`."""
    if hasattr(settings, "build_named"):  # their files may call tasks by their names
        return settings.build_named([name(i) for i in range(n_tasks)])
    return settings.build(n_tasks)


def task_settings(core: Any) -> Any:
    """The settings of a task curriculum's class: its fields but `n_tasks`. Settings stay as they are."""
    return settings_of(core, "n_tasks")


@dataclasses.dataclass(frozen=True)
class ScoredPreference(Preference):
    """A preference among tasks, and what their scores are."""

    score: Annotated[str, SCORES] = "l1_value_loss"
    """What the weight of a task is made of: the mean of a quantity over the steps of an attempt."""


UniformSettings: Any = task_settings(Uniform)
ListedPLRSettings: Any = settings_of(ListedPLR, "n_tasks", base=ScoredPreference)
TSCLSettings: Any = task_settings(TSCL)
LearningProgressSettings: Any = settings_of(LearningProgress, "n_tasks", "baseline")
SFLSettings: Any = task_settings(SFL)
BatchedDRSettings: Any = task_settings(BatchedUniform)
ConstantSettings: Any = task_settings(Constant)
_Online: Any = settings_of(Online, "inner")


@dataclasses.dataclass(frozen=True)
class OnlineSettings(_Online):
    """How rates are taken from training instead of evaluations. A mixin, named before the curriculum's own settings."""

    unseen: Unseen = "keep"
    """The rate of a task that was not tried since the last update. keep: as before. zero: never solved, as in
    Syllabus."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        if self.save_last and self.unseen == "keep":
            raise ValueError("runner.core.save_last is True: it needs runner.core.unseen zero, since no task is unseen")
        return super().build(super(_Online, self).build(n_tasks))


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
    """Meaning of a missing entry in a row. refuse: the file is wrong. boring: that task is boring."""
    boring: float = 0.001
    """The weights of boring tasks are multiplied by it."""

    def build(self, n_tasks: int) -> TaskCurriculum:
        return self.build_named([str(i) for i in range(n_tasks)])

    def build_named(self, names: Sequence[str]) -> TaskCurriculum:
        inner = super().build(len(names))  # type: ignore[misc]
        try:
            matrix = Interesting.of_json(self.interesting, names, self.missing) if self.interesting else None
        except UnreadableFile as error:
            raise ValueError(f"runner.core.interesting is {shown(self.interesting)}, which {error.why}") from None
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
    """The best task of a stratum has the highest success, weight (score) or learnability."""
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
            raise ValueError(
                f"runner.core.inner is {name}: it must draw from its weights alone, such as learning_progress"
            )
        return Strata(inner, strata, self.metric, self.others)


@dataclasses.dataclass(frozen=True)
class SequentialSettings:
    """Stages one after another. Within a stage, all of its tasks have the same chance."""

    divides: ClassVar[bool] = False

    stages: tuple[str, ...] = ()
    """The task numbers of each stage, such as 0-9 10-19 5,20-29."""
    conditions: tuple[str, ...] = ()
    """What ends each stage but the last, such as "steps >= 100000 | episode_return > 0.9 & episodes >= 100". Metrics:
    steps, episodes, tasks (attempts begun), episode_return and progress (see window), all of the stage; total_steps,
    total_episodes, total_tasks."""
    loop: bool = False
    """The first stage follows the last one. Then the last one needs a condition too."""
    window: int = 1000
    """episode_return is the mean over so many of the last episodes of the stage, progress over so many attempts."""

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 1_000_000:
            raise ValueError(f"runner.core.window is {self.window}: it must be from 1 to 1,000,000")

    def build(self, n_tasks: int) -> TaskCurriculum:
        stages = tuple(read_tasks("runner.core.stages", stage, n_tasks) for stage in self.stages)
        return Sequential(n_tasks, stages, self.conditions, self.loop, self.window)


# An entry is a frozen dataclass, whose fields are flags. Its `build(n_tasks)` returns a `TaskCurriculum`. It may say
# `divides = True`: each of several devices then has a core for its part of the list. Otherwise all have the same core.
TASK_CURRICULA: Registry[Any] = Registry(
    "task curriculum",
    {
        "plr": ListedPLRSettings,
        "tscl": TSCL,
        "uniform": Uniform,
        "learning_progress": LearningProgressSettings,
        "online_learning_progress": OnlineLearningProgressSettings,
        "sfl": SFL,
        "online_sfl": OnlineSFLSettings,
        "omni": OmniLearningProgressSettings,
        "omni_learnability": OmniLearnabilitySettings,
        "stratified": StratifiedSettings,
        "sequential": SequentialSettings,
        "frontier": Frontier,
        "batched_dr": BatchedUniform,
        "constant": Constant,
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
        "lilo": "frontier",
        "omni_learning_progress": "omni",
        "batched_domain_randomization": "batched_dr",
    },
    kept_as=task_settings,
)


def make_core(core: str, n_tasks: int, **settings: Any) -> TaskCurriculum:
    """The task curriculum of this name, as `--runner.core` knows it, for a list of `n_tasks` tasks.

    `settings` are its flags without `runner.core.`; ValueError for a name or a setting that is not known.
    """
    kind = TASK_CURRICULA[core]
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    for name in settings:
        if name not in known:
            raise unknown_name(f"setting of {core}", name, known)
    return core_of(kind(**settings), n_tasks)

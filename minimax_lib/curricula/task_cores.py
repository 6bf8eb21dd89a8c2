"""Where the settings of task curricula stood before `minimax_lib.tasks.registry`."""

import dataclasses

from minimax_lib.tasks.preference import Preference
from minimax_lib.tasks.registry import TASK_CURRICULA as TASK_CURRICULA
from minimax_lib.tasks.registry import BatchedDRSettings as BatchedDRSettings
from minimax_lib.tasks.registry import ConstantSettings as ConstantSettings
from minimax_lib.tasks.registry import LearningProgressSettings as LearningProgressSettings
from minimax_lib.tasks.registry import ListedPLRSettings as ListedPLRSettings
from minimax_lib.tasks.registry import OmniLearnabilitySettings as OmniLearnabilitySettings
from minimax_lib.tasks.registry import OmniLearningProgressSettings as OmniLearningProgressSettings
from minimax_lib.tasks.registry import OmniSettings as OmniSettings
from minimax_lib.tasks.registry import OnlineLearningProgressSettings as OnlineLearningProgressSettings
from minimax_lib.tasks.registry import OnlineSettings as OnlineSettings
from minimax_lib.tasks.registry import OnlineSFLSettings as OnlineSFLSettings
from minimax_lib.tasks.registry import ReadsNames as ReadsNames
from minimax_lib.tasks.registry import SequentialSettings as SequentialSettings
from minimax_lib.tasks.registry import SFLSettings as SFLSettings
from minimax_lib.tasks.registry import StratifiedSettings as StratifiedSettings
from minimax_lib.tasks.registry import TaskCurriculumSettings as TaskCurriculumSettings
from minimax_lib.tasks.registry import TSCLSettings as TSCLSettings
from minimax_lib.tasks.registry import UniformSettings as UniformSettings
from minimax_lib.tasks.registry import core_of as core_of


def preference_of(settings: Preference) -> Preference:
    """Only the part of `settings` that a `Preference` has."""
    return Preference(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(Preference)})

"""Task curricula: small pure state machines over task numbers. They know of no environment, row, seed or device.

state = core.init(key)
tasks = core.sample(key, state, n)              n tasks, drawn from the distribution as it stands
state = core.started(state, tasks, valid)       these attempts have begun
state = core.update(state, results)             these attempts have ended
"""

from minimax_lib.tasks.annealing import SimulatedAnnealing
from minimax_lib.tasks.attempts import Steps, Unfinished, results_of
from minimax_lib.tasks.batched import BatchedUniform, SyncedUniform
from minimax_lib.tasks.conditions import Counters, parse_condition
from minimax_lib.tasks.constant import Constant
from minimax_lib.tasks.core import BoxCurriculum, Evaluated, Results, TaskCurriculum, episodes_needed
from minimax_lib.tasks.draws import draw
from minimax_lib.tasks.expanding_box import ExpandingBox
from minimax_lib.tasks.frontier import Frontier
from minimax_lib.tasks.interesting import Interesting
from minimax_lib.tasks.learning_progress import LearningProgress
from minimax_lib.tasks.listed_plr import ListedPLR, RobustPLR
from minimax_lib.tasks.long_list import LongList
from minimax_lib.tasks.manual import Manual
from minimax_lib.tasks.omni import Omni
from minimax_lib.tasks.online import Online
from minimax_lib.tasks.preference import TRANSFORMS, Preference
from minimax_lib.tasks.product import ProductCurriculum
from minimax_lib.tasks.random_start import RandomStart
from minimax_lib.tasks.registry import make_core
from minimax_lib.tasks.sequential import Sequential, Stage
from minimax_lib.tasks.sfl import SFL
from minimax_lib.tasks.strata import Strata
from minimax_lib.tasks.tscl import TSCL
from minimax_lib.tasks.uniform import Uniform, UniformOver
from minimax_lib.tasks.weighted import Filter, Masked, Weighted, reweighted

__all__ = [
    "SFL",
    "TRANSFORMS",
    "TSCL",
    "BatchedUniform",
    "BoxCurriculum",
    "Constant",
    "Counters",
    "Evaluated",
    "ExpandingBox",
    "Filter",
    "Frontier",
    "Interesting",
    "LearningProgress",
    "ListedPLR",
    "LongList",
    "Manual",
    "Masked",
    "Omni",
    "Online",
    "Preference",
    "ProductCurriculum",
    "RandomStart",
    "Results",
    "RobustPLR",
    "Sequential",
    "SimulatedAnnealing",
    "Stage",
    "Steps",
    "Strata",
    "SyncedUniform",
    "TaskCurriculum",
    "Unfinished",
    "Uniform",
    "UniformOver",
    "Weighted",
    "draw",
    "episodes_needed",
    "make_core",
    "parse_condition",
    "results_of",
    "reweighted",
]

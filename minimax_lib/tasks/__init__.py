"""Task curricula: small pure state machines over task numbers. They know of no environment, row, seed or device.

state = core.init(key)
tasks = core.sample(key, state, n)              n tasks, drawn from the distribution as it stands
state = core.started(state, tasks, valid)       these attempts have begun
state = core.update(state, results)             these attempts have ended
"""

from minimax_lib.tasks.attempts import Steps, Unfinished, results_of
from minimax_lib.tasks.core import Results, TaskCurriculum
from minimax_lib.tasks.draws import draw
from minimax_lib.tasks.listed_plr import ListedPLR
from minimax_lib.tasks.preference import TRANSFORMS, Preference
from minimax_lib.tasks.tscl import TSCL
from minimax_lib.tasks.uniform import Uniform

__all__ = [
    "TRANSFORMS",
    "TSCL",
    "ListedPLR",
    "Preference",
    "Results",
    "Steps",
    "TaskCurriculum",
    "Unfinished",
    "Uniform",
    "draw",
    "results_of",
]

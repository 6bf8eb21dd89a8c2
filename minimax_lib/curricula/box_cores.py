"""Where the settings of curricula over a box stood before `minimax_lib.tasks.box_registry`."""

from minimax_lib.tasks.box_registry import BOX_CURRICULA as BOX_CURRICULA
from minimax_lib.tasks.box_registry import AnnealingSettings as AnnealingSettings
from minimax_lib.tasks.box_registry import Bounds as Bounds
from minimax_lib.tasks.box_registry import BoxCurriculumSettings as BoxCurriculumSettings
from minimax_lib.tasks.box_registry import ExpandingBoxSettings as ExpandingBoxSettings
from minimax_lib.tasks.box_registry import Interval as Interval
from minimax_lib.tasks.box_registry import Placing as Placing
from minimax_lib.tasks.box_registry import UniformBoxSettings as UniformBoxSettings
from minimax_lib.tasks.box_registry import Values as Values
from minimax_lib.tasks.box_registry import read_values as read_values

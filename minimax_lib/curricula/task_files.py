"""Where these stood before `minimax_lib.tasks.files`."""

from minimax_lib.tasks.files import read_strata as read_strata
from minimax_lib.tasks.files import read_tasks as read_tasks

"""What every part of an environment must do, checked. Call these in the tests of your own.

Each check raises an AssertionError, in a sentence, at the first thing that would break training. Models and curricula
have checks too: `minimax_lib.testing.models.check_model`, `minimax_lib.testing.curricula.check_curriculum`.
"""

from minimax_lib.testing.envs.editing import check_editing
from minimax_lib.testing.envs.environment import check_environment
from minimax_lib.testing.envs.held_out import check_held_out
from minimax_lib.testing.envs.multi_agent import check_multi_agent
from minimax_lib.testing.envs.teacher import check_teacher

__all__ = ["check_editing", "check_environment", "check_held_out", "check_multi_agent", "check_teacher"]

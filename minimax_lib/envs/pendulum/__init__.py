"""The swing-up of a pendulum whose physics are the level."""

from minimax_lib.envs.pendulum.pendulum import Pendulum, PendulumState
from minimax_lib.envs.pendulum.physics import Physics
from minimax_lib.envs.pendulum.tasks import PendulumTasks
from minimax_lib.envs.pendulum.teacher import PendulumDesign, PendulumTeacher

__all__ = ["Pendulum", "PendulumDesign", "PendulumState", "PendulumTasks", "PendulumTeacher", "Physics"]

"""Everything that belongs to the pendulum: its held-out tasks, its teacher, and how its levels are edited."""

import dataclasses
from functools import partial
from typing import Any

from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.pendulum.mutate import mutate
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.envs.pendulum.physics import PARAMETERS
from minimax_lib.envs.pendulum.tasks import GROUPS, PendulumTasks
from minimax_lib.envs.pendulum.teacher import PendulumDesign

EASY = 0.5  # share of each range from which the simplest levels are drawn


def easy_pendulum(env: Pendulum) -> Pendulum:
    """`env` with the easy half of each range: light and short, low gravity, much friction, a strong motor."""
    changes: dict[str, Any] = {}
    for name in PARAMETERS:
        least, most = getattr(env, name)
        part = EASY * (most - least)
        # A range, not a single point: of many equal levels, a level buffer keeps one.
        changes[name] = (most - part, most) if name in ("damping", "torque") else (least, least + part)
    return dataclasses.replace(env, **changes)


def editing(env: Pendulum) -> Editing:
    """How levels of `env` are edited. Edits stay within its ranges."""
    return Editing(mutate=partial(mutate, env.ranges), base=easy_pendulum)


FAMILY = Family(
    cls=Pendulum,
    name="Pendulum",
    held_out=PendulumTasks,
    groups=GROUPS,
    teacher=PendulumDesign,
    editing=editing,
)

"""Runners by name."""

from typing import Any

from minimax_lib.registry import Registry
from minimax_lib.runners.accel import ACCEL
from minimax_lib.runners.dr import DR
from minimax_lib.runners.paired import PAIRED
from minimax_lib.runners.plr import PLR
from minimax_lib.runners.sfl import SFL

RUNNERS: Registry[Any] = Registry("runner", {"dr": DR, "plr": PLR, "accel": ACCEL, "sfl": SFL, "paired": PAIRED})


def register_runner(name: str, settings: Any) -> Any:
    """Adds a runner: a frozen dataclass of settings whose `build(env, agent)` returns a `Runner`.

    `register_curriculum` is the same call: a curriculum becomes a runner by `Runner(env, agent, curriculum, n_steps)`.
    """
    return RUNNERS.register(name, settings)


register_curriculum = register_runner

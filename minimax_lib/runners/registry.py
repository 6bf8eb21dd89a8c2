"""Runners by name."""

from typing import Any

from minimax_lib.registry import Registry
from minimax_lib.runners.dr import DR

RUNNERS: Registry[Any] = Registry("runner", {"dr": DR})


def register_runner(name: str, settings: Any) -> Any:
    """Adds a runner: a frozen dataclass of settings whose `build(env, agent)` returns a `Runner`.

    `register_curriculum` is the same call: a curriculum becomes a runner by `Runner(env, agent, curriculum, n_steps)`.
    """
    return RUNNERS.register(name, settings)


register_curriculum = register_runner

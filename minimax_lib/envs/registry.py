"""The table of environments, and of the held-out tasks that belong to them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax

from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.registry import Registry, unknown_name

TRAINING_DISTRIBUTION = "TrainingDistribution"  # the task every environment has: its own random levels

HeldOutMaker = Callable[..., HeldOut]

ENVS: Registry[Callable[..., Environment]] = Registry("environment", {"AMaze": AMaze})


@dataclasses.dataclass(frozen=True)
class TrainingDistribution:
    """The held-out suite of an environment that has no other: fresh levels of its own."""

    env: Environment
    names: tuple[str, ...] = (TRAINING_DISTRIBUTION,)

    def __post_init__(self) -> None:
        for name in self.names:
            if name != TRAINING_DISTRIBUTION:
                raise unknown_name("held-out task", name, [TRAINING_DISTRIBUTION])

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        keys = jax.random.split(key, (len(self.names), n_episodes))
        return jax.vmap(jax.vmap(self.env.sample_level))(keys)


_HELD_OUT: dict[Callable[..., Environment], HeldOutMaker] = {}


def register_env(name: str, cls: Callable[..., Environment], held_out: HeldOutMaker | None = None) -> None:
    """Adds an environment. `held_out(env, names, **options)` builds its held-out tasks, where it has any."""
    ENVS.register(name, cls)
    if held_out is not None:
        _HELD_OUT[cls] = held_out


def make_env(name: str, **settings: Any) -> Environment:
    """The environment registered under `name`, with `settings` for its fields."""
    cls = ENVS[name]
    known = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else None
    for setting in settings:
        if known is not None and setting not in known:
            raise unknown_name(f"setting of {name}", setting, known)
    return cls(**settings)


def make_held_out(env: Environment, names: Sequence[str], **options: Any) -> HeldOut:
    """The held-out tasks called `names`, as one batch for `env`; every environment has "TrainingDistribution"."""
    if not names:
        raise ValueError("no held-out task named: give at least one")
    return _HELD_OUT.get(type(env), TrainingDistribution)(env, tuple(names), **options)

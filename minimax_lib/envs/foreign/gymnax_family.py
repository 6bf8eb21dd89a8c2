"""The environments of gymnax (Lange 2022): classic control, bsuite, MinAtar and others."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from minimax_lib.envs.base import Level
from minimax_lib.envs.family import Editing, Family
from minimax_lib.envs.foreign.functional import Functional, FunctionalLevel, Theirs
from minimax_lib.envs.foreign.parameters import Range, ranges_of
from minimax_lib.envs.held_out import TRAINING_DISTRIBUTION, is_of_training, training_sampler
from minimax_lib.extras import check_installed
from minimax_lib.registry import unknown_name

DEFAULT = "Default"  # the held-out task with the environment's own parameters
STEP = 0.1  # standard deviation of an edit, as a share of the range
# Returns from which an episode counts as solved: `reward_threshold` in Gymnasium's registry.
SOLVED = {"CartPole-v1": 475.0, "Acrobot-v1": -100.0, "MountainCar-v0": -110.0, "MountainCarContinuous-v0": 90.0}


def cart_and_pole(params: Any) -> Any:
    """CartPole's parameters, with the two computed again that follow from the others."""
    total, moment = params.masscart + params.masspole, params.masspole * params.length
    return params.replace(total_mass=total, polemass_length=moment)


DEPENDENT = {"CartPole-v1": (("total_mass", "polemass_length"), cart_and_pole)}


@dataclasses.dataclass(frozen=True)
class Gymnax(Functional):
    """An environment of gymnax. A level is the parameters that `vary`, and the start if `fixed_start`."""

    id: str = "CartPole-v1"
    """Name of the environment in gymnax."""
    solved: float | None = None
    """Return from which an episode counts as solved. None: that of Gymnasium (CartPole-v1 475, Acrobot-v1 -100,
    MountainCar-v0 -110, MountainCarContinuous-v0 90). In other environments, no episode is then solved."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.solved is not None and not math.isfinite(self.solved):
            raise ValueError(f"env.solved is {self.solved}: it must be finite, or none")

    def theirs(self) -> Theirs:
        """See `Functional`. ValueError for an unknown name, or if gymnax is not installed."""
        return _made(self.id)

    def is_solved(self, state: Any, episode_return: jax.Array) -> jax.Array:
        """See `Functional`."""
        threshold = SOLVED.get(self.id) if self.solved is None else self.solved
        return jnp.zeros((), bool) if threshold is None else episode_return >= threshold


@functools.cache
def _made(name: str) -> Theirs:
    check_installed("gymnax", "gymnax", "env")
    import gymnax  # imported here, since it takes seconds and starts the devices

    if name not in gymnax.registered_envs:
        raise unknown_name("env.id", name, gymnax.registered_envs)
    env, params = gymnax.make(name)
    return Theirs(env, params, *DEPENDENT.get(name, ((), None)))


@dataclasses.dataclass(frozen=True)
class GymnaxSuite:
    """Held-out tasks (`HeldOut`): the environment's own parameters, and levels as in training."""

    env: Functional
    names: tuple[str, ...] = (DEFAULT,)

    draws_training: ClassVar[bool] = True  # as published evaluations have drawn it: with keys by place

    def __post_init__(self) -> None:
        for name in self.names:
            if name != DEFAULT and not is_of_training(name):
                raise unknown_name("held-out task", name, [DEFAULT, TRAINING_DISTRIBUTION])

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        tasks = []
        for name, k_task in zip(self.names, jax.random.split(key, len(self.names)), strict=True):
            draw = self.env.default_level if name == DEFAULT else training_sampler(self.env, name)
            tasks.append(jax.vmap(draw)(jax.random.split(k_task, n_episodes)))
        return jax.tree.map(lambda *levels: jnp.stack(levels), *tasks)


def editing_of(env: Functional) -> Editing:
    """How levels of `env` are edited. ValueError if all levels have the same parameters."""
    ranges = tuple(range_ for range_ in ranges_of(env.vary) if range_.low < range_.high)
    if not ranges:
        raise ValueError("env.vary is empty: levels without parameters that vary cannot be edited (try gravity=5:15)")
    return Editing(mutate=functools.partial(moved, ranges), base=near_defaults)


def moved(ranges: tuple[Range, ...], key: jax.Array, level: FunctionalLevel, n_edits: int) -> FunctionalLevel:
    """`level` after `n_edits` edits. Each adds a normal number, a tenth of the range wide, to a random parameter."""
    k_which, k_step = jax.random.split(key)
    which = jax.random.randint(k_which, (n_edits,), 0, len(ranges))
    steps = STEP * jax.random.normal(k_step, (n_edits,))
    parameters = dict(level.parameters)
    for i, r in enumerate(ranges):
        by = (r.high - r.low) * jnp.where(which == i, steps, 0.0).sum()
        parameters[r.name] = jnp.clip(parameters[r.name] + by, r.low, r.high)
    return level.replace(parameters=parameters)


def near_defaults(env: Functional) -> Functional:
    """`env` with levels near the default parameters, from which edits lead away."""
    return dataclasses.replace(env, vary=tuple(near_default(env, range_) for range_ in ranges_of(env.vary)))


def near_default(env: Functional, range_: Range) -> str:
    """A tenth of the range on both sides of the default, as far as it is in the range; a fixed value stays.

    Where the default is outside of the range, only the side towards the range.
    """
    default, width = env.default_of(range_.name), range_.high - range_.low
    # On the other side, there may be lengths and masses below 0.
    low = max(default - STEP * width, min(default, range_.low))
    high = min(default + STEP * width, max(default, range_.high))
    # Not the default alone: of many equal levels a buffer keeps one, and would never be full enough for replay.
    return f"{range_.name}={low!r}:{high!r}" if width else f"{range_.name}={range_.low!r}"


FAMILY = Family(
    cls=Gymnax,
    name="Gymnax",
    editing=editing_of,
    held_out=GymnaxSuite,
    groups={
        "validation": (DEFAULT,),
        "benchmark": (DEFAULT, TRAINING_DISTRIBUTION),
        "all": (DEFAULT, TRAINING_DISTRIBUTION),
    },
)

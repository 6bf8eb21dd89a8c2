"""Held-out tasks: the base of a suite, and the one that every environment has."""

import dataclasses
import zlib
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Environment, HeldOut, Level, sample_levels
from minimax_lib.envs.task_names import TRAINING_DISTRIBUTION, is_of_training
from minimax_lib.envs.training_list import sampler_of
from minimax_lib.messages import shown
from minimax_lib.registry import unknown_name

GROUPS = ("validation", "benchmark", "all")  # groups of held-out tasks that every environment has
SUITE = 2**32 - 1  # folded into the key that a suite gets; no split reaches this number


def as_names(names: Any) -> tuple[str, ...]:
    """The names of held-out tasks, of which a text is one; ValueError for what is no text."""
    # A text is a list of letters, too.
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Iterable):
        raise ValueError(f"held-out tasks are {shown(names)}: they must be a list of names")
    found = tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise ValueError(f"a held-out task is {shown(name)}: it must be a name")
    return found


def key_of(key: jax.Array, name: str) -> jax.Array:
    """The key of one held-out task: its levels depend on `key` and its name, not on what else is evaluated."""
    # Not `hash`, which Python salts anew in every process.
    return jax.random.fold_in(key, zlib.crc32(name.encode()))


def training_sampler(env: Environment, name: str) -> Callable[[jax.Array], Level]:
    """Draws a level of a held-out task that `is_of_training`."""
    return env.sample_level if name == TRAINING_DISTRIBUTION else sampler_of(env, name)


def training_levels(env: Environment, name: str, key: jax.Array, n_episodes: int) -> Level:
    """Levels [n_episodes, ...] of a held-out task that `is_of_training`."""
    if name == TRAINING_DISTRIBUTION:
        return sample_levels(env, key, n_episodes)
    return jax.vmap(sampler_of(env, name))(jax.random.split(key_of(key, name), n_episodes))


@dataclasses.dataclass(frozen=True)
class TrainingDistribution:
    """The suite (`HeldOut`) of an environment that has no other."""

    env: Environment
    names: tuple[str, ...] = (TRAINING_DISTRIBUTION,)

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_of_training(name):
                raise unknown_name("held-out task", name, [TRAINING_DISTRIBUTION])

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        tasks = [training_levels(self.env, name, key, n_episodes) for name in self.names]
        return jax.tree.map(lambda *levels: jnp.stack(levels), *tasks)


@dataclasses.dataclass(frozen=True)
class NamedTasks:
    """Held-out tasks that are played in the training environment itself: the base of a suite (`HeldOut`) of your own.

    A subclass lists their names in `known`, and its `draw` gives the level of one episode. `make_held_out` adds
    "TrainingDistribution" to every suite.
    """

    env: Any
    names: tuple[str, ...] = ()
    """Those that are asked for; none named: all."""

    known: ClassVar[tuple[str, ...]] = ()
    """All that there are."""

    def __post_init__(self) -> None:
        if not self.names:
            object.__setattr__(self, "names", self.known)
        for name in self.names:
            if name not in self.known:
                raise unknown_name("held-out task", name, self.known)

    def draw(self, name: str, key: jax.Array) -> Level:
        """The level of one episode; a fixed one does not use the key."""
        raise NotImplementedError

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""

        def of_task(name: str) -> Level:
            keys = jax.random.split(key_of(key, name), n_episodes)
            return jax.vmap(lambda key: self.draw(name, key))(keys)

        return jax.tree.map(lambda *tasks: jnp.stack(tasks), *(of_task(name) for name in self.names))


@dataclasses.dataclass(frozen=True)
class WithTraining:
    """The held-out tasks of a `suite`, and those on levels of the training, in the order of `names` (a `HeldOut`)."""

    training: Environment
    suite: HeldOut
    names: tuple[str, ...]

    @property
    def env(self) -> Environment:
        return self.suite.env

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        # A suite may split its key in any way, so it gets its own. It gets that one with and without the
        # training distribution: what is evaluated beside it changes nothing about it.
        levels = self.suite.sample(jax.random.fold_in(key, SUITE), n_episodes)
        if self.names == self.suite.names:
            return levels
        added = [name for name in self.names if name not in self.suite.names]
        training = [training_levels(self.training, name, key, n_episodes) for name in added]
        known = (*self.suite.names, *added)
        order = np.array([known.index(name) for name in self.names], np.int32)
        return jax.tree.map(lambda x, *tasks: jnp.concatenate([x, jnp.stack(tasks)])[order], levels, *training)

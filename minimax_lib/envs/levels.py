"""Levels that people hand in, and levels of fixed lists."""

from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.ued import describe

LEVELS_SEED = 20210122  # a list is the same for every run


def level_of_list(env: Any, number: jax.Array, seed: int = LEVELS_SEED) -> Level:
    """Level `number` (i32[]) of the fixed list of random levels that `seed` gives."""
    return listed_level(env, jax.random.fold_in(jax.random.key(seed), number), number)


def listed_level(env: Any, key: jax.Array, number: jax.Array) -> Level:
    """The random level of `env`, or of a family of levels, that is number `number` (i32[]) of a list."""
    draw = getattr(env, "sample_listed", None)  # a family of levels need not derive from any class
    return draw(key, number) if draw else env.sample_level(key)


def task_name(env: Any, number: int) -> str:
    """What level `number` of the fixed list is called: its number, if the environment has no names."""
    return env.task_name(number) if env.task_name else str(number)


def fitted_level(env: Environment, level: Level, n: int | None = None) -> Level:
    """`level` (with `n`, so many of them, [n, ...]) as arrays of jax; ValueError where it is no level of `env`."""
    wanted = jax.eval_shape(env.sample_level, jax.random.key(0))
    if n is not None:
        wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct((n, *x.shape), x.dtype), wanted)
    # No weak types, which would be compiled again.
    level = jax.tree.map(lambda x: jnp.asarray(x, getattr(x, "dtype", None)), level)
    if _form(level) != _form(wanted):
        raise ValueError(f"the level is {_form(level)}: it must be {_form(wanted)}")
    return level


def _form(level: Level) -> str:
    return f"{level.dtype}{list(level.shape)}" if jax.tree_util.all_leaves([level]) else describe(level)

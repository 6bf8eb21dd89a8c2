"""Levels that people hand in, and levels of fixed lists."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.given import check_levels, is_known
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
    """`level` (with `n`, so many of them, [n, ...]) as arrays of jax; ValueError where it is not a level of `env`."""
    wanted = _form_of_levels(env)
    if n is not None:
        wanted = jax.tree.map(lambda x: jax.ShapeDtypeStruct((n, *x.shape), x.dtype), wanted)
    if jax.tree.structure(level) == jax.tree.structure(wanted):  # type: ignore[operator]
        level = jax.tree.map(_of_type, level, wanted)
    # No weak types, which would be compiled again.
    level = jax.tree.map(lambda x: jnp.asarray(x, getattr(x, "dtype", None)), level)
    if _form(level) != _form(wanted):
        raise ValueError(f"the level is {_form(level)}: it must be {_form(wanted)}")
    if n is None:
        check_levels(env, jax.tree.map(lambda x: x[None], level), "the level")
    else:
        check_levels(env, level)
    return level


def checked_at_reset(env: Environment, level: Level) -> Level:
    """The `level` of a reset, as `fitted_level` gives it. Inside jit and vmap nothing can be looked at."""
    return fitted_level(env, level) if is_known(level) else level


def _form_of_levels(env: Environment) -> Level:
    """Shapes and types of the levels of `env`."""
    try:
        return _known_form(env)
    except TypeError:  # an environment of somebody else that cannot be hashed
        return jax.eval_shape(env.sample_level, jax.random.key(0))


@functools.lru_cache(maxsize=64)
def _known_form(env: Environment) -> Level:
    return jax.eval_shape(env.sample_level, jax.random.key(0))


def _of_type(given: Any, wanted: jax.ShapeDtypeStruct) -> Any:
    """Whole numbers in the wanted type, if they are the same there: NumPy makes i64 of them, and people 0 and 1."""
    whole = "biu"
    if np.asarray(given).dtype.kind not in whole or np.dtype(wanted.dtype).kind not in whole:
        return given
    cast = np.asarray(given).astype(wanted.dtype)
    return cast if np.array_equal(cast, given) else given


def _form(level: Level) -> str:
    return f"{level.dtype}{list(level.shape)}" if jax.tree_util.all_leaves([level]) else describe(level)

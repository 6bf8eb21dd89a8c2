"""Levels that people hand in."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.ued import describe


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

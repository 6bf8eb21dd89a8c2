"""Rates of success: what counts as a success, and how far a rate is above the one at the beginning."""

from typing import Literal

import jax
import jax.numpy as jnp

from minimax_lib.tasks.core import Results

Unseen = Literal["zero", "keep"]
HIGHEST_BASELINE = 0.75  # a higher one would leave too little above it


def successes(results: Results, continuous: bool) -> jax.Array:
    """f32[M]: 1 where the task was solved, else 0. `continuous`: the progress itself, from 0 to 1."""
    if continuous:
        return jnp.clip(results.progress, 0.0, 1.0)
    return (results.progress >= 1).astype(jnp.float32)


def above(rates: jax.Array, baseline: jax.Array) -> jax.Array:
    """f32[N]: 0 at the baseline or below, 1 where the task is always solved."""
    return jnp.maximum(rates - baseline, 0.0) / (1.0 - baseline)


def check_share(name: str, value: float) -> None:
    """ValueError if `value` is not between 0 and 1."""
    if not 0 <= value <= 1:  # this way round, NaN is refused too
        raise ValueError(f"{name} is {value}: it must be between 0 and 1")


def check_inside(name: str, value: float) -> None:
    """ValueError if `value` is not above 0 and below 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value}: it must be above 0 and below 1")


def check_at_least(name: str, value: int, least: int) -> None:
    """ValueError if `value` is below `least`."""
    if value < least:
        raise ValueError(f"{name} is {value}: it must be at least {least}")

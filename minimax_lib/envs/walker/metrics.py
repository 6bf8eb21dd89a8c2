"""Facts about a level."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.walker.level import NUMBERS, Level


def level_metrics(level: Level) -> dict[str, jax.Array]:
    """The eight numbers, f32[] each. Those of Gymnasium's Hardcore are 0: they do not count there."""
    numbers = jnp.where(level.hardcore, 0.0, level.numbers)
    return {name: numbers[i] for i, name in enumerate(NUMBERS)}

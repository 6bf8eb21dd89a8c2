"""ACCEL's mutation (Parker-Holder et al. 2022) of a pendulum's physics."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.pendulum.physics import PARAMETERS, Physics, stacked, unstacked, within

NUDGE = 0.1  # standard deviation of an edit, as a share of the parameter's range


def mutate(ranges: Physics, key: jax.Array, level: Physics, n_edits: int) -> Physics:
    """A child of `level` after `n_edits` edits. Each edit adds a normal number to one random parameter.

    A parameter that would leave its range stops at the end of it.
    """
    k_which, k_step = jax.random.split(key)
    which = jax.random.randint(k_which, (n_edits,), 0, len(PARAMETERS))
    steps = NUDGE * jax.random.normal(k_step, (n_edits,), jnp.float32)
    least, most = (stacked(within(ranges, unstacked(jnp.full(len(PARAMETERS), x, jnp.float32)))) for x in (0, 1))

    def edit(values: jax.Array, one: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        i, step = one
        moved = values.at[i].add(step * (most - least)[i])
        return jnp.clip(moved, least, most), None

    return unstacked(jax.lax.scan(edit, stacked(level), (which, steps))[0])

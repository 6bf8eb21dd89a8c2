"""Ages of levels, and their sums, which outgrow 32 bits.

After a hundred million levels, the ages of 4000 slots may add up to 4e11. Wherever the sum would not fit an int32, ages
are added up in units of 2**shift levels, shift being the smallest that is enough. Where it fits, shift is 0 and nothing
changes. Each slot's own age is exact, up to `MAX_AGE`.

A slot's share of the total age is then off by less than 2**-28, all slots' shares together by less than C / 2**28. The
uniform numbers that pick a slot come in steps of 2**-23. So sums of two words would make no draw better, and they would
double the work of each draw.
"""

import jax
import jax.numpy as jnp

# Ten times as many levels as the longest runs sample. The other half of the int32 range is for the levels of one batch,
# which add to an age before it is limited again.
MAX_AGE = 2**30

# The sum that chooses the unit is rounded: up to an eighth is left for its error.
MAX_SUM = 7 / 8 * 2**31


def saturated(ages: jax.Array) -> jax.Array:
    """`ages` (i32[C]), each limited to `MAX_AGE`."""
    return jnp.minimum(ages, MAX_AGE)


def aged(ages: jax.Array, filled: jax.Array, slots: jax.Array, counts: jax.Array) -> jax.Array:
    """i32[C], the ages after levels were played one after another, those in `slots` (i32[M], -1: in none).

    Only where `counts` (bool[M]): each makes the other filled slots older by one, and its own slot has age 0 then.
    """
    number = jnp.cumsum(counts, dtype=jnp.int32)
    played = jnp.zeros_like(ages).at[slots].max(jnp.where(counts & (slots >= 0), number, 0))
    after = jnp.where(played > 0, number[-1] - played, ages + number[-1])
    return saturated(jnp.where(filled, after, 0))


def unit_shift(ages: jax.Array, n_filled: jax.Array, n_more: int = 0) -> jax.Array:
    """i32[], the shift of the unit: the sum of `ages >> shift` fits an int32, and `n_more` levels later still does."""
    total = ages.sum(dtype=jnp.float32) + n_filled.astype(jnp.float32) * n_more
    # `frexp` gives the smallest exponent for which total / 2**exponent is below MAX_SUM, and negative ones too.
    return jnp.maximum(jnp.frexp(total / MAX_SUM)[1], 0)


def sum_in_units(ages: jax.Array, shift: jax.Array) -> jax.Array:
    """i32[], the sum of `ages` (i32[C]) in units of 2**shift levels."""
    return (ages >> shift).sum(dtype=jnp.int32)


def in_levels(units: jax.Array, shift: jax.Array) -> jax.Array:
    """f32[], the number of levels that a sum in units of 2**shift levels (i32[]) stands for."""
    return units.astype(jnp.float32) * (jnp.int32(1) << shift).astype(jnp.float32)

"""Draws from a list of weights."""

import jax
import jax.numpy as jnp

from minimax_lib.priorities import draw_in_order, highest_first


def draw(key: jax.Array, weights: jax.Array, n: int) -> jax.Array:
    """i32[n], entries drawn in proportion to `weights` (f32[N], none negative). An entry of weight 0 is never drawn.

    If all weights are 0, entry 0 is drawn.
    """
    return draw_in_order(key, weights, highest_first(weights), n)


def draw_where(key: jax.Array, allowed: jax.Array, n: int) -> jax.Array:
    """i32[n], entries drawn uniformly where `allowed` (bool[N]); anywhere if none is."""
    allowed = allowed | ~allowed.any()
    count = jnp.cumsum(allowed, dtype=jnp.int32)
    # Integers, not shares: every allowed entry has the same chance, however long the list.
    place = jax.random.randint(key, (n,), 0, count[-1], jnp.int32)
    return jnp.searchsorted(count, place, side="right").astype(jnp.int32)

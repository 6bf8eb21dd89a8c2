"""Draws from a list of weights."""

import jax
import jax.numpy as jnp


def draw(key: jax.Array, weights: jax.Array, n: int) -> jax.Array:
    """i32[n], entries drawn in proportion to `weights` (f32[N], none negative). An entry of weight 0 is never drawn.

    If all weights are 0, entry 0 is drawn.
    """
    # Sorted, the entries of weight 0 come last, and one bound keeps them out. In any other place, the rounding of the
    # sums could give them a share.
    order = jnp.argsort(-weights).astype(jnp.int32)
    cumulative = jnp.cumsum(weights[order])
    # The rounded sums need not end at 1, so the uniform numbers are scaled to where they do end. They may be 0 but not
    # 1: with "right", each entry's interval contains its lower end and not its upper one.
    places = jnp.searchsorted(cumulative, jax.random.uniform(key, (n,)) * cumulative[-1], side="right")
    last = jnp.maximum((weights > 0).sum(dtype=jnp.int32) - 1, 0)
    return order[jnp.minimum(places, last)]


def draw_where(key: jax.Array, allowed: jax.Array, n: int) -> jax.Array:
    """i32[n], entries drawn uniformly where `allowed` (bool[N]); anywhere if none is."""
    allowed = allowed | ~allowed.any()
    count = jnp.cumsum(allowed, dtype=jnp.int32)
    # Integers, not shares: every allowed entry has the same chance, however long the list.
    place = jax.random.randint(key, (n,), 0, count[-1], jnp.int32)
    return jnp.searchsorted(count, place, side="right").astype(jnp.int32)

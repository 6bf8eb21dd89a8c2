"""Ranks, powers and draws of Prioritized Level Replay (Jiang et al. 2021a), for level buffers and lists of tasks.

Entries are the slots of a buffer, or tasks. An entry that does not count has the score -inf.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np


def least_count(share: float, n: int) -> int:
    """How many of `n` entries are a share of at least `share`; at least 1."""
    # Whole numbers are compared, not shares. A compiled mean may multiply by 1 / n: 41 entries of 41 are then a share
    # of 0.99999994, and a least share of 1 is never reached. The product may be rounded up too: 0.07 * 100 is above 7.
    return max(1, math.ceil(share * n - 1e-6))


def highest_first(scores: jax.Array) -> jax.Array:
    """i32[N], the entries from the highest score to the lowest; on ties, the entry with the lower number first."""
    # The sort is stable, so that the negated scores leave ties in the order of the entries. A rising sort, read
    # backwards, would turn them round.
    return jnp.argsort(-scores).astype(jnp.int32)


def ranks_of(order: jax.Array) -> jax.Array:
    """i32[N], the rank of each entry, from 1; `order` is that of `highest_first`."""
    # The inverse of a permutation is one scatter. Sorting once more would give the same and cost more.
    places = jnp.arange(1, len(order) + 1, dtype=jnp.int32)
    return jnp.zeros_like(order).at[order].set(places, unique_indices=True)


def rank_powers(n: int, temperature: float) -> np.ndarray:
    """f64[n], (1 / rank) ** (1 / temperature) of the ranks 1 to n."""
    # The ranks are always 1 to n, whatever the scores are. So the powers are constants: NumPy computes them in float64,
    # once, while JAX traces.
    return np.arange(1.0, n + 1.0) ** (-1.0 / temperature)


def score_powers(scores: jax.Array, temperature: float) -> jax.Array:
    """f32[N], max(score, 0) ** (1 / temperature), in the unit of the highest."""
    # The power of a raw score could overflow: 1e4 ** 10 is not a float32. Weights are shares: the unit does not matter.
    # If no score is above 0, every power is 0. The smallest normal float stands in for it, as 0 / 0 would be NaN.
    relative = jnp.maximum(scores, 0.0) / jnp.maximum(scores.max(), np.finfo(np.float32).tiny)
    return relative ** (1.0 / temperature)


def draw_in_order(key: jax.Array, weights: jax.Array, order: jax.Array, n: int) -> jax.Array:
    """i32[n], entries drawn in proportion to `weights` (f32[N], none negative); the first of `order` if all are 0.

    `order` (i32[N]) holds all entries, those of weight 0 last. An entry of weight 0 is never drawn beside others.
    """
    # One bound keeps out the entries of weight 0. In any other place, the rounding of the sums could give them a share.
    weights = weights[order]
    cumulative = jnp.cumsum(weights)
    # The rounded sums need not end at 1, so the uniform numbers are scaled to where they do end. They may be 0 but not
    # 1: with "right", each entry's interval contains its lower end and not its upper one.
    places = jnp.searchsorted(cumulative, jax.random.uniform(key, (n,)) * cumulative[-1], side="right")
    # The sums are added up in parallel and each is rounded in its own way. So they may still grow a little behind the
    # last entry that has a weight. If all weights are 0, every place is past the end.
    last = jnp.maximum((weights > 0).sum(dtype=jnp.int32) - 1, 0)
    return order[jnp.minimum(places, last)]

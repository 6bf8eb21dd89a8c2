"""The replay weights: how likely each slot is to be the next that is replayed."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.curricula.level_buffer.ages import in_levels, sum_in_units, unit_shift
from minimax_lib.curricula.level_buffer.buffer import LevelBuffer, count_filled
from minimax_lib.curricula.level_buffer.settings import ReplaySettings
from minimax_lib.curricula.level_buffer.strengths import STRENGTHS


def weights(settings: ReplaySettings, buffer: LevelBuffer) -> jax.Array:
    """f32[C], the probability that each slot is the next to be replayed; all 0 in an empty buffer.

    (1 - staleness) P_score + staleness P_stale (Jiang et al. 2021a, eq. 1 to 3).
    """
    merits, ranks = merits_of(settings, buffer.scores), ranks_of(highest_first(buffer.scores))
    n_filled = count_filled(buffer)
    shift = unit_shift(buffer.ages, n_filled)
    total_age = in_levels(sum_in_units(buffer.ages, shift), shift)
    score_parts, age_parts = weight_parts(settings, merits, ranks, n_filled, buffer.ages, total_age)
    return score_parts + age_parts


def weight_parts(
    settings: ReplaySettings,
    merits: jax.Array,
    ranks: jax.Array,
    n_filled: jax.Array,
    ages: jax.Array,
    total_age: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The two terms of the replay weights, f32[C] each: from the score and from the age. `total_age` is f32[].

    If no filled slot has any strength ("proportional", no score above 0), all get the same. If all ages are 0, the
    score alone decides.
    """
    filled = ranks <= n_filled  # free slots have the last ranks
    strengths, total = STRENGTHS[settings.prioritisation](merits, ranks, n_filled, settings.temperature)
    equal = total <= 0
    strengths = jnp.where(filled, jnp.where(equal, 1.0, strengths), 0.0)
    # An empty buffer gets a total of 1, and so weights of 0. A total of 0 would make them NaN.
    total = jnp.where(equal, jnp.maximum(n_filled, 1).astype(jnp.float32), total)
    share = jnp.where(total_age > 0, jnp.float32(settings.staleness), 0.0)
    # One factor serves all slots, so that each term is a single product, rounded once. The plain loop in the tests
    # repeats it to the last bit: between nearly equal weights, the rounding decides which slot is evicted.
    age_scale = share / jnp.maximum(total_age, 1.0)
    return strengths * ((1.0 - share) / total), ages.astype(jnp.float32) * age_scale


def merits_of(settings: ReplaySettings, scores: jax.Array) -> jax.Array:
    """max(score, 0) ** (1 / temperature) of `scores`, in the unit of the highest."""
    # The power of a raw score could overflow: 1e4 ** 10 is no float32. Weights are shares, so the unit does not matter.
    # If no score is above 0, every merit is 0. The smallest normal float stands in for it, as 0 / 0 would be NaN.
    relative = jnp.maximum(scores, 0.0) / jnp.maximum(scores.max(), np.finfo(np.float32).tiny)
    return relative ** (1.0 / settings.temperature)


def highest_first(scores: jax.Array) -> jax.Array:
    """i32[C], the slots from the highest score to the lowest; the lower slot first on ties, free slots last."""
    # The sort is stable, so that the negated scores leave ties in the order of the slots. A rising sort, read
    # backwards, would turn them round.
    return jnp.argsort(-scores).astype(jnp.int32)


def ranks_of(order: jax.Array) -> jax.Array:
    """i32[C], the rank of each slot, from 1; `order` is that of `highest_first`."""
    # The inverse of a permutation is one scatter. Sorting once more would give the same and cost more.
    places = jnp.arange(1, len(order) + 1, dtype=jnp.int32)
    return jnp.zeros_like(order).at[order].set(places, unique_indices=True)

"""The replay weights: how likely each slot is to be the next that is replayed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer, Prioritisation, ReplaySettings, count_filled
from minimax_lib.priorities import highest_first, rank_powers, ranks_of, score_powers


def weights(settings: ReplaySettings, buffer: LevelBuffer) -> jax.Array:
    """f32[C], the probability that each slot is the next to be replayed; all 0 in an empty buffer.

    (1 - staleness) P_score + staleness P_stale (Jiang et al. 2021a, eq. 1 to 3).
    """
    powers, ranks = score_powers(buffer.scores, settings.temperature), ranks_of(highest_first(buffer.scores))
    n_filled = count_filled(buffer)
    shift = unit_shift(buffer.ages, n_filled)
    total_age = in_levels(sum_in_units(buffer.ages, shift), shift)
    score_parts, age_parts = weight_parts(settings, powers, ranks, n_filled, buffer.ages, total_age)
    return score_parts + age_parts


def weight_parts(
    settings: ReplaySettings,
    powers: jax.Array,
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
    strengths, total = STRENGTHS[settings.prioritisation](powers, ranks, n_filled, settings.temperature)
    equal = total <= 0
    strengths = jnp.where(filled, jnp.where(equal, 1.0, strengths), 0.0)
    # An empty buffer gets a total of 1, and so weights of 0. A total of 0 would make them NaN.
    total = jnp.where(equal, jnp.maximum(n_filled, 1).astype(jnp.float32), total)
    share = jnp.where(total_age > 0, jnp.float32(settings.staleness), 0.0)
    # One factor serves all slots, so that each term is a single product, rounded once. The plain loop in the tests
    # repeats it to the last bit: between nearly equal weights, the rounding decides which slot is evicted.
    age_scale = share / jnp.maximum(total_age, 1.0)
    return strengths * ((1.0 - share) / total), ages.astype(jnp.float32) * age_scale


# ------------------------------------------------------------------------------------------------------------- by score

# (powers f32[C], ranks i32[C] from 1, n_filled i32[], temperature) -> (strengths f32[C], f32[] their total).
# The total is over the filled slots. What free slots get does not matter: `weight_parts` sets it to 0.
Strength = Callable[[jax.Array, jax.Array, jax.Array, float], tuple[jax.Array, jax.Array]]


def by_rank(
    powers: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """(1 / rank) ** (1 / temperature), and the total over the filled slots."""
    capacity = len(ranks)
    table = rank_powers(capacity, temperature)
    totals = np.concatenate([[0.0], np.cumsum(table)])
    # At a low temperature the last powers are 0 in float32. The floor still falls from rank to rank, so that an
    # eviction can tell the lower of two scores. It is far too small to matter for a draw.
    floor = np.arange(capacity, 0.0, -1.0) * 1e-30
    strengths = jnp.asarray(np.maximum(table, floor), jnp.float32)[ranks - 1]
    # Free slots have the last ranks, so that the filled ones have ranks 1 to n_filled.
    return strengths, jnp.asarray(totals, jnp.float32)[n_filled]


def by_score(
    powers: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """max(score, 0) ** (1 / temperature) in some unit, which is `powers`, and the total. Free slots have 0."""
    return powers, powers.sum()


def by_best(
    powers: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """1 for the highest score and 0 for the others, and the total, 1."""
    return (ranks == 1).astype(jnp.float32), jnp.float32(1)


STRENGTHS: dict[Prioritisation, Strength] = {"rank": by_rank, "proportional": by_score, "greedy": by_best}


# --------------------------------------------------------------------------------------------------------------- by age

# After a hundred million levels, the ages of 4000 slots may add up to 4e11, which no int32 holds. Wherever the sum
# would not fit, ages are added up in units of 2**shift levels, shift being the smallest that is enough. Where it fits,
# shift is 0 and nothing changes. Each slot's own age is exact, up to `MAX_AGE`.
#
# A slot's share of the total age is then off by less than 2**-28, all slots' shares together by less than C / 2**28.
# The uniform numbers that pick a slot come in steps of 2**-23. So sums of two words would make no draw better, and they
# would double the work of each draw.

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


# -------------------------------------------------------------------------------------------------------------- metrics


def buffer_metrics(settings: ReplaySettings, buffer: LevelBuffer) -> dict[str, jax.Array]:
    """f32[] each: the state of the buffer, also weighted by how likely its levels are to be replayed."""
    chances = weights(settings, buffer)
    n_filled = count_filled(buffer)
    # XLA computes this sort once: `weights` does the same.
    descending = buffer.scores[highest_first(buffer.scores)]

    def weighted(values: jax.Array) -> jax.Array:
        return jnp.where(buffer.filled, chances * values.astype(jnp.float32), 0.0).sum()

    def quantile(share: float) -> jax.Array:
        last = jnp.maximum(n_filled - 1, 0)
        place = (1.0 - share) * last.astype(jnp.float32)
        before = jnp.floor(place).astype(jnp.int32)
        # Between two scores: the median of two levels is neither the higher nor the lower.
        higher, lower = descending[before], descending[jnp.minimum(before + 1, last)]
        between = (place - before.astype(jnp.float32)) * (higher - lower)
        return jnp.where(n_filled > 0, higher - between, jnp.nan)

    return {
        "buffer/fill": buffer.filled.mean(dtype=jnp.float32),
        "buffer/weighted_score": weighted(buffer.scores),
        "buffer/weighted_age": weighted(buffer.ages),
        "buffer/weighted_n_mutations": weighted(buffer.n_mutations),
        "buffer/score_p10": quantile(0.1),
        "buffer/score_p50": quantile(0.5),
        "buffer/score_p90": quantile(0.9),
    }

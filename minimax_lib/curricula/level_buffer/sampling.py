"""Whether to replay, and which levels."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer, ReplaySettings, count_filled
from minimax_lib.curricula.level_buffer.weights import aged, unit_shift, weight_parts
from minimax_lib.priorities import draw_in_order, highest_first, least_count, ranks_of, score_powers


def replay_probability(settings: ReplaySettings, buffer: LevelBuffer) -> jax.Array:
    """f32[], the probability with which the next batch should be a replayed one.

    It differs between seeds and devices, which must decide alike. Compare it with a random number that they share,
    and replay where `axes.everywhere_all` of the answers is true.
    """
    fill = buffer.filled.mean(dtype=jnp.float32)
    probability = jnp.float32(settings.replay_prob) if settings.schedule == "fixed" else fill
    # With a `min_fill` of 0, one level is enough. From an empty buffer, placeholders would be played.
    needed = least_count(settings.min_fill, len(buffer.filled))
    return jnp.where(count_filled(buffer) >= needed, probability, 0.0)


def sample(key: jax.Array, settings: ReplaySettings, buffer: LevelBuffer, n: int) -> tuple[LevelBuffer, jax.Array]:
    """(the buffer with its new ages, i32[n] slots): levels drawn one after another with replacement.

    After every draw, all other filled slots are older by one and the drawn one has age 0. The next draw sees that.
    An empty buffer gives slot 0, a placeholder, which `insert` ignores.
    """
    k_scores, k_which, k_ages = jax.random.split(key, 3)
    # The weights mix two distributions. So each draw is made from both, and a coin decides which of the two counts.
    # The scores stay the same from draw to draw: all draws by score are made at once, and only those by age need a
    # loop. Three keys, since the coin must know nothing of what is drawn.
    candidates = _sample_by_score(k_scores, settings, buffer, n)
    stale = jax.random.bernoulli(k_which, settings.staleness, (n,))
    shift = unit_shift(buffer.ages, count_filled(buffer), n)
    # In units of 2**shift levels, slots become one older at every 2**shift-th draw: at every draw if shift is 0.
    growths = jnp.diff(jnp.arange(n + 1, dtype=jnp.int32) >> shift)
    draws = (candidates, stale, jax.random.uniform(k_ages, (n,)), growths)
    filled = buffer.filled.astype(jnp.int32)
    n_filled_up_to, index = jnp.cumsum(filled, dtype=jnp.int32), jnp.arange(len(filled), dtype=jnp.int32)

    # The loop carries running sums of the ages, not the ages: how a draw changes the sums is known, and adding up C
    # ages anew in every draw would take longer than all the rest. The sums are integers. In float32, from 2**24 on,
    # an increase by one would be rounded away.
    def draw(cumulative: jax.Array, one: tuple) -> tuple[jax.Array, jax.Array]:
        """`cumulative`: i32[C], for each slot the sum of the ages up to its own, in units of 2**shift levels."""
        candidate, stale, uniform, growth = one
        total = cumulative[-1]
        # A slot of age a owns a of the units 0 to total - 1. The minimum is a safeguard against rounding: no slot owns
        # the unit `total`.
        unit = jnp.minimum((uniform * total.astype(jnp.float32)).astype(jnp.int32), total - 1)
        oldest = jnp.sum(cumulative <= unit, dtype=jnp.int32)
        # Where all ages are 0, no slot owns a unit, and the weights are those of the scores alone.
        slot = jnp.where(stale & (total > 0), oldest, candidate)
        age = cumulative[slot] - jnp.where(slot > 0, cumulative[slot - 1], 0)  # index -1 would be the last slot
        # Every filled slot becomes one older. From the drawn slot on, the sums then lose its age and the one that it
        # has just been given. The placeholder of an empty buffer was given none: its `filled` is 0.
        lost = jnp.where(index >= slot, age + growth * filled[slot], 0)
        return cumulative + growth * n_filled_up_to - lost, slot

    _, slots = jax.lax.scan(draw, jnp.cumsum(buffer.ages >> shift, dtype=jnp.int32), draws)
    # Exact, whatever the unit of the sums.
    ages = aged(buffer.ages, buffer.filled, slots, jnp.ones(n, bool))
    return dataclasses.replace(buffer, ages=ages), slots


def _sample_by_score(key: jax.Array, settings: ReplaySettings, buffer: LevelBuffer, n: int) -> jax.Array:
    """i32[n], slots drawn by the part of the weights that comes from the score; slot 0 from an empty buffer."""
    order, powers = highest_first(buffer.scores), score_powers(buffer.scores, settings.temperature)
    # Without any age, all of the weight comes from the score.
    no_age = jnp.zeros_like(buffer.ages)
    chances, _ = weight_parts(settings, powers, ranks_of(order), count_filled(buffer), no_age, jnp.float32(0))
    # The weights fall with the scores: one sort serves both.
    return draw_in_order(key, chances, order, n)

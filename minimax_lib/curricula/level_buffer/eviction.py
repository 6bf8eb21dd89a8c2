"""The second part of an insertion: the rows that come to a full buffer, one by one."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.curricula.level_buffer.ages import in_levels, sum_in_units, unit_shift
from minimax_lib.curricula.level_buffer.placement import Candidates, Placement
from minimax_lib.curricula.level_buffer.replay_weights import highest_first, merits_of, ranks_of, weight_parts
from minimax_lib.curricula.level_buffer.settings import ReplaySettings


class _Contest(struct.PyTreeNode):
    """A full buffer, and the terms of its weights.

    The terms are carried from one iteration to the next, and only added up where the sums are compared. If a compiler
    computed a product twice, it might round it in two ways: by itself, and as part of a fused multiply-add. Then no
    slot would have the lowest weight.
    """

    placed: Placement
    row: jax.Array  # i32[], the next row to be placed; at least B if none is left
    ranks: jax.Array  # i32[C]
    total_age: jax.Array  # i32[], in units of 2**shift levels
    shift: jax.Array  # i32[]
    score_parts: jax.Array  # f32[C]
    age_parts: jax.Array  # f32[C]


def place_by_eviction(settings: ReplaySettings, batch: Candidates, placed: Placement, row: jax.Array) -> Placement:
    """The full buffer after the rows from `row` on; as it was if `row` is B.

    A row without a home takes the slot with the lowest weight, if it is new and scores at least as high as the level
    there.
    """
    ranks = ranks_of(highest_first(placed.scores))  # the only sort: after it, the ranks are moved
    shift = unit_shift(placed.ages, jnp.int32(len(ranks)))  # no slot becomes older from here on
    contest = _contest(settings, placed, row, ranks, sum_in_units(placed.ages, shift), shift)

    def unfinished(contest: _Contest) -> jax.Array:
        return contest.row < len(batch.scores)

    # One iteration for each row that changes the buffer, not for each row. From one change to the next the weights stay
    # the same, and so does the slot that would be evicted: new levels that score too low are skipped all at once.
    def step(contest: _Contest) -> _Contest:
        victim = _lightest(contest)
        return _write(settings, batch, contest, _next_row(batch, contest, victim), victim)

    return jax.lax.while_loop(unfinished, step, contest).placed


def _contest(
    settings: ReplaySettings,
    placed: Placement,
    row: jax.Array,
    ranks: jax.Array,
    total_age: jax.Array,
    shift: jax.Array,
) -> _Contest:
    """The contest with the terms of its weights worked out."""
    # All slots are filled, since a row was left without a free one. If no row was, the loop never looks at this.
    n_filled = jnp.int32(len(ranks))
    # The merits' unit is the highest score in the buffer now, not that of a row to come: at a low temperature all
    # merits could be 0 next to it. Where the prioritisation reads no merits, the compiler removes them.
    merits = merits_of(settings, placed.scores)
    total_levels = in_levels(total_age, shift)
    score_parts, age_parts = weight_parts(settings, merits, ranks, n_filled, placed.ages, total_levels)
    return _Contest(
        placed=placed,
        row=row,
        ranks=ranks,
        total_age=total_age,
        shift=shift,
        score_parts=score_parts,
        age_parts=age_parts,
    )


def _lightest(contest: _Contest) -> jax.Array:
    """i32[], the slot with the lowest weight. Ties: the smaller share from the score, then the lower slot."""
    capacity = len(contest.ranks)
    lowest = jnp.ones(capacity, bool)
    # Next to a large age part, a small score part can be rounded away in the sum. So slots with equal sums are compared
    # by their score parts alone.
    for weight in (contest.score_parts + contest.age_parts, contest.score_parts):
        # Read as integers, floats keep their order, as none of these is negative. On a CPU the minimum of integers is
        # found faster, and is exact: compared as floats, those below the smallest normal float all count as 0.
        bits = jax.lax.bitcast_convert_type(weight, jnp.int32)
        lowest &= bits == jnp.where(lowest, bits, np.iinfo(np.int32).max).min()
    return jnp.where(lowest, jnp.arange(capacity, dtype=jnp.int32), capacity).min()


def _next_row(batch: Candidates, contest: _Contest, victim: jax.Array) -> jax.Array:
    """i32[], the first row left that changes anything: an update, or a new level that beats `victim`; B if none."""
    placed, n = contest.placed, len(batch.scores)
    index = jnp.arange(n, dtype=jnp.int32)
    # `>=`, not `>`: of two equal scores, the newer level is kept. A replayed row never takes a slot: if it has no
    # home, its level was evicted (or was the placeholder of an empty buffer), and its update is lost.
    takes = batch.is_new & (batch.scores >= placed.scores[victim])
    changes = (batch.scores > -jnp.inf) & ((placed.homes >= 0) | takes) & (index >= contest.row)
    return jnp.where(changes, index, n).min()


def _write(
    settings: ReplaySettings, batch: Candidates, contest: _Contest, row: jax.Array, victim: jax.Array
) -> _Contest:
    """`contest` after `row` has been written to its home, or over `victim` if it has none. Row B writes nothing."""
    # For row B, indices are clamped, so that the values are those of another row. They are never written: `target` is
    # past the last slot and `takes` is false. The ranks and the total age become nonsense, but the loop ends here.
    placed, is_row = contest.placed, row < len(batch.scores)
    takes = is_row & (placed.homes[row] < 0)
    slot = jnp.where(takes, victim, placed.homes[row])
    age = placed.ages[slot]
    new_age = jnp.where(batch.is_new[row], 0, age)
    # The best return belongs to the level, not to the slot: a level that takes over does not inherit it.
    best = jnp.where(takes, -jnp.inf, placed.best_returns[slot])
    target = jnp.where(is_row, slot, len(contest.ranks))

    def write(array: jax.Array, value: jax.Array) -> jax.Array:
        return array.at[target].set(value, mode="drop")

    # All rows of the evicted level lose their home, so that no later update of it is written to the new level. All
    # rows of the new level get the slot as theirs. No row is both: until now, none of these had a home.
    evicted = takes & (placed.homes == slot)
    same = takes & batch.is_new & (batch.groups == batch.groups[row])
    after = Placement(
        scores=write(placed.scores, batch.scores[row]),
        best_returns=write(placed.best_returns, jnp.maximum(best, batch.returns[row])),
        ages=write(placed.ages, new_age),
        writers=write(placed.writers, jnp.where(takes, row, placed.writers[slot])),
        homes=jnp.where(same, slot, jnp.where(evicted, -1, placed.homes)),
    )
    ranks = _moved(contest.ranks, placed.scores, slot, batch.scores[row])
    total_age = contest.total_age + (new_age >> contest.shift) - (age >> contest.shift)
    return _contest(settings, after, row + 1, ranks, total_age, contest.shift)


def _moved(ranks: jax.Array, scores: jax.Array, slot: jax.Array, score: jax.Array) -> jax.Array:
    """i32[C], the ranks after the score of `slot` has become `score`; `scores` are those before."""
    # One score has changed, so no sort is needed. The new rank is one more than the number of slots ahead, in the order
    # of `highest_first`. The slots between the old rank and the new one move up or down by one to fill the gap.
    index = jnp.arange(len(ranks), dtype=jnp.int32)
    ahead = ((scores > score) | ((scores == score) & (index < slot))) & (index != slot)
    old, new = ranks[slot], 1 + ahead.sum(dtype=jnp.int32)
    between = (ranks >= jnp.minimum(old, new)) & (ranks <= jnp.maximum(old, new))
    return (ranks + jnp.where(between, jnp.sign(old - new), 0)).at[slot].set(new)

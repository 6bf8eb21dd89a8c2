"""The insertion of a scored batch.

The duplicates are found first. Then the rows are placed: those before the first one that finds no free slot all at
once, the others one by one. Last, the levels of the rows that stay are written.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer, ReplaySettings, fingerprint
from minimax_lib.curricula.level_buffer.weights import in_levels, saturated, sum_in_units, unit_shift, weight_parts
from minimax_lib.envs.base import Level
from minimax_lib.envs.family import whole_level
from minimax_lib.priorities import highest_first, ranks_of, score_powers

# ----------------------------------------------------------------------------------------------------------- duplicates


class LocatedBatch(struct.PyTreeNode):
    """A batch of B levels, and where in the buffer they are."""

    levels: Level  # [B, ...]
    is_new: jax.Array  # bool[B], not drawn from the buffer
    homes: jax.Array  # i32[B], the slot that holds the level; -1 if none
    groups: jax.Array  # i32[B], the same for new rows that are equal; at least C for rows without a home
    fingerprints: jax.Array  # u32[B, 2]
    begun: jax.Array | None = None  # bool[B], the level has been played; None: all have


def locate(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    levels: Level,
    slots: jax.Array,
    identity: Callable[[Level], Any] = whole_level,
) -> LocatedBatch:
    """The batch `levels` [B, ...] with its duplicates found; row i was drawn from slot `slots[i]` (i32[B], -1: new).

    Two levels are equal if `identity(level)`, a pytree, is equal. Without `settings.unique`, no two are taken as equal.
    """
    capacity, n = len(buffer.filled), len(slots)
    is_new = slots < 0
    # A row drawn from an empty buffer is a placeholder. It gets no home, and so it is never inserted.
    homes = jnp.where(~is_new & buffer.filled[slots], slots, -1)
    fingerprints = jax.vmap(lambda level: fingerprint(identity(level)))(levels)
    # LocatedBatch are counted on from the C slots, so that the number of a row is never that of a slot.
    groups = capacity + jnp.arange(n, dtype=jnp.int32)
    if settings.unique:
        # Slots stand before rows: if any slot holds the level, the first equal element is a slot. Replayed rows are
        # left out, since the slots that they were drawn from are there.
        everything = jnp.concatenate([buffer.fingerprints, fingerprints])
        first = _first_equal(everything, jnp.concatenate([buffer.filled, is_new]))[capacity:]
        homes = jnp.where(is_new & (first < capacity), first, homes)
        # Replayed copies of a level do not join the group of new ones. If the level is evicted and a new copy brings
        # it back, the updates of the old copies stay lost, by the rule of `insert`.
        groups = jnp.where(is_new, first, groups)
    return LocatedBatch(levels=levels, is_new=is_new, homes=homes, groups=groups, fingerprints=fingerprints)


def _first_equal(fingerprints: jax.Array, valid: jax.Array) -> jax.Array:
    """i32[N], the index of the first valid element with the same fingerprint; of no use where not `valid`."""
    index = jnp.arange(len(valid), dtype=jnp.int32)
    # A sort puts equal elements side by side. Comparing all pairs was hardly faster for batches of 32 levels, and far
    # slower for 2,048 (docs/speed.md).
    # `~valid` is the first key, so that no invalid element stands among valid ones. The sort is stable and `index` is
    # only carried along: among equals, the lowest index comes first.
    columns = (~valid, fingerprints[:, 0], fingerprints[:, 1], index)
    *sorted_keys, order = jax.lax.sort(columns, num_keys=3, is_stable=True)
    differs = jnp.stack([key[1:] != key[:-1] for key in sorted_keys]).any(axis=0)
    starts = jnp.concatenate([jnp.ones(1, bool), differs])
    # The latest start up to a place is where the run of equals around it begins.
    runs = jax.lax.cummax(jnp.where(starts, index, 0))
    return jnp.zeros_like(index).at[order].set(order[runs], unique_indices=True)


def homes_of(buffer: LevelBuffer, levels: Level, identity: Callable[[Level], Any] = whole_level) -> jax.Array:
    """i32[B], the slot that holds each of `levels` [B, ...]; -1 if none does, the first if several do."""
    prints = jax.vmap(lambda level: fingerprint(identity(level)))(levels)
    same = (buffer.fingerprints[None] == prints[:, None]).all(axis=2) & buffer.filled[None]
    return jnp.where(same.any(axis=1), jnp.argmax(same, axis=1).astype(jnp.int32), -1)


def best_returns(buffer: LevelBuffer, rows: LocatedBatch, returns: jax.Array) -> jax.Array:
    """f32[B], the highest return ever reached on the level of each row, in this batch or before.

    `returns` is the best of each row's rollout (-inf where no episode finished). Copies of a level share the highest.
    """
    # A level that no slot holds is known by its group. Groups are numbered from C on, hence the B entries more.
    keys = jnp.where(rows.homes >= 0, rows.homes, rows.groups)
    known = jnp.concatenate([buffer.best_returns, jnp.full_like(returns, -jnp.inf)])
    return known.at[keys].max(returns)[keys]


# ------------------------------------------------------------------------------------------------------------ insertion


class Candidates(struct.PyTreeNode):
    """What decides where the B rows of a batch go."""

    is_new: jax.Array  # bool[B], not drawn from the buffer
    groups: jax.Array  # i32[B], the same for new rows that are equal
    scores: jax.Array  # f32[B], -inf where the row is passed over
    returns: jax.Array  # f32[B]


class Placement(struct.PyTreeNode):
    """The buffer in the middle of an insertion, without what is only written at its end."""

    scores: jax.Array  # f32[C]
    best_returns: jax.Array  # f32[C]
    ages: jax.Array  # i32[C]
    writers: jax.Array  # i32[C], the row whose level the slot holds now; -1 where it holds the level it had
    homes: jax.Array  # i32[B], the slot that holds the level of the row; -1 if none


def insert(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    rows: LocatedBatch,
    scores: jax.Array,
    returns: jax.Array,
    n_mutations: jax.Array,
    ancestors: Any = (),
) -> LevelBuffer:
    """The buffer after the rows of a batch, as if they came one after another.

    `scores`, `returns`, `n_mutations` and `ancestors` are [B]. `returns` are those of `best_returns`, or of this batch
    alone.

    First, all filled slots become older by the number of new rows that have been played. Then, for each row:
    - If its score is not finite (no episode finished), it is passed over.
    - If it was drawn from a slot, its score replaces the score of that slot. If the slot has been given to another
      level earlier in the batch, the row is passed over.
    - If it is new and equal to a level in the buffer, its score replaces the score there, and the age becomes 0.
    - If it is new and there is a free slot, it takes the first one.
    - If it is new and the buffer is full, it replaces the level in the slot with the lowest weight, provided that it
      scores at least as high. Of equal weights, the one with the smaller share from the score is the lowest; of these,
      the one with the lowest score; of these, the one in the lower slot.
    When a row is written, the best return of its slot becomes the maximum of what it was and the row's `returns`. Where
    the row takes the slot for a new level, it becomes the row's `returns`.
    """
    played = rows.is_new if rows.begun is None else rows.is_new & rows.begun
    aged = jnp.where(buffer.filled, buffer.ages + played.sum(dtype=jnp.int32), 0)
    # NaN and +inf become -inf too: from here on, a row is passed over if and only if its score is -inf.
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    batch = Candidates(is_new=rows.is_new, groups=rows.groups, scores=scores, returns=returns)
    placed, row = place_freely(dataclasses.replace(buffer, ages=saturated(aged)), batch, rows.homes)
    placed = place_by_eviction(settings, batch, placed, row)
    return _with_levels(buffer, rows, placed, n_mutations, ancestors)


def _with_levels(
    buffer: LevelBuffer, rows: LocatedBatch, placed: Placement, n_mutations: jax.Array, ancestors: Any
) -> LevelBuffer:
    """The buffer after the rows have been `placed`, with the levels of those that stay."""
    # Levels are large, so they are written only here, when it is known which ones stay. A row may have a home and not
    # be its writer: the slot held the level before, or an earlier copy brought it in.
    index = jnp.arange(len(rows.is_new), dtype=jnp.int32)
    written = (placed.homes >= 0) & (placed.writers[placed.homes] == index)
    # The other rows point past the last slot, where writes are dropped, and each to its own place:
    # `unique_indices` promises that no two indices are equal.
    targets = jnp.where(written, placed.homes, len(buffer.filled) + index)

    def write(old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[targets].set(new, mode="drop", unique_indices=True)

    return LevelBuffer(
        levels=jax.tree.map(write, buffer.levels, rows.levels),
        scores=placed.scores,
        best_returns=placed.best_returns,
        n_mutations=write(buffer.n_mutations, n_mutations),
        ages=placed.ages,
        fingerprints=write(buffer.fingerprints, rows.fingerprints),
        filled=write(buffer.filled, jnp.ones_like(written)),
        ancestors=jax.tree.map(write, buffer.ancestors, ancestors),
    )


# ----------------------------------------------------------------------------------------------------------- free slots


def place_freely(buffer: LevelBuffer, batch: Candidates, homes: jax.Array) -> tuple[Placement, jax.Array]:
    """(the buffer after all rows before the first that finds no free slot, i32[] that row, B if there is none).

    `homes` (i32[B]) are the slots that hold the rows' levels already, -1 if none.
    """
    capacity, n = len(buffer.filled), len(homes)
    nowhere = capacity + n  # past the end of every array here: what is written there is dropped
    index = jnp.arange(n, dtype=jnp.int32)
    new_homes = _free_slots(buffer, batch, homes)
    # From this row on, the weights decide, and they change with every row that is written. No row before it needs them.
    end = jnp.where(new_homes == capacity, index, n).min()
    settles = (new_homes >= 0) & (index < end)

    # Copies of a level that has just found a slot are at home there too, also those that come after `end`.
    of_group = jnp.full(nowhere, -1, jnp.int32)
    of_group = of_group.at[jnp.where(settles, batch.groups, nowhere)].set(new_homes, mode="drop")
    homes = jnp.where(batch.is_new & (homes < 0), of_group[batch.groups], homes)
    writes = (index < end) & (batch.scores > -jnp.inf) & (homes >= 0)
    targets = jnp.where(writes, homes, nowhere)
    # Several rows may write to one slot, and the last one must win. A scatter promises no order, and a maximum needs
    # none. So the last row of each slot is found first, and then its score is read.
    nobody = jnp.full(capacity, -1, jnp.int32)
    last = nobody.at[targets].max(index, mode="drop")
    placed = Placement(
        scores=jnp.where(last >= 0, batch.scores[last], buffer.scores),
        best_returns=buffer.best_returns.at[targets].max(batch.returns, mode="drop"),
        # A replayed row leaves the age alone: `sample` has set it.
        ages=buffer.ages.at[jnp.where(batch.is_new, targets, nowhere)].set(0, mode="drop"),
        # Only the first copy of a level brings it in. The others update the slot, which then holds the level already.
        writers=nobody.at[jnp.where(settles, homes, nowhere)].set(index, mode="drop"),
        homes=homes,
    )
    return placed, end


def _free_slots(buffer: LevelBuffer, batch: Candidates, homes: jax.Array) -> jax.Array:
    """i32[B], the free slot that each row takes, C where there are not enough of them; -1 where a row takes none."""
    capacity, n = len(buffer.filled), len(homes)
    index = jnp.arange(n, dtype=jnp.int32)
    settles = batch.is_new & (batch.scores > -jnp.inf) & (homes < 0)
    # Of equal rows, only the first with a known score takes a slot. Those before it are passed over, and those after
    # it update its slot.
    first = jnp.full(capacity + n, n, jnp.int32).at[batch.groups].min(jnp.where(settles, index, n))
    settles &= first[batch.groups] == index
    # The k-th row that takes a slot takes the k-th free one. B rows take B of them at most.
    free = jnp.nonzero(~buffer.filled, size=n, fill_value=capacity)[0].astype(jnp.int32)
    return jnp.where(settles, free[jnp.cumsum(settles) - 1], -1)


# ------------------------------------------------------------------------------------------------------------ evictions


class _Contest(struct.PyTreeNode):
    """A full buffer, and the terms of its weights.

    The terms are carried from one iteration to the next, and only added up where the sums are compared. If a compiler
    computed a product twice, it might round it in two ways: alone, and as part of a fused multiply-add. Then no
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
    # The powers' unit is the highest score in the buffer now, not that of a row to come: at a low temperature all
    # powers could be 0 next to it. Where the prioritisation reads no powers, the compiler removes them.
    powers = score_powers(placed.scores, settings.temperature)
    total_levels = in_levels(total_age, shift)
    score_parts, age_parts = weight_parts(settings, powers, ranks, n_filled, placed.ages, total_levels)
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
    """i32[], the slot with the lowest weight. Ties: the smaller share from the score, the lower score, or slot."""
    capacity = len(contest.ranks)
    lowest = jnp.ones(capacity, bool)
    # Next to a large age part, a small score part can be rounded away in the sum. So slots with equal sums are compared
    # by their score parts alone. Many of these are equal where scores are not: below 0 ("proportional"), behind the
    # highest ("greedy"), or by rank at a temperature so high that the powers are rounded to the same number.
    for value in (contest.score_parts + contest.age_parts, contest.score_parts, contest.placed.scores):
        # On a CPU the minimum of integers is found faster, and is exact: compared as floats, those below the smallest
        # normal float all count as 0.
        number = _in_order(value)
        lowest &= number == jnp.where(lowest, number, np.iinfo(np.int32).max).min()
    return jnp.where(lowest, jnp.arange(capacity, dtype=jnp.int32), capacity).min()


def _in_order(values: jax.Array) -> jax.Array:
    """i32[C], integers in the order of `values` (f32[C])."""
    # Read as integers, floats keep their order from 0 on. Below 0 it is turned round; -0.0 is the least integer.
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    return jnp.where(bits < 0, np.iinfo(np.int32).min - bits, bits)


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

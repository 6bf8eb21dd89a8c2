"""The level buffer: which levels are kept and how often each is replayed (Jiang et al. 2021a, 2021b).

Pure functions on a `LevelBuffer` of C slots. What they return is what a rule gives that takes one level after another.
What they cost is not: scores are sorted once a batch, the rows up to the first eviction are written all together, and
only rows that change a full buffer are taken one by one, each with a few passes over C integers.

    buffer, slots = sample(key, settings, buffer, n)                   draw levels to replay
    rows = locate(settings, buffer, levels, slots)                     find where a batch's levels are already
    best = best_returns(buffer, rows, returns)                         highest return ever, for `max_mc`
    buffer = insert(settings, buffer, rows, scores, best, n_mutations) keep what is worth keeping
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Level
from minimax_lib.envs.family import whole_level
from minimax_lib.registry import unknown_name

MAX_TOTAL_AGE = 2**30  # ages saturate where their sum could reach this: after 268,435 levels at C = 4000


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """How levels are kept and replayed; the defaults are those of published robust PLR (Jiang et al. 2023, table 6)."""

    capacity: int = 4000
    """Slots of the level buffer."""
    prioritisation: Literal["rank", "proportional", "greedy"] = "rank"
    """What the replay weight grows with: the rank of the score, the score itself, or being the highest score."""
    temperature: float = 0.3
    """Weights are raised to the power 1 / temperature: low values favour the highest scores more."""
    staleness: float = 0.3
    """Share of the replay weight that goes to levels in proportion to how long ago they were played."""
    replay_prob: float = 0.5
    """Probability of replaying levels rather than drawing new ones, once `min_fill` is reached."""
    schedule: Literal["fixed", "proportionate"] = "fixed"
    """Replay with probability `replay_prob`, or with the share of slots that are filled (finite training sets)."""
    min_fill: float = 0.5
    """Share of slots that must be filled before anything is replayed."""
    unique: bool = True
    """A new level equal to one in the buffer updates that slot instead of taking another."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}: it must be at least 1")
        if self.prioritisation not in STRENGTHS:
            raise unknown_name("prioritisation", self.prioritisation, STRENGTHS)
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        if not (self.temperature > 0 and np.isfinite(self.temperature)):
            raise ValueError(f"temperature is {self.temperature}: it must be positive and finite")
        for name in ("staleness", "replay_prob", "min_fill"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")


class LevelBuffer(struct.PyTreeNode):
    """C slots. A slot that is not filled holds a placeholder."""

    levels: Level  # [C, ...]
    scores: jax.Array  # f32[C], -inf where not filled
    best_returns: jax.Array  # f32[C], the highest undiscounted return ever reached; -inf where not filled
    n_mutations: jax.Array  # i32[C], mutations along the level's lineage
    ages: jax.Array  # i32[C], levels sampled since this one was; 0 where not filled
    fingerprints: jax.Array  # u32[C, 2], equal where levels are
    filled: jax.Array  # bool[C]


def init(level: Level, capacity: int) -> LevelBuffer:
    """An empty buffer for levels like `level`, which is the placeholder."""
    return LevelBuffer(
        levels=jax.tree.map(lambda x: jnp.broadcast_to(x, (capacity, *jnp.shape(x))), level),
        scores=jnp.full(capacity, -jnp.inf, jnp.float32),
        best_returns=jnp.full(capacity, -jnp.inf, jnp.float32),
        n_mutations=jnp.zeros(capacity, jnp.int32),
        ages=jnp.zeros(capacity, jnp.int32),
        fingerprints=jnp.zeros((capacity, 2), jnp.uint32),
        filled=jnp.zeros(capacity, bool),
    )


def levels_at(buffer: LevelBuffer, slots: jax.Array) -> Level:
    """The levels in `slots` (i32[n]), [n, ...]."""
    return jax.tree.map(lambda x: x[slots], buffer.levels)


# ---------------------------------------------------------------------------------------------- replay weights


def by_rank(merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float) -> tuple[Any, Any]:
    """(1 / rank) ** (1 / temperature). A strength too small for a float still keeps its rank's place."""
    capacity = len(ranks)
    table = np.arange(1.0, capacity + 1.0) ** (-1.0 / temperature)
    floor = np.arange(capacity, 0.0, -1.0) * 1e-30
    totals = np.concatenate([[0.0], np.cumsum(table)])
    strengths = jnp.asarray(np.maximum(table, floor), jnp.float32)[ranks - 1]
    return strengths, jnp.asarray(totals, jnp.float32)[n_filled]


def by_score(merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float) -> tuple[Any, Any]:
    """max(score, 0) ** (1 / temperature), in any unit: the merit."""
    return merits, merits.sum()


def by_best(merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float) -> tuple[Any, Any]:
    """1 for the highest score, 0 for the others."""
    return (ranks == 1).astype(jnp.float32), jnp.float32(1)


STRENGTHS: dict[str, Callable] = {"rank": by_rank, "proportional": by_score, "greedy": by_best}
SCHEDULES = ("fixed", "proportionate")


def weights(settings: ReplaySettings, buffer: LevelBuffer) -> jax.Array:
    """f32[C], the probability that each slot is the next to be replayed; all 0 in an empty buffer.

    (1 - staleness) P_score + staleness P_stale (Jiang et al. 2021a, eq. 1 to 3).
    """
    merits, ranks = _merits(settings, buffer.scores), _ranks(highest_first(buffer.scores))
    total_age = buffer.ages.sum(dtype=jnp.int32)
    score_parts, age_parts = _weight_parts(settings, merits, ranks, _n_filled(buffer), buffer.ages, total_age)
    return score_parts + age_parts


def _weight_parts(
    settings: ReplaySettings,
    merits: jax.Array,
    ranks: jax.Array,
    n_filled: jax.Array,
    ages: jax.Array,
    total_age: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The two terms of the replay weights, f32[C] each: from the score and from the age."""
    filled = ranks <= n_filled
    strengths, total = STRENGTHS[settings.prioritisation](merits, ranks, n_filled, settings.temperature)
    equal = total <= 0  # no slot has any strength: all are alike
    strengths = jnp.where(filled, jnp.where(equal, 1.0, strengths), 0.0)
    total = jnp.where(equal, jnp.maximum(n_filled, 1).astype(jnp.float32), total)
    share = jnp.where(total_age > 0, jnp.float32(settings.staleness), 0.0)
    age_scale = share / jnp.maximum(total_age, 1).astype(jnp.float32)
    return strengths * ((1.0 - share) / total), ages.astype(jnp.float32) * age_scale


def _merits(settings: ReplaySettings, scores: jax.Array, top: jax.Array | None = None) -> jax.Array:
    """max(score, 0) ** (1 / temperature), in units of the score `top` (by default the highest), lest it overflow."""
    top = scores.max() if top is None else top
    relative = jnp.maximum(scores, 0.0) / jnp.maximum(top, np.finfo(np.float32).tiny)
    return relative ** (1.0 / settings.temperature)


def _n_filled(buffer: LevelBuffer) -> jax.Array:
    return buffer.filled.sum(dtype=jnp.int32)


def highest_first(scores: jax.Array) -> jax.Array:
    """i32[C], the slots from the highest score to the lowest; the lower slot first on ties, free slots last."""
    return jnp.argsort(-scores).astype(jnp.int32)


def _ranks(order: jax.Array) -> jax.Array:
    """i32[C], the rank of each slot, from 1."""
    places = jnp.arange(1, len(order) + 1, dtype=jnp.int32)
    return jnp.zeros_like(order).at[order].set(places, unique_indices=True)


def replay_probability(settings: ReplaySettings, buffer: LevelBuffer) -> jax.Array:
    """f32[], the probability with which the next batch should be a replayed one.

    It differs between seeds and devices: compare it with a common uniform number, then ask `axes.everywhere_all`.
    """
    fill = buffer.filled.mean(dtype=jnp.float32)
    probability = jnp.float32(settings.replay_prob) if settings.schedule == "fixed" else fill
    return jnp.where((fill >= settings.min_fill) & (fill > 0), probability, 0.0)


# ---------------------------------------------------------------------------------------------------- sampling


def sample(key: jax.Array, settings: ReplaySettings, buffer: LevelBuffer, n: int) -> tuple[LevelBuffer, jax.Array]:
    """(the buffer with its ages moved on, i32[n] slots): levels drawn one after another with replacement.

    Every draw ages all other filled slots by one and sets the drawn one to 0, and the next draw sees that. An empty
    buffer gives slot 0, a placeholder, which `insert` ignores.
    """
    k_scores, k_which, k_ages = jax.random.split(key, 3)
    candidates = _sample_by_score(k_scores, settings, buffer, n)
    stale = jax.random.bernoulli(k_which, settings.staleness, (n,))
    draws = (candidates, stale, jax.random.uniform(k_ages, (n,)))
    filled = buffer.filled.astype(jnp.int32)
    n_before, index = jnp.cumsum(filled, dtype=jnp.int32), jnp.arange(len(filled), dtype=jnp.int32)

    def draw(cumulative: jax.Array, one: tuple) -> tuple[jax.Array, jax.Array]:
        """`cumulative`: i32[C], the ages of the slots up to each one, summed."""
        candidate, stale, uniform = one
        total = cumulative[-1]
        unit = jnp.minimum((uniform * total.astype(jnp.float32)).astype(jnp.int32), total - 1)
        aged = jnp.sum(cumulative <= unit, dtype=jnp.int32)
        slot = jnp.where(stale & (total > 0), aged, candidate)
        age = cumulative[slot] - jnp.where(slot > 0, cumulative[slot - 1], 0)
        return cumulative + n_before - jnp.where(index >= slot, age + filled[slot], 0), slot

    cumulative, slots = jax.lax.scan(draw, jnp.cumsum(buffer.ages, dtype=jnp.int32), draws)
    return dataclasses.replace(buffer, ages=_saturated(jnp.diff(cumulative, prepend=0))), slots


def _sample_by_score(key: jax.Array, settings: ReplaySettings, buffer: LevelBuffer, n: int) -> jax.Array:
    """i32[n], slots drawn by the part of the weights that has nothing to do with age."""
    order, merits = highest_first(buffer.scores), _merits(settings, buffer.scores)
    no_age = jnp.zeros_like(buffer.ages)
    chances, _ = _weight_parts(settings, merits, _ranks(order), _n_filled(buffer), no_age, no_age[0])
    chances = chances[order]
    cumulative = jnp.cumsum(chances)
    places = jnp.searchsorted(cumulative, jax.random.uniform(key, (n,)) * cumulative[-1], side="right")
    last = jnp.maximum((chances > 0).sum() - 1, 0)  # rounding must not lead to a slot without any weight
    return order[jnp.minimum(places, last)]


def _saturated(ages: jax.Array) -> jax.Array:
    return jnp.minimum(ages, MAX_TOTAL_AGE // len(ages))


# --------------------------------------------------------------------------------------------------- insertion


def fingerprint(identity: Any) -> jax.Array:
    """u32[2], a hash of all leaves: 64 bits, so that a billion different levels most likely all differ.

    Two multilinear hashes (random odd multipliers modulo 2**32) of words that a bijection has scrambled.
    """
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(identity)])
    salt, first, second = _scrambled(np.arange(3 * len(words), dtype=np.uint32)).reshape(3, -1)
    scrambled = _scrambled(words ^ salt)
    return jnp.stack([jnp.sum(scrambled * (m | 1), dtype=jnp.uint32) for m in (first, second)])


def _words(leaf: jax.Array) -> jax.Array:
    """u32[n], a word an element (of 32 bits at most)."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        leaf = jax.lax.bitcast_convert_type(leaf.astype(jnp.float32) + 0.0, jnp.uint32)  # -0.0 and 0.0 are equal
    return leaf.astype(jnp.uint32).reshape(-1)


def _scrambled(words: Any) -> Any:
    """The finaliser of MurmurHash3 (Appleby 2011), a bijection of 32-bit words."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)


class Rows(struct.PyTreeNode):
    """A batch of B levels, and where in the buffer they are."""

    levels: Level  # [B, ...]
    is_new: jax.Array  # bool[B], not drawn from the buffer
    homes: jax.Array  # i32[B], the slot that holds the level; -1 if none
    groups: jax.Array  # i32[B], the same for new rows that are equal; at least C for rows without a home
    fingerprints: jax.Array  # u32[B, 2]


def locate(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    levels: Level,
    slots: jax.Array,
    identity: Callable[[Level], Any] = whole_level,
) -> Rows:
    """The batch `levels` [B, ...], drawn from `slots` (i32[B], -1 where new), with the duplicates found.

    Two levels are equal where `identity(level)`, a pytree, is; `settings.unique` switches the search for them off.
    """
    capacity, n = len(buffer.filled), len(slots)
    is_new = slots < 0
    homes = jnp.where(~is_new & buffer.filled[slots], slots, -1)
    fingerprints = jax.vmap(lambda level: fingerprint(identity(level)))(levels)
    groups = capacity + jnp.arange(n, dtype=jnp.int32)
    if settings.unique:
        everything = jnp.concatenate([buffer.fingerprints, fingerprints])
        first = _first_equal(everything, jnp.concatenate([buffer.filled, is_new]))[capacity:]
        homes = jnp.where(is_new & (first < capacity), first, homes)
        groups = jnp.where(is_new, first, groups)
    return Rows(levels=levels, is_new=is_new, homes=homes, groups=groups, fingerprints=fingerprints)


def _first_equal(fingerprints: jax.Array, valid: jax.Array) -> jax.Array:
    """i32[N], the index of the first valid element with the same fingerprint."""
    index = jnp.arange(len(valid), dtype=jnp.int32)
    keys = (~valid, fingerprints[:, 0], fingerprints[:, 1], index)
    *sorted_keys, order = jax.lax.sort(keys, num_keys=3, is_stable=True)
    differs = jnp.stack([key[1:] != key[:-1] for key in sorted_keys]).any(axis=0)
    starts = jnp.concatenate([jnp.ones(1, bool), differs])
    runs = jax.lax.cummax(jnp.where(starts, index, 0))
    return jnp.zeros_like(index).at[order].set(order[runs], unique_indices=True)


def best_returns(buffer: LevelBuffer, rows: Rows, returns: jax.Array) -> jax.Array:
    """f32[B], the highest return ever reached on the level of each row, in this batch or before.

    `returns` is the best of each row's rollout (-inf where no episode finished); copies of a level share theirs.
    """
    keys = jnp.where(rows.homes >= 0, rows.homes, rows.groups)
    known = jnp.concatenate([buffer.best_returns, jnp.full_like(returns, -jnp.inf)])
    return known.at[keys].max(returns)[keys]


class _Batch(struct.PyTreeNode):
    """What decides where rows go, [B]."""

    is_new: jax.Array
    groups: jax.Array
    scores: jax.Array  # -inf where the row is passed over
    returns: jax.Array
    top: jax.Array  # f32[], the highest score of the batch and the buffer


class _Placement(struct.PyTreeNode):
    """The buffer in the middle of an insertion, but for what is only written at the end."""

    scores: jax.Array  # f32[C]
    best_returns: jax.Array  # f32[C]
    ages: jax.Array  # i32[C]
    writers: jax.Array  # i32[C], the row whose level the slot holds now; -1 where it holds the level it had
    homes: jax.Array  # i32[B], the slot that holds the level of the row; -1 if none


class _Contest(struct.PyTreeNode):
    """A full buffer, and the terms of its weights.

    The terms are carried from one row to the next, not computed where their sums are compared: a compiler may round a
    product in two ways (fused into the sum or not) if it computes it twice, and then no slot has the lowest weight.
    """

    placed: _Placement
    row: jax.Array  # i32[], the next row to be placed; at least B if none is left
    merits: jax.Array  # f32[C]
    ranks: jax.Array  # i32[C]
    total_age: jax.Array  # i32[]
    score_parts: jax.Array  # f32[C]
    age_parts: jax.Array  # f32[C]


def insert(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    rows: Rows,
    scores: jax.Array,
    returns: jax.Array,
    n_mutations: jax.Array,
) -> LevelBuffer:
    """The buffer after the rows of a batch, one after another.

    First, all filled slots age by the number of new rows. Then a row (all arguments are [B])
    - with a score that is not finite (no episode finished) is passed over;
    - drawn from a slot overwrites that slot's score, unless the slot has been given away earlier in the batch;
    - new, and equal to a level that the buffer holds, does the same there, and the slot's age becomes 0;
    - new takes the first free slot, or replaces the slot with the lowest weight if it scores at least as high;
      of equal weights, the one with the smaller share from its score is the lowest, then the first one.
    `returns` go into the running maximum of the slot that is written.
    """
    aged = jnp.where(buffer.filled, buffer.ages + rows.is_new.sum(dtype=jnp.int32), 0)
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    top = jnp.maximum(scores.max(), buffer.scores.max())
    batch = _Batch(is_new=rows.is_new, groups=rows.groups, scores=scores, returns=returns, top=top)
    placed, row = _place_freely(dataclasses.replace(buffer, ages=_saturated(aged)), batch, rows.homes)
    placed = _place_by_eviction(settings, batch, placed, row)

    index = jnp.arange(len(scores), dtype=jnp.int32)
    written = (placed.homes >= 0) & (placed.writers[placed.homes] == index)
    targets = jnp.where(written, placed.homes, len(buffer.filled) + index)  # out of bounds: not written

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
    )


def _place_freely(buffer: LevelBuffer, batch: _Batch, homes: jax.Array) -> tuple[_Placement, jax.Array]:
    """All rows before the first one that finds no free slot, at once, and that row (B if there is none).

    None of these rows depends on the weights.
    """
    capacity, n = len(buffer.filled), len(homes)
    nowhere = capacity + n
    index = jnp.arange(n, dtype=jnp.int32)
    new_homes = _free_slots(buffer, batch, homes)
    end = jnp.where(new_homes == capacity, index, n).min()
    founds = (new_homes >= 0) & (index < end)

    of_group = jnp.full(nowhere, -1, jnp.int32)
    of_group = of_group.at[jnp.where(founds, batch.groups, nowhere)].set(new_homes, mode="drop")
    homes = jnp.where(batch.is_new & (homes < 0), of_group[batch.groups], homes)
    writes = (index < end) & (batch.scores > -jnp.inf) & (homes >= 0)
    targets = jnp.where(writes, homes, nowhere)
    nobody = jnp.full(capacity, -1, jnp.int32)
    last = nobody.at[targets].max(index, mode="drop")
    placed = _Placement(
        scores=jnp.where(last >= 0, batch.scores[last], buffer.scores),
        best_returns=buffer.best_returns.at[targets].max(batch.returns, mode="drop"),
        ages=buffer.ages.at[jnp.where(batch.is_new, targets, nowhere)].set(0, mode="drop"),
        writers=nobody.at[jnp.where(founds, homes, nowhere)].set(index, mode="drop"),
        homes=homes,
    )
    return placed, end


def _free_slots(buffer: LevelBuffer, batch: _Batch, homes: jax.Array) -> jax.Array:
    """i32[B], the free slot that each row takes, C where there are not enough of them; -1 where a row takes none."""
    capacity, n = len(buffer.filled), len(homes)
    index = jnp.arange(n, dtype=jnp.int32)
    founds = batch.is_new & (batch.scores > -jnp.inf) & (homes < 0)
    first = jnp.full(capacity + n, n, jnp.int32).at[batch.groups].min(jnp.where(founds, index, n))
    founds &= first[batch.groups] == index  # later equal ones follow the first
    free = jnp.nonzero(~buffer.filled, size=n, fill_value=capacity)[0].astype(jnp.int32)
    return jnp.where(founds, free[jnp.cumsum(founds) - 1], -1)


def _place_by_eviction(settings: ReplaySettings, batch: _Batch, placed: _Placement, row: jax.Array) -> _Placement:
    """The rows from `row` on, into a full buffer; one iteration for each row that changes it."""
    ranks, total_age = _ranks(highest_first(placed.scores)), placed.ages.sum(dtype=jnp.int32)
    contest = _contest(settings, placed, row, _merits(settings, placed.scores, batch.top), ranks, total_age)

    def unfinished(contest: _Contest) -> jax.Array:
        return contest.row < len(batch.scores)

    def step(contest: _Contest) -> _Contest:
        victim = _lightest(contest)
        return _write(settings, batch, contest, _next_row(batch, contest, victim), victim)

    return jax.lax.while_loop(unfinished, step, contest).placed


def _contest(
    settings: ReplaySettings,
    placed: _Placement,
    row: jax.Array,
    merits: jax.Array,
    ranks: jax.Array,
    total_age: jax.Array,
) -> _Contest:
    n_filled = jnp.int32(len(ranks))
    score_parts, age_parts = _weight_parts(settings, merits, ranks, n_filled, placed.ages, total_age)
    return _Contest(
        placed=placed,
        row=row,
        merits=merits,
        ranks=ranks,
        total_age=total_age,
        score_parts=score_parts,
        age_parts=age_parts,
    )


def _lightest(contest: _Contest) -> jax.Array:
    """i32[], the slot with the lowest weight; see `insert` for ties."""
    capacity = len(contest.ranks)
    lowest = jnp.ones(capacity, bool)
    for weight in (contest.score_parts + contest.age_parts, contest.score_parts):
        bits = jax.lax.bitcast_convert_type(weight, jnp.int32)  # ordered as the floats, none of which is negative
        lowest &= bits == jnp.where(lowest, bits, np.iinfo(np.int32).max).min()
    return jnp.where(lowest, jnp.arange(capacity, dtype=jnp.int32), capacity).min()


def _next_row(batch: _Batch, contest: _Contest, victim: jax.Array) -> jax.Array:
    """i32[], the first row left that changes anything: an update, or a new level that beats `victim`; B if none."""
    placed, n = contest.placed, len(batch.scores)
    index = jnp.arange(n, dtype=jnp.int32)
    takes = batch.is_new & (batch.scores >= placed.scores[victim])
    changes = (batch.scores > -jnp.inf) & ((placed.homes >= 0) | takes) & (index >= contest.row)
    return jnp.where(changes, index, n).min()


def _write(settings: ReplaySettings, batch: _Batch, contest: _Contest, row: jax.Array, victim: jax.Array) -> _Contest:
    """`contest` after `row` has been written to its home, or over `victim` if it has none. Row B writes nothing."""
    placed, is_row = contest.placed, row < len(batch.scores)
    takes = is_row & (placed.homes[row] < 0)
    slot = jnp.where(takes, victim, placed.homes[row])
    age = placed.ages[slot]
    new_age = jnp.where(batch.is_new[row], 0, age)
    best = jnp.where(takes, -jnp.inf, placed.best_returns[slot])
    target = jnp.where(is_row, slot, len(contest.ranks))

    def write(array: jax.Array, value: jax.Array) -> jax.Array:
        return array.at[target].set(value, mode="drop")

    evicted = takes & (placed.homes == slot)
    same = takes & batch.is_new & (batch.groups == batch.groups[row])
    after = _Placement(
        scores=write(placed.scores, batch.scores[row]),
        best_returns=write(placed.best_returns, jnp.maximum(best, batch.returns[row])),
        ages=write(placed.ages, new_age),
        writers=write(placed.writers, jnp.where(takes, row, placed.writers[slot])),
        homes=jnp.where(same, slot, jnp.where(evicted, -1, placed.homes)),
    )
    merits = write(contest.merits, _merits(settings, batch.scores[row], batch.top))
    ranks = _moved(contest.ranks, placed.scores, slot, batch.scores[row])
    return _contest(settings, after, row + 1, merits, ranks, contest.total_age + new_age - age)


def _moved(ranks: jax.Array, scores: jax.Array, slot: jax.Array, score: jax.Array) -> jax.Array:
    """The ranks after the score of `slot` has become `score`; the slots between its old and new rank make way."""
    index = jnp.arange(len(ranks), dtype=jnp.int32)
    ahead = ((scores > score) | ((scores == score) & (index < slot))) & (index != slot)
    old, new = ranks[slot], 1 + ahead.sum(dtype=jnp.int32)
    between = (ranks >= jnp.minimum(old, new)) & (ranks <= jnp.maximum(old, new))
    return (ranks + jnp.where(between, jnp.sign(old - new), 0)).at[slot].set(new)

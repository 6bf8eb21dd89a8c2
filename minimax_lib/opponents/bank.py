"""The bank: frozen copies of the student on the device, and how the student fared against each of them.

bank = init(params, capacity, window)           slot 0 holds the student as it began
bank = add(bank, params)                        a frozen copy of the student joins
params = parameters_at(bank, slots, live)       what the opponents of a rollout play with
record = book(bank.record, games)               what became of their games
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.registry import unknown_name
from minimax_lib.tasks.rates import check_at_least, check_share

Keep = Literal["oldest", "spread"]
LIVE = -1  # the "slot" of the student as it is now
SCRIPT = -2  # that of the environment's written player (`Environment.bot`)
EMPTY = -1  # the serial of a slot without a copy
WINDOW = 128  # games of each copy that its win rate is taken over (Vinyals et al. 2019, as in Syllabus)
NONE, LOSS, DRAW, WIN = range(4)  # what `outcomes` holds, of the student


class Record(struct.PyTreeNode):
    """What is known of the copies in K slots. Slot s holds the copy number `serial[s]`."""

    serial: jax.Array  # i32[K], EMPTY where there is no copy; the newest copy has n_added - 1
    n_added: jax.Array  # i32[], copies ever
    outcomes: jax.Array  # u8[K, W], a ring of the latest games: NONE, LOSS, DRAW or WIN
    n_games: jax.Array  # i32[K], games ever with this copy; the next one goes to place n_games mod W


class Bank(struct.PyTreeNode):
    """K frozen policies, and what is known of them."""

    params: Any  # [K, ...]; anything in an empty slot
    record: Record


class Games(struct.PyTreeNode):
    """M games, in the order in which they ended. Returns are undiscounted, of the whole episode.

    The student won where its return is the higher one. Equal returns are a draw.
    """

    slot: jax.Array  # i32[M], of the opponent; LIVE: the student played itself; SCRIPT: the written player
    serial: jax.Array  # i32[M], the serial of that slot when the game began
    student_return: jax.Array  # f32[M]
    opponent_return: jax.Array  # f32[M]
    valid: jax.Array  # bool[M], the game has ended


def init(params: Any, capacity: int, window: int = WINDOW, dtype: Any = None) -> Bank:
    """A bank of K = `capacity` slots. Slot 0 holds `params`, the others are empty.

    With a `dtype` (bfloat16), all parameters that are floats are kept in it.
    """
    record = first_record(capacity, window)

    def slots(x: jax.Array) -> jax.Array:
        smaller = dtype is not None and jnp.issubdtype(x.dtype, jnp.floating)
        kept = x.astype(dtype if smaller else x.dtype)
        return jnp.zeros((capacity, *x.shape), kept.dtype).at[0].set(kept)

    return Bank(jax.tree.map(slots, params), record)


def first_record(capacity: int, window: int = WINDOW) -> Record:
    """The record of a new bank: one copy, and no games."""
    check_at_least("capacity", capacity, 1)
    check_at_least("window", window, 1)
    return Record(
        serial=jnp.full(capacity, EMPTY, jnp.int32).at[0].set(0),
        n_added=jnp.ones((), jnp.int32),
        outcomes=jnp.full((capacity, window), NONE, jnp.uint8),
        n_games=jnp.zeros(capacity, jnp.int32),
    )


def add(bank: Bank, params: Any, keep: Keep = "oldest") -> Bank:
    """The bank with a copy of `params`. Once all slots are filled, it takes the place of another copy.

    `keep` says whose. oldest: that of the oldest copy, so the bank holds the latest K. spread: one is taken so that
    the ages stay roughly geometric, see `spread_slot`.
    """
    if keep not in KEEP:
        raise unknown_name("keep", keep, get_args(Keep))
    record = bank.record
    slot = KEEP[keep](record)
    return Bank(
        params=jax.tree.map(lambda old, new: old.at[slot].set(new.astype(old.dtype)), bank.params, params),
        record=Record(
            serial=record.serial.at[slot].set(record.n_added),
            n_added=record.n_added + 1,
            outcomes=record.outcomes.at[slot].set(NONE),
            n_games=record.n_games.at[slot].set(0),
        ),
    )


def oldest_slot(record: Record) -> jax.Array:
    """i32[], the slot of the next copy: slots are filled in order, again and again."""
    return record.n_added % len(record.serial)


def spread_slot(record: Record) -> jax.Array:
    """i32[], the slot of the next copy: once all are filled, one in whose absence the ages are closest to geometric.

    The age of the newest copy is 1, that of the very first n_added. If K > 1, both stay. Of the others, the one goes
    whose two neighbours in age have the lowest ratio of ages; of equal ratios, the youngest. The law: no age is more
    than max(2, n_added^(2 / (K-1))) times the next lower one. The product of all these ratios, K-1 of them, is below
    n_added^2, so the lowest is below n_added^(2 / (K-1)). It is the gap that remains, and gaps shrink as both copies
    grow older. Ages that are exactly geometric would have gaps of n_added^(1 / (K-1)).
    """
    capacity = len(record.serial)
    if capacity == 1:
        return oldest_slot(record)
    by_age = jnp.argsort(-record.serial).astype(jnp.int32)
    old = (record.n_added + 1 - record.serial[by_age]).astype(jnp.float32)
    ages = jnp.concatenate([jnp.ones(1, jnp.float32), old])  # with the next copy, which stays
    thinned = by_age[jnp.argmin(ages[2:] / ages[:-2])]
    return jnp.where(record.n_added < capacity, record.n_added, thinned)


KEEP: dict[str, Callable[[Record], jax.Array]] = {"oldest": oldest_slot, "spread": spread_slot}


def book(record: Record, games: Games) -> Record:
    """The record after `games`. Those that are not valid, or not against a copy in the bank, do not count.

    Nor do games against a copy that has left its slot since. Of more than W games of one slot, the last W count.
    """
    n_slots, window = record.outcomes.shape
    counted = counts(record, games)
    slot = jnp.where(counted, games.slot, n_slots)
    rank, total = ranked(slot, n_slots + 1)
    place = (record.n_games[games.slot] + rank) % window
    # A game that would be overwritten by a later one is left out, so that every place is written once. The others that
    # are left out get their own places, beyond the last.
    kept = counted & (rank >= total[slot] - window)
    beyond = n_slots * window + jnp.arange(len(slot), dtype=jnp.int32)
    place = jnp.where(kept, games.slot * window + place, beyond)
    outcomes = record.outcomes.reshape(-1).at[place].set(outcomes_of(games), mode="drop", unique_indices=True)
    return record.replace(
        outcomes=outcomes.reshape(n_slots, window),
        n_games=record.n_games + total[:n_slots],
    )


def counts(record: Record, games: Games) -> jax.Array:
    """bool[M]: the game has ended, and the copy that it was played against is still in its slot."""
    there = (games.slot >= 0) & (games.slot < len(record.serial))
    return games.valid & there & (games.serial != EMPTY) & (games.serial == record.serial[games.slot])


def ranked(number: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """(i32[M], how many earlier entries equal this one; i32[n], how many equal each number), of i32[M] below n."""
    total = jnp.zeros(n, jnp.int32).at[number].add(1)
    order = jnp.argsort(number, stable=True)
    # Sorted, equal numbers stand side by side in their order; each number begins where the lower ones end.
    begin = jnp.cumsum(total) - total
    rank = jnp.arange(len(number), dtype=jnp.int32) - begin[number[order]]
    return jnp.zeros_like(number).at[order].set(rank, unique_indices=True), total


def outcomes_of(games: Games) -> jax.Array:
    """u8[M]: LOSS, DRAW or WIN of the student."""
    won, lost = (games.student_return > games.opponent_return, games.student_return < games.opponent_return)
    return jnp.where(won, WIN, jnp.where(lost, LOSS, DRAW)).astype(jnp.uint8)


def win_rates(record: Record, draw: float = 0.5) -> tuple[jax.Array, jax.Array]:
    """(f32[K], the student's rate of wins in the window; bool[K], the copy was met). The rate is 0 where it was not.

    A draw counts as `draw` of a win, between 0 and 1.
    """
    check_share("draw", draw)
    wins, draws, games = (
        found.sum(axis=1, dtype=jnp.int32).astype(jnp.float32)
        for found in (record.outcomes == WIN, record.outcomes == DRAW, record.outcomes != NONE)
    )
    return (wins + draw * draws) / jnp.maximum(games, 1.0), games > 0


def filled(record: Record) -> jax.Array:
    """bool[K], the slot holds a copy."""
    return record.serial != EMPTY


def parameters_at(bank: Bank, slots: jax.Array, live: Any) -> Any:
    """The parameters [P, ...] in `slots` (i32[P]), in the types of `live`; where no copy is meant, `live` itself."""
    frozen = slots >= 0

    def gathered(kept: jax.Array, now: jax.Array) -> jax.Array:
        found = kept[jnp.maximum(slots, 0)].astype(now.dtype)
        return jnp.where(frozen.reshape(-1, *(1,) * now.ndim), found, now[None])

    return jax.tree.map(gathered, bank.params, live)

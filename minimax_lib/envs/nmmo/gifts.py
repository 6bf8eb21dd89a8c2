"""Things and gold that players give to each other."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import N_SLOTS, Goods, at_slot, emptied, n_free, picked
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.tables import VISION
from minimax_lib.envs.nmmo.things import NOTHING, stacks


def may_receive(players: Players, to: jax.Array) -> jax.Array:
    """bool[P], whether the one to whom each player gives (i32[P], -1: nobody) is another living player in view."""
    n = len(to)
    is_player = (to >= 0) & (to < n) & (to != jnp.arange(n, dtype=jnp.int32))
    other = jnp.clip(to, 0, n - 1)
    near = jnp.abs(players.position - players.position[other]).max(axis=1) <= VISION
    return is_player & near & players.alive[other] & (players.health[other] > 0)


def given(
    players: Players, goods: Goods, order: tuple[jax.Array, jax.Array], able: jax.Array, tick: jax.Array
) -> tuple[Goods, list[Happened]]:
    """(packs, events) after those who are `able` (bool[P]) gave a slot to a player: `order` is both, i32[P] each.

    A receiver with too few free slots takes from the lowest indices. Ammunition goes onto a stack of the same, if the
    receiver does not give that away in the same tick.
    """
    n, (slot, to) = len(able), order
    chosen = at_slot(goods, slot, able & may_receive(players, to), tick) & ~goods.worn & (goods.price == 0)
    thing, quantity = picked(chosen, goods.thing, NOTHING), picked(chosen, goods.quantity)
    valid, other = thing >= 0, jnp.clip(to, 0, n - 1)
    theirs = jnp.where(chosen, NOTHING, goods.thing)[other]  # i32[P, 12], without what they give away
    onto = (theirs == thing[:, None]) & (stacks(thing) & valid)[:, None]
    has_stack = onto.any(axis=1)
    gives_same = (goods.thing[other] == thing[:, None]).any(axis=1) & ~has_stack & stacks(thing)
    valid &= ~gives_same
    number = jnp.arange(n, dtype=jnp.int32)
    # The earlier givers to the same receiver. Of the same ammunition, only the first one needs a slot.
    earlier = (other[:, None] == other[None, :]) & (number[None, :] < number[:, None]) & valid[None, :]
    same = earlier & (thing[:, None] == thing[None, :]) & stacks(thing)[:, None]
    follows = same.any(axis=1)
    needs = valid & ~has_stack & ~follows
    rank = (earlier & needs[None, :]).sum(axis=1, dtype=jnp.int32)
    leader = jnp.where(follows, same.argmax(axis=1).astype(jnp.int32), number)
    fits = rank < n_free(goods)[other]
    gives = valid & (has_stack | fits[leader])
    free = goods.thing[other] < 0
    into = free & (jnp.cumsum(free, axis=1) - 1 == rank[leader][:, None])
    to_slot = jnp.where(has_stack, onto.argmax(axis=1), into.argmax(axis=1))
    place = jnp.where(gives, other * N_SLOTS + to_slot, n * N_SLOTS)
    goods = emptied(goods, chosen & gives[:, None])
    happened = Happened("GIVE_ITEM", gives, thing=thing, number=quantity, target=other)
    return _put(goods, place, thing, quantity, tick), [happened]


def _put(goods: Goods, place: jax.Array, thing: jax.Array, quantity: jax.Array, tick: jax.Array) -> Goods:
    """The packs with these things (i32[n]) at these places, 12 times the player plus the slot. Others are dropped."""
    shape = goods.thing.shape
    was_empty = goods.thing < 0
    things = goods.thing.reshape(-1).at[place].set(thing, mode="drop").reshape(shape)
    added = goods.quantity.reshape(-1).at[place].add(quantity, mode="drop").reshape(shape)
    since = jnp.where(was_empty & (things >= 0), tick, goods.since)
    return goods.replace(thing=things, quantity=added, since=since)


def gold_given(players: Players, amount: jax.Array, to: jax.Array, able: jax.Array) -> tuple[Players, list[Happened]]:
    """(players, events) after those who are `able` (bool[P]) gave gold, i32[P], at most what each has."""
    gives = able & may_receive(players, to) & (amount > 0) & (amount <= players.gold)
    paid = jnp.where(gives, amount, 0)
    other = jnp.where(gives, to, 0)
    gold = (players.gold - paid).at[other].add(paid)
    return players.replace(gold=gold), [Happened("GIVE_GOLD", gives, gold=paid, target=other)]

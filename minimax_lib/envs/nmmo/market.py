"""The market: players list things at a price for three ticks, and others buy them."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import N_SLOTS, Goods, at_slot, emptied, n_free, picked, received, stack_of
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.things import N_THINGS, NOTHING

DURATION = 3  # ticks for which a listing can be bought
PRICE_MAX = 99
NO_LISTING = 2**31 - 1
MOST_TOLD_APART = 63  # of larger stacks at one price, the first seller counts


def listed(
    goods: Goods, slot: jax.Array, price: jax.Array, able: jax.Array, tick: jax.Array
) -> tuple[Goods, list[Happened]]:
    """(packs, events) after those who are `able` (bool[P]) listed a thing (the slot i32[P], -1: none) at a price."""
    chosen = at_slot(goods, slot, able, tick) & ~goods.worn & (goods.price == 0)
    happened = Happened(
        "LIST_ITEM",
        chosen.any(axis=1),
        thing=picked(chosen, goods.thing, NOTHING),
        number=picked(chosen, goods.quantity),
        gold=price,
    )
    goods = goods.replace(
        price=jnp.where(chosen, price[:, None], goods.price), listed_at=jnp.where(chosen, tick, goods.listed_at)
    )
    return goods, [happened]


def expired(goods: Goods, tick: jax.Array) -> Goods:
    """The packs without listings that are over in this tick."""
    return goods.replace(price=jnp.where(tick - goods.listed_at > DURATION, 0, goods.price))


def shelf(goods: Goods) -> jax.Array:
    """i32[2, 160], the cheapest listing of each thing, and the cheapest of another seller; -1: there is none.

    A listing is 12 times the seller plus the slot. Of equal prices, the larger stack comes first, then the lower
    seller.
    """
    n_places = goods.thing.size
    thing, price = goods.thing.reshape(-1), goods.price.reshape(-1)
    stack = MOST_TOLD_APART - jnp.minimum(goods.quantity.reshape(-1), MOST_TOLD_APART)
    place = jnp.arange(n_places, dtype=jnp.int32)
    rank = (price * (MOST_TOLD_APART + 1) + stack) * n_places + place
    there = price > 0
    none = jnp.full(N_THINGS, NO_LISTING, jnp.int32)
    at = jnp.where(there, thing, N_THINGS)
    first = none.at[at].min(rank, mode="drop")
    seller = jnp.where(first == NO_LISTING, -1, first % n_places // N_SLOTS)
    others = there & (seller[jnp.clip(thing, 0)] != place // N_SLOTS)
    second = none.at[jnp.where(others, thing, N_THINGS)].min(rank, mode="drop")
    both = jnp.stack([first, second])
    return jnp.where(both == NO_LISTING, NOTHING, both % n_places)


def _own(best: jax.Array, n_players: int) -> jax.Array:
    """bool[P, 160], whether the cheapest listing is the player's own, who then is told of the other one."""
    seller = jnp.where(best[0] >= 0, best[0] // N_SLOTS, NOTHING)
    return seller[None, :] == jnp.arange(n_players, dtype=jnp.int32)[:, None]


def for_sale(best: jax.Array, n_players: int) -> jax.Array:
    """i32[P, 160], the cheapest listing of somebody else; -1: none. `best` is i32[2, 160], see `shelf`."""
    return jnp.where(_own(best, n_players), best[1], best[0])


def prices(goods: Goods, best: jax.Array) -> jax.Array:
    """i32[P, 160], the price of the cheapest listing of somebody else; 0: none."""
    price = jnp.where(best >= 0, goods.price.reshape(-1)[jnp.maximum(best, 0)], 0)
    return jnp.where(_own(best, len(goods.price)), price[1], price[0])


def bought(
    bits: jax.Array, players: Players, goods: Goods, listing: jax.Array, able: jax.Array, tick: jax.Array
) -> tuple[Players, Goods, list[Happened]]:
    """(players, packs, events) after those who are `able` (bool[P]) bought a listing (i32[P], see `shelf`; -1: none).

    Of several buyers of one listing, chance (`bits`, u32[P]) chooses one. All is judged as it is before the purchases:
    a sale does not pay for a purchase, nor make room for it.
    """
    n, n_places = len(able), goods.thing.size
    number, place = jnp.arange(n, dtype=jnp.int32), jnp.maximum(listing, 0)
    seller = place // N_SLOTS
    thing, quantity, price = (x.reshape(-1)[place] for x in (goods.thing, goods.quantity, goods.price))
    # A stack that is listed may be sold in the same moment, so it makes no room.
    room = (n_free(goods) > 0) | (stack_of(goods, thing) & (goods.price == 0)).any(axis=1)
    wants = able & (listing >= 0) & (price > 0) & (seller != number) & (price <= players.gold) & room
    turn = (bits >> 16) * jnp.uint32(n) + number.astype(jnp.uint32)
    first = jnp.full(n_places, 2**32 - 1, jnp.uint32).at[jnp.where(wants, place, n_places)].min(turn, mode="drop")
    wins = wants & (first[place] == turn)
    sold = jnp.zeros(n_places, bool).at[jnp.where(wins, place, n_places)].set(True, mode="drop")
    paid = jnp.where(wins, price, 0)
    players = players.replace(gold=(players.gold - paid).at[seller].add(paid))
    goods = emptied(goods, sold.reshape(goods.thing.shape))
    goods = received(goods, jnp.where(wins, thing, NOTHING), quantity, tick)
    happened = [
        Happened("EARN_GOLD", wins, who=seller, gold=price),
        Happened("BUY_ITEM", wins, thing=thing, number=quantity, gold=price),
    ]
    return players, goods, happened

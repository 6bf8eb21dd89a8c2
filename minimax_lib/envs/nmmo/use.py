"""Wearing, eating, drinking, destroying: what players do with things in their own packs."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import Goods, at_slot, emptied, picked
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.tables import FULL
from minimax_lib.envs.nmmo.things import AMMUNITION, NOTHING, POTION, RATION, kind_of, restored, usable, worn_at


def used(
    players: Players, goods: Goods, slot: jax.Array, able: jax.Array, tick: jax.Array
) -> tuple[Players, Goods, list[Happened]]:
    """(players, packs, events) after those who are `able` (bool[P]) used a thing (the slot i32[P], -1: none).

    What is worn is taken off. What can be worn is put on, in place of what is worn there. Food and potions are
    consumed.
    """
    chosen = at_slot(goods, slot, able, tick) & (goods.price == 0) & usable(goods.thing, players.experience)
    place = worn_at(goods.thing)
    wears = chosen & ~goods.worn & (place <= AMMUNITION)
    consumes = chosen & (place > AMMUNITION)
    taken_place = picked(wears, place, NOTHING)[:, None]
    worn = (goods.worn & ~chosen & (place != taken_place)) | wears
    thing = picked(chosen, goods.thing, NOTHING)
    eats, heals = kind_of(thing) == RATION, kind_of(thing) == POTION
    amount = restored(thing)

    def filled(stock: jax.Array, does: jax.Array) -> jax.Array:
        return jnp.where(does, jnp.minimum(stock + amount, FULL), stock)

    players = players.replace(
        food=filled(players.food, eats), water=filled(players.water, eats), health=filled(players.health, heals)
    )
    number = picked(chosen, goods.quantity)
    happened = [
        Happened("EQUIP_ITEM", wears.any(axis=1), thing=thing, number=number),
        Happened("CONSUME_ITEM", consumes.any(axis=1), thing=thing, number=number),
    ]
    return players, emptied(goods.replace(worn=worn), consumes), happened


def destroyed(goods: Goods, slot: jax.Array, able: jax.Array, tick: jax.Array) -> tuple[Goods, list[Happened]]:
    """(packs, events) after those who are `able` (bool[P]) destroyed a thing (a slot, i32[P]) that they do not wear."""
    chosen = at_slot(goods, slot, able, tick) & ~goods.worn
    thing, quantity = picked(chosen, goods.thing, NOTHING), picked(chosen, goods.quantity)
    return emptied(goods, chosen), [Happened("DESTROY_ITEM", chosen.any(axis=1), thing=thing, number=quantity)]

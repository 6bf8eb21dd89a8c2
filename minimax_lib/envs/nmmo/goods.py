"""Packs: what players carry, and how a thing comes into a pack."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo.things import N_LEVELS, N_THINGS, NOTHING, RATION, WHETSTONE, stacks, thing_level

N_SLOTS = 12


class Goods(struct.PyTreeNode):
    """The packs of P players. An empty slot has no price and is not worn."""

    thing: jax.Array  # i32[P, 12], see `things`; -1: the slot is empty
    quantity: jax.Array  # i32[P, 12]
    worn: jax.Array  # bool[P, 12]
    price: jax.Array  # i32[P, 12], at which it is listed on the market; 0: it is not
    listed_at: jax.Array  # i32[P, 12], the tick in which it was listed last
    since: jax.Array  # i32[P, 12], the tick in which it came into the slot
    item_level: jax.Array  # i32[P], the sum of levels worn when the last tick began


def empty_packs(n: int) -> Goods:
    """The packs of n players who carry nothing."""
    zero = jnp.zeros((n, N_SLOTS), jnp.int32)
    return Goods(
        thing=zero + NOTHING,
        quantity=zero,
        worn=jnp.zeros((n, N_SLOTS), bool),
        price=zero,
        listed_at=zero,
        since=zero,
        item_level=jnp.zeros(n, jnp.int32),
    )


def n_free(goods: Goods) -> jax.Array:
    """i32[P], the empty slots of each player."""
    return (goods.thing < 0).sum(axis=1, dtype=jnp.int32)


def emptied(goods: Goods, where: jax.Array) -> Goods:
    """The packs without what is in these slots (bool[P, 12])."""
    return goods.replace(
        thing=jnp.where(where, NOTHING, goods.thing),
        quantity=jnp.where(where, 0, goods.quantity),
        worn=goods.worn & ~where,
        price=jnp.where(where, 0, goods.price),
    )


def at_slot(goods: Goods, slot: jax.Array, able: jax.Array, tick: jax.Array) -> jax.Array:
    """bool[P, 12], the slot that each player means (i32[P], -1: none) if it is `able` (bool[P]) to act.

    A player means the thing that it saw. What came into the slot in this tick is another one.
    """
    meant = jnp.arange(N_SLOTS, dtype=jnp.int32)[None, :] == slot[:, None]
    return meant & able[:, None] & (goods.thing >= 0) & (goods.since < tick)


def picked(where: jax.Array, values: jax.Array, default: int = 0) -> jax.Array:
    """i32[P], the value (i32[P, 12], not below `default`) at the slot that is marked; `default` where none is."""
    return jnp.where(where, values, default).max(axis=1)


def stack_of(goods: Goods, thing: jax.Array) -> jax.Array:
    """bool[P, 12], the slot with a stack of the same `thing` (i32[P])."""
    return (goods.thing == thing[:, None]) & stacks(thing)[:, None]


def has_stacks(goods: Goods) -> jax.Array:
    """bool[P, 160], of which things each player has a stack."""
    first, n = N_LEVELS * WHETSTONE, N_LEVELS * (RATION - WHETSTONE)
    # The thirty kinds of ammunition are bits of one word.
    bit = jnp.where(stacks(goods.thing), jnp.left_shift(1, jnp.clip(goods.thing - first, 0, n - 1)), 0)
    words = jax.lax.reduce(bit.astype(jnp.int32), jnp.int32(0), jax.lax.bitwise_or, (1,))
    # Else XLA would join the bits of a pack again for each of the 160 things.
    words = jax.lax.optimization_barrier(words)
    place = np.arange(N_THINGS) - first
    there = (words[:, None] >> np.clip(place, 0, n - 1).astype(np.int32)[None, :]) & 1
    return (there == 1) & ((place >= 0) & (place < n))[None, :]


def first_free(goods: Goods) -> jax.Array:
    """bool[P, 12], the first empty slot."""
    free = goods.thing < 0
    return free & (jnp.cumsum(free, axis=1) == 1)


def received(goods: Goods, thing: jax.Array, quantity: jax.Array, tick: jax.Array) -> Goods:
    """The packs after each player got a thing (i32[P], -1: none) that fits: onto its stack, or into a free slot."""
    comes, stack = thing >= 0, stack_of(goods, thing)
    onto = stack & comes[:, None]
    into = first_free(goods) & (comes & ~stack.any(axis=1))[:, None]
    return goods.replace(
        thing=jnp.where(into, thing[:, None], goods.thing),
        quantity=goods.quantity + jnp.where(onto | into, quantity[:, None], 0),
        since=jnp.where(into, tick, goods.since),
    )


def levels_worn(goods: Goods) -> jax.Array:
    """i32[P], the sum of the levels of what is worn."""
    return jnp.where(goods.worn, thing_level(goods.thing), 0).sum(axis=1)

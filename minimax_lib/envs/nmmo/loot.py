"""What fights do to packs: ammunition is used up, and who kills takes what the dead one carried."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.combat import Fray
from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import N_SLOTS, Goods, emptied, picked
from minimax_lib.envs.nmmo.things import HAT, NOTHING, ROD, WHETSTONE, kind_of, stacks, thing_of

N_ARMOURS, N_TOOLS = 3, 5


def fired(goods: Goods, style: jax.Array, acts: jax.Array) -> tuple[Goods, list[Happened]]:
    """(packs, events) after the attacks of those who act (bool[P]) in a style (i32[P]) took worn ammunition of it.

    The event tells how much is left, as in the reference.
    """
    shot = goods.worn & (kind_of(goods.thing) == WHETSTONE + style[:, None]) & acts[:, None]
    left = goods.quantity - shot
    happened = Happened(
        "FIRE_AMMO", shot.any(axis=1), thing=picked(shot, goods.thing, NOTHING), number=picked(shot, left)
    )
    return emptied(goods.replace(quantity=left), shot & (left == 0)), [happened]


def mixed(bits: jax.Array) -> jax.Array:
    """u32[...], words that look random, one of each word (the last steps of MurmurHash3)."""
    bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
    return bits ^ (bits >> 16)


def turns(word: jax.Array) -> jax.Array:
    """u32[12], different numbers in a random order, from a random word (u32[])."""
    slot = jnp.arange(N_SLOTS, dtype=jnp.uint32)
    return (mixed(word + slot * jnp.uint32(0x9E3779B9)) & ~jnp.uint32(15)) | slot


def carried(bits: jax.Array, level: jax.Array) -> jax.Array:
    """i32[N, 12], what NPCs of these levels drop: a piece of armour, then a tool. `bits` is random, u32[N]."""
    choice = ((bits >> 8).astype(jnp.float32) * 2.0**-24 * (N_ARMOURS * N_TOOLS)).astype(jnp.int32)
    both = jnp.stack([thing_of(HAT + choice % N_ARMOURS, level), thing_of(ROD + choice // N_ARMOURS, level)], axis=1)
    return jnp.pad(both, ((0, 0), (0, N_SLOTS - 2)), constant_values=NOTHING)


def moved_over(own: jax.Array, things: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """How a pack takes `things` (i32[12], -1: none) in the order of `turn`, beside its `own`: which of them go onto a
    stack, which into a free slot (bool[12 own, 12 things] each), and which find a free slot (bool[12])."""
    onto = (own[:, None] == things[None, :]) & stacks(things)[None, :]
    needs = (things >= 0) & ~onto.any(axis=0)
    rank = (needs[None, :] & (turn[None, :] < turn[:, None])).sum(axis=1, dtype=jnp.int32)
    free = own < 0
    into = (free[:, None] & needs[None, :]) & ((jnp.cumsum(free) - 1)[:, None] == rank[None, :])
    return onto, into, into.any(axis=0)


def looted_things(
    bits: jax.Array, goods: Goods, fray: Fray, kills: jax.Array, dropped: jax.Array, tick: jax.Array
) -> tuple[Goods, list[Happened]]:
    """(packs, events) after killers among the players took what their victims carried, for as long as there is room.

    A killer that is killed later in the tick passes on what it took. So it is done in the order of their turns, which
    is that of their indices. `kills` is bool[E], `dropped` i32[N, 12] the things of NPCs. What nobody takes stays with
    the dead. The things of a player come in a random order (`bits`, u32[P]).
    """
    n = len(goods.thing)
    number = jnp.arange(n, dtype=jnp.int32)

    def one_killer(loop: tuple) -> tuple:
        left, thing, quantity, took, took_number = loop
        killer = left.argmax()
        victim = fray.target[killer]
        player, npc = jnp.minimum(victim, n - 1), jnp.maximum(victim - n, 0)
        things, numbers, turn = thing[player], quantity[player], turns(bits[killer])
        if len(dropped):
            is_npc = victim >= n
            in_order = jnp.arange(N_SLOTS, dtype=jnp.uint32)
            things, turn = jnp.where(is_npc, dropped[npc], things), jnp.where(is_npc, in_order, turn)
            numbers = jnp.where(is_npc, 1, numbers)
        onto, into, found = moved_over(thing[killer], things, turn)
        filled = into.any(axis=1)
        now = jnp.where(filled, jnp.where(into, things[None, :], 0).sum(axis=1), thing[killer])
        more = quantity[killer] + jnp.where(onto | into, numbers[None, :], 0).sum(axis=1)
        is_new = (number == killer)[:, None] & found[None, :]
        return (
            left & (number != killer),
            thing.at[killer].set(now),
            quantity.at[killer].set(more),
            jnp.where(is_new, things[None, :], took),
            jnp.where(is_new, numbers[None, :], took_number),
        )

    nothing = jnp.full_like(goods.thing, NOTHING)
    start = (kills[:n], goods.thing, goods.quantity, nothing, jnp.zeros_like(nothing))
    _, thing, quantity, took, took_number = jax.lax.while_loop(lambda loop: loop[0].any(), one_killer, start)
    since = jnp.where((goods.thing < 0) & (thing >= 0), tick, goods.since)
    happened = Happened("LOOT_ITEM", took >= 0, thing=took, number=took_number)
    return goods.replace(thing=thing, quantity=quantity, since=since), [happened]

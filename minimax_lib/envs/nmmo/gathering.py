"""Things that players find when they harvest."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goods import Goods, n_free, picked, received
from minimax_lib.envs.nmmo.harvest import FROM_OWN_TILE, Harvest
from minimax_lib.envs.nmmo.tables import CRYSTAL, FISHING, HERB, ORE, TREE
from minimax_lib.envs.nmmo.things import (
    ARROW,
    BOW,
    CHISEL,
    N_LEVELS,
    NOTHING,
    POTION,
    RATION,
    ROD,
    RUNES,
    SPEAR,
    WAND,
    WHETSTONE,
    kind_of,
    thing_level,
    thing_of,
)

WEAPON_CHANCE = 0.025
FOUND = {HERB: POTION, ORE: WHETSTONE, TREE: ARROW, CRYSTAL: RUNES}
WEAPONS = {ORE: WAND, TREE: SPEAR, CRYSTAL: BOW}


def gathered(goods: Goods, taken: Harvest, bits: jax.Array, tick: jax.Array) -> tuple[Goods, list[Happened]]:
    """The packs after a harvest: first the fish, then the own tile, a weapon last. What finds no free slot is lost.

    As in the reference, ammunition needs a free slot too, even if it goes onto a stack. `bits` is random, u32[P, 5].
    """
    in_hand = goods.worn & (kind_of(goods.thing) >= ROD) & (kind_of(goods.thing) <= CHISEL)
    tool = picked(in_hand, goods.thing, NOTHING)

    def level(skill: jax.Array | int) -> jax.Array:
        """With the right tool in the hand, things are one level above it."""
        return jnp.where(kind_of(tool) == skill + SPEAR, jnp.minimum(thing_level(tool) + 1, N_LEVELS), 1)

    skill = sum((jnp.where(taken.own == material, skill, 0) for material, skill, _ in FROM_OWN_TILE), jnp.int32(0))
    # When tiles come back takes the upper bits of the words, so the lower ones are free.
    low = (bits[:, :3] & 255).astype(jnp.int32)
    lucky = (low[:, 0] << 16) + (low[:, 1] << 8) + low[:, 2] < int(WEAPON_CHANCE * 2**24)
    finds = [
        jnp.where(taken.fish, thing_of(RATION, level(FISHING)), NOTHING),
        _of_material(taken.own, FOUND, level(skill)),
        jnp.where(lucky, _of_material(taken.own, WEAPONS, level(skill)), NOTHING),
    ]
    happened = []
    one = jnp.ones_like(tool)
    for thing in finds:
        got = (thing >= 0) & (n_free(goods) > 0)
        goods = received(goods, jnp.where(got, thing, NOTHING), one, tick)
        happened.append(Happened("HARVEST_ITEM", got, thing=thing, number=one))
    return goods, happened


def _of_material(own: jax.Array, kinds: dict[int, int], level: jax.Array) -> jax.Array:
    """i32[P], the thing that a harvest of these materials gives; -1: none."""
    thing = jnp.full_like(own, NOTHING)
    for material, kind in kinds.items():
        thing = jnp.where(own == material, thing_of(kind, level), thing)
    return thing

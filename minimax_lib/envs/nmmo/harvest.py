"""Eating, drinking and harvesting, all players at once. On a tile for several, the lowest index wins."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo.ground import ready_after, shown
from minimax_lib.envs.nmmo.tables import (
    ALCHEMY,
    CARVING,
    CRYSTAL,
    DIRECTIONS,
    FISH,
    FISHING,
    FOLIAGE,
    HERB,
    HERBALISM,
    N_SKILLS,
    ORE,
    PROSPECTING,
    TREE,
    WATER,
)

# Of the own tile: its material, the skill that it trains, and the experience.
FROM_OWN_TILE = ((HERB, HERBALISM, 30), (ORE, PROSPECTING, 15), (TREE, CARVING, 15), (CRYSTAL, ALCHEMY, 15))
FROM_LAND = np.isin(np.arange(16), [FOLIAGE, *(material for material, _, _ in FROM_OWN_TILE)])  # bool[16]
FISHING_EXPERIENCE = 30
N_NEIGHBOURS = 4


class Harvest(struct.PyTreeNode):
    """What players take in a tick."""

    eats: jax.Array  # bool[P]
    drinks: jax.Array  # bool[P]
    fish: jax.Array  # bool[P], gets a ration
    own: jax.Array  # i32[P], the material that it harvests on its own tile (Ore, Tree, Crystal, Herb), 0: none
    ready_at: jax.Array  # i16[S, S], of the ground afterwards


def harvest(
    bits: jax.Array, terrain: jax.Array, ready_at: jax.Array, tick: jax.Array, position: jax.Array, living: jax.Array
) -> Harvest:
    """What players at `position` (i32[P, 2]) take, if they live (bool[P]). `bits` is random, u32[P, 5]."""
    side, n, outside = terrain.shape[1], len(position), terrain.size
    offsets = jnp.asarray(DIRECTIONS[:, 0] * side + DIRECTIONS[:, 1])  # four neighbours, then the own tile
    tiles = (position[:, 0] * side + position[:, 1])[:, None] + offsets[None, :]
    base = terrain.reshape(-1)[tiles]
    seen = shown(base, ready_at.reshape(-1)[tiles], tick)
    own, around = seen[:, N_NEIGHBOURS], seen[:, :N_NEIGHBOURS]
    number = jnp.arange(n, dtype=jnp.int16)
    is_fish = (around == FISH) & living[:, None]
    takes_own = living & jnp.asarray(FROM_LAND)[own]
    # A tile belongs to the lowest index of those who take from it. Fish and what lies on land are never the same tile.
    takes = jnp.concatenate([is_fish, takes_own[:, None]], axis=1)
    takers = jnp.where(takes, number[:, None], jnp.int16(n))
    first = jnp.full(outside, n, jnp.int16).at[tiles.reshape(-1)].min(takers.reshape(-1))
    wins = takes & (first[tiles] == number[:, None])
    again = ready_after(bits, base, tick)
    places = jnp.where(wins, tiles, outside).reshape(-1)
    ready = ready_at.reshape(-1).at[places].set(again.reshape(-1), mode="drop").reshape(ready_at.shape)
    gains = wins[:, N_NEIGHBOURS]
    return Harvest(
        eats=gains & (own == FOLIAGE),
        drinks=living & (around == WATER).any(axis=1),
        fish=wins[:, :N_NEIGHBOURS].any(axis=1),
        own=jnp.where(gains & (own != FOLIAGE), own, 0).astype(jnp.int32),
        ready_at=ready,
    )


def experience_of(taken: Harvest) -> jax.Array:
    """i32[P, 8], the experience by skill that a harvest gives."""
    gained = [jnp.zeros_like(taken.own)] * N_SKILLS
    for material, skill, amount in FROM_OWN_TILE:
        gained[skill] = jnp.where(taken.own == material, amount, 0)
    gained[FISHING] = jnp.where(taken.fish, FISHING_EXPERIENCE, 0)
    return jnp.stack(gained, axis=1)


def n_harvests(taken: Harvest) -> jax.Array:
    """i32[P], how many things a player harvests: from its own tile, and a fish."""
    return (taken.own > 0).astype(jnp.int32) + taken.fish

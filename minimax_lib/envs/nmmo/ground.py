"""The tiles of a world: what they show, which can be walked on, and when they come back after a harvest."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.tables import PASSABLE, RESPAWN, VISION

LAST = 32767  # what a tick of `ready_at` can be at most
PASSABLE_BITS = sum(int(passable) << kind for kind, passable in enumerate(PASSABLE))


def passable(material: jax.Array) -> jax.Array:
    """bool[...], whether one can walk on tiles of this material (u8[...])."""
    # The bits of one number instead of a table: no look-up for every tile.
    return ((PASSABLE_BITS >> material.astype(jnp.int32)) & 1) == 1


def shown(terrain: jax.Array, ready_at: jax.Array, tick: jax.Array) -> jax.Array:
    """u8[...], the materials that tiles show in this tick. A depleted form is the one before the full form."""
    return terrain - (tick < ready_at).astype(jnp.uint8)


def ready_after(bits: jax.Array, material: jax.Array, tick: jax.Array) -> jax.Array:
    """i16[...], when tiles of this material come back that are harvested in `tick`. `bits` is random, u32[...].

    Each tick's end brings a tile back with a fixed chance. So the wait is geometric, and one draw tells it.
    """
    chance = jnp.asarray(RESPAWN)[material.astype(jnp.int32)]
    uniform = (bits >> 8).astype(jnp.float32) * 2.0**-24  # in [0, 1)
    wait = jnp.floor(jnp.log1p(-uniform) / jnp.log1p(-jnp.minimum(chance, 0.999)))
    return jnp.minimum(tick + 1 + wait.astype(jnp.int32), LAST).astype(jnp.int16)


def passable_windows(terrain: jax.Array) -> jax.Array:
    """u16[S, S]: bit k of a word says whether the tile k - 7 columns further in that row is passable."""
    side = terrain.shape[1]
    wide = jnp.pad(passable(terrain), ((0, 0), (VISION, VISION))).astype(jnp.uint16)
    words = [wide[:, k : k + side] << np.uint16(k) for k in range(2 * VISION + 1)]
    return sum(words[1:], words[0])

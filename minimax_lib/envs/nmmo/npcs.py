"""What NPCs do: whom they go for, whom they attack, where they step."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo.flood import NOWHERE, step_to, views, wandering
from minimax_lib.envs.nmmo.state import NOBODY, Npcs
from minimax_lib.envs.nmmo.tables import NPC_DIRECTIONS, REACH, VISION

PASSIVE, NEUTRAL, AGGRESSIVE = 1, 2, 3
MOVES = np.concatenate([NPC_DIRECTIONS, np.zeros((1, 2), np.int32)])  # i32[5, 2], the last one stays


class Plans(struct.PyTreeNode):
    """What each NPC has decided."""

    target: jax.Array  # i32[N], the player that it goes for; -1: nobody
    attacked: jax.Array  # i32[N], the player that it attacks; -1: nobody
    move: jax.Array  # i32[N, 2], its step


def targets(npcs: Npcs, position: jax.Array, living: jax.Array) -> jax.Array:
    """i32[N], the player that each NPC goes for. `position` i32[P, 2] and `living` bool[P] are those of players.

    It keeps its target while that lives and is in view. Else it turns on whoever hit it, if that player lives, and an
    aggressive one on the nearest player in view, the lowest index first.
    """
    n_players = len(living)
    distance = jnp.abs(npcs.position[:, None, :] - position[None]).max(axis=-1)  # [N, P]
    distance = jnp.where(living[None, :], distance, VISION + 1)
    kept = jnp.clip(npcs.target, 0, n_players - 1)
    still = (npcs.target >= 0) & (jnp.take_along_axis(distance, kept[:, None], axis=1)[:, 0] <= VISION)
    hitter = jnp.clip(npcs.attacker, 0, n_players - 1)
    angry = (npcs.attacker >= 0) & living[hitter]
    nearest = distance.argmin(axis=1).astype(jnp.int32)
    hunts = (npcs.kind == AGGRESSIVE) & (distance.min(axis=1) <= VISION)
    found = jnp.where(still, kept, jnp.where(angry, hitter, jnp.where(hunts, nearest, NOBODY)))
    return jnp.where(npcs.alive & (npcs.kind != PASSIVE), found, NOBODY)


def decide(bits: jax.Array, npcs: Npcs, position: jax.Array, living: jax.Array, windows: jax.Array) -> Plans:
    """The plans of all NPCs on the state at the start of a tick. `bits` is random, u32[N]."""
    target = targets(npcs, position, living)
    offset = position[jnp.maximum(target, 0)] - npcs.position
    has_target = target >= 0
    # A free slot looks from a place of the map, as good as any.
    view = views(windows, jnp.maximum(npcs.position, VISION))
    direction = jnp.where(has_target, step_to(view, offset), wandering(bits, view))
    direction = jnp.where(npcs.alive, direction, NOWHERE)
    attacked = jnp.where(has_target & (jnp.abs(offset).max(axis=1) <= REACH), target, NOBODY)
    return Plans(target=target, attacked=attacked, move=jnp.asarray(MOVES)[direction])

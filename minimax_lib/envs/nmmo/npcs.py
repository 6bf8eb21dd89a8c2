"""What NPCs do: whom they go for, whom they attack, where they step."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.nmmo.flood import NOWHERE, step_to, views, wandering
from minimax_lib.envs.nmmo.state import NOBODY, Npcs
from minimax_lib.envs.nmmo.tables import NPC_DIRECTIONS, REACH, VISION

PASSIVE, NEUTRAL, AGGRESSIVE = 1, 2, 3
FAR = 2**15  # more than any distance
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
    rows = jnp.abs(npcs.position[:, 0][:, None] - position[:, 0][None, :])  # [N, P]
    columns = jnp.abs(npcs.position[:, 1][:, None] - position[:, 1][None, :])
    distance = jnp.where(living[None, :], jnp.maximum(rows, columns), FAR)
    kept = jnp.clip(npcs.target, 0, n_players - 1)
    to_kept = jnp.abs(npcs.position - position[kept]).max(axis=1)
    still = (npcs.target >= 0) & living[kept] & (to_kept <= VISION)
    hitter = jnp.clip(npcs.attacker, 0, n_players - 1)
    angry = (npcs.attacker >= 0) & living[hitter]
    # Distance and index in one number: a minimum is several times as fast as an argmin.
    best = (distance * n_players + jnp.arange(n_players, dtype=jnp.int32)[None, :]).min(axis=1)
    nearest = best % n_players
    hunts = (npcs.kind == AGGRESSIVE) & (best // n_players <= VISION)
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

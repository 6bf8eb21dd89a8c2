"""Which actions an agent may take, by what it was told last."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.state import EnvState
from minimax_lib.envs.nmmo.tables import DIRECTIONS, REACH


def move_mask(state: EnvState) -> jax.Array:
    """bool[P, 5], the steps that lead onto a passable tile, and staying."""
    to = state.players.position[:, None, :] + jnp.asarray(DIRECTIONS)[None]
    return passable(state.level.terrain[to[..., 0], to[..., 1]])


def target_mask(state: EnvState, immunity: int, may_hold_fire: bool) -> jax.Array:
    """bool[P, K + 1], the neighbours that a player may attack; the last entry is "none".

    As in the reference, "none" is forbidden where there is somebody to attack, unless `may_hold_fire`.
    """
    players, n = state.players, len(state.players.alive)
    near = state.near.astype(jnp.int32)
    entity = jnp.maximum(near, 0)
    position = jnp.concatenate([players.position, state.npcs.position])[entity]
    distance = jnp.abs(position - players.position[:, None, :]).max(axis=-1)
    spared = (entity < n) & (players.age[jnp.minimum(entity, n - 1)] < immunity)
    itself = entity == jnp.arange(n, dtype=jnp.int32)[:, None]
    allowed = (near >= 0) & (distance <= REACH) & ~spared & ~itself
    none = jnp.ones(n, bool) if may_hold_fire else ~allowed.any(axis=1)
    return jnp.concatenate([allowed, none[:, None]], axis=1)

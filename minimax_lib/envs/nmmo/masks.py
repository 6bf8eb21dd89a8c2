"""Which actions an agent may take, by what it was told last."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.observation import COLUMNS, PLAYER
from minimax_lib.envs.nmmo.state import EnvState
from minimax_lib.envs.nmmo.tables import DIRECTIONS, REACH, VISION


def move_mask(state: EnvState) -> jax.Array:
    """bool[P, 5], the steps that lead onto a passable tile, and staying."""
    to = state.players.position[:, None, :] + jnp.asarray(DIRECTIONS)[None]
    return passable(state.level.terrain[to[..., 0], to[..., 1]])


def target_mask(seen: jax.Array, near: jax.Array, immunity: int, may_hold_fire: bool) -> jax.Array:
    """bool[P, K + 1], the neighbours that a player may attack; the last entry is "none".

    `seen` (u8[P, K, 16]) is what it is told of them, `near` (i16[P, K]) who they are. As in the reference, "none" is
    forbidden where there is somebody to attack, unless `may_hold_fire`.
    """
    kind, row, column, age = (seen[..., COLUMNS.index(name)] for name in ("kind", "row", "column", "age"))
    here = VISION + 1
    close = (row >= here - REACH) & (row <= here + REACH) & (column >= here - REACH) & (column <= here + REACH)
    spared = (kind == PLAYER) & (age < immunity)
    itself = near == jnp.arange(len(near), dtype=near.dtype)[:, None]
    allowed = (kind > 0) & close & ~spared & ~itself
    none = jnp.ones(len(near), bool) if may_hold_fire else ~allowed.any(axis=1)
    return jnp.concatenate([allowed, none[:, None]], axis=1)

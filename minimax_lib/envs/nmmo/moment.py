"""What pictures need of a world: a small part of its state."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.ground import shown
from minimax_lib.envs.nmmo.state import EnvState


class Moment(struct.PyTreeNode):
    """A world in one tick. A medium world takes 28 kB, its whole state 250."""

    tiles: jax.Array  # u8[S, S], the materials that are shown
    tick: jax.Array  # i16[]
    position: jax.Array  # i16[P, 2]
    alive: jax.Array  # bool[P]
    health: jax.Array  # u8[P], as food and water
    food: jax.Array  # u8[P]
    water: jax.Array  # u8[P]
    tasks: jax.Array  # i32[P]
    progress: jax.Array  # f32[P], of the tasks
    npc_position: jax.Array  # i16[N, 2]
    npc_alive: jax.Array  # bool[N]
    npc_kind: jax.Array  # u8[N]
    followed: jax.Array  # i32[], the player whose view is shown


def moment_of(state: EnvState) -> Moment:
    """What is left of a state. Player 0 is followed."""
    players, npcs = state.players, state.npcs
    stocks = {name: getattr(players, name).astype(jnp.uint8) for name in ("health", "food", "water")}
    return Moment(
        tiles=shown(state.level.terrain, state.ground.ready_at, state.tick),
        tick=state.tick.astype(jnp.int16),
        position=players.position.astype(jnp.int16),
        alive=players.alive,
        **stocks,
        tasks=state.level.tasks,
        progress=jnp.where(state.score.completed, 1.0, state.score.best),
        npc_position=npcs.position.astype(jnp.int16),
        npc_alive=npcs.alive,
        npc_kind=npcs.kind.astype(jnp.uint8),
        followed=jnp.zeros((), jnp.int32),
    )


def as_moment(state: EnvState | Moment) -> Moment:
    """The moment that a state is, or the moment itself."""
    return state if isinstance(state, Moment) else jax.device_get(_moment(state))


_moment = jax.jit(moment_of)
_moments = jax.jit(jax.vmap(jax.vmap(moment_of)))


def moments_of(states: Any) -> Moment:
    """[T, R, ...], of states or moments [T, R, ...]."""
    return states if isinstance(states, Moment) else jax.device_get(_moments(states))

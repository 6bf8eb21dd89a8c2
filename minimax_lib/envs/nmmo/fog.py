"""The death fog: it comes in from the edge and drives everybody to the middle."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import FOG, Players

LEAST = 0.5  # what hurts is more than this, rounded


@dataclasses.dataclass(frozen=True)
class Fog:
    """From tick `onset` on, a fog comes `speed` tiles further in a tick. It stops `final` tiles from the middle."""

    onset: int
    speed: float = 1.0
    final: int = 8


def damage_of(fog: Fog, square: Square, position: jax.Array, tick: jax.Array) -> jax.Array:
    """i32[P], what the fog takes of the health of players in these places (i32[P, 2]): 1 for each tile that it has
    come further in than they are."""
    depth = jnp.minimum(position, square.side - 1 - position).min(axis=1) - square.border
    reached = fog.speed * (tick - fog.onset + 1).astype(jnp.float32) - depth.astype(jnp.float32)
    hurts = (reached > LEAST) & (tick >= fog.onset) & (square.to_middle(position) > fog.final)
    return jnp.where(hurts, jnp.round(reached), 0.0).astype(jnp.int32)


def fogged(players: Players, damage: jax.Array) -> Players:
    """The players after the fog took this (i32[P]) of the living."""
    damage = jnp.where(players.alive, damage, 0)
    health = jnp.maximum(players.health - damage, 0)
    return players.replace(
        health=health,
        damage=jnp.where(damage > 0, damage, players.damage),
        received=players.received + damage,
        cause=jnp.where(players.alive & (health == 0), FOG, players.cause),
    )

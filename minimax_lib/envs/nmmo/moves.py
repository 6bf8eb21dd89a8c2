"""Steps of players and NPCs. A tile holds any number of them, so nobody is in another's way."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import counted
from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import Players


def moved(terrain: jax.Array, position: jax.Array, step: jax.Array, able: jax.Array) -> jax.Array:
    """i32[E, 2], the places after these steps (i32[E, 2]) of those able to go (bool[E]), if the tile is passable."""
    to = position + step
    goes = able & passable(terrain[to[:, 0], to[:, 1]])
    return jnp.where(goes[:, None], to, position)


def explored(players: Players, square: Square) -> Players:
    """The players with their progress from the edge towards the middle, and an event for each new best."""
    progress = square.centre // 2 - square.to_middle(players.position)
    further = players.alive & (progress > players.farthest)
    return players.replace(
        farthest=jnp.where(further, progress, players.farthest),
        events=counted(players.events, {"GO_FARTHEST": further}),
    )

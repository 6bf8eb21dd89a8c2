"""A written player, the forager: it looks for food and water."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.flood import NOWHERE, SIDE, at_middle, first_of, first_steps, greedy_step
from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.heads import WITH_NONE
from minimax_lib.envs.nmmo.resources import beside
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.tables import DIRECTIONS, FOLIAGE, NPC_DIRECTIONS, STAY, WATER

HUNGRY = 35  # food at which the forager leaves the water
# i32[5], the action that steps in each direction of a flood.
ACTION_OF = [next(k for k, d in enumerate(DIRECTIONS.tolist()) if d == step) for step in NPC_DIRECTIONS.tolist()]


def words_of(tiles: jax.Array) -> jax.Array:
    """u16[15, P], views (bool[P, 15, 15]) as bits."""
    bit = jnp.left_shift(jnp.uint16(1), jnp.arange(SIDE, dtype=jnp.uint16))
    return jnp.where(tiles, bit[None, None, :], jnp.uint16(0)).sum(axis=-1, dtype=jnp.uint16).T


def forager_moves(tiles: jax.Array, players: Players, square: Square) -> jax.Array:
    """i32[P], the steps of players who live on what they see. `tiles` is u8[P, 15, 15], what is shown round each.

    One stays beside water until it is hungry. Then it goes to the nearest foliage, unless thirst is worse. With no goal
    in view it goes towards the middle of the map.
    """
    walkable = passable(tiles)
    view = words_of(walkable)
    shore = words_of(walkable & jax.vmap(beside)(tiles == WATER))
    food = words_of(tiles == FOLIAGE)
    eats = (players.food <= HUNGRY) & (players.food <= players.water)
    goals = jnp.where(eats[None], food, shore)
    found = first_steps(view, goals)
    to_middle = greedy_step(view, square.middle - players.position)
    direction = jnp.where(found.any(axis=0), first_of(found), to_middle)
    direction = jnp.where(at_middle(goals), NOWHERE, direction)
    return jnp.asarray([*ACTION_OF, STAY], jnp.int32)[direction]


def with_nothing_else(
    move: jax.Array, heads: Sequence[tuple[str, Any]], masks: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """An action [P] with this step. Of other heads (name and space), the last value that is allowed: no attack, unless
    it is forced, and nothing is done with goods."""
    action = {name: jnp.full_like(move, head.n - 1 if name in WITH_NONE else 0) for name, head in heads}
    for name, allowed in masks.items():
        action[name] = (allowed.shape[1] - 1 - allowed[:, ::-1].argmax(axis=1)).astype(jnp.int32)
    return action | {"move": move}

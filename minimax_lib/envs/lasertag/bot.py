"""A player of LaserTag who knows where the other one is, and does not learn."""

from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells.codes import direction_vector
from minimax_lib.envs.lasertag.dynamics import EnvState, in_sight

NEEDED = ("fire", "left", "right")


def hunting_bot(key: jax.Array, game: Any, state: EnvState, seat: jax.Array) -> jax.Array:
    """i32[]: fire if that hits; turn if the other one is in line, with no wall between; else any action.

    `game` is a `LaserTag`. ValueError in a game without the actions for that.
    """
    for action in NEEDED:
        if action not in game.actions:
            raise ValueError(f"actions={game.actions!r}: a hunting bot needs {action!r} among them")
    own = jnp.where(seat == 0, 0, 1)
    gap = state.position[1 - own] - state.position[own]
    dx, dy = direction_vector(state.facing[own])
    ahead, to_the_right = gap[0] * dx + gap[1] * dy, gap[1] * dx - gap[0] * dy
    fire, left, right = (game.actions.index(action) for action in NEEDED)
    # If the other one is behind, either turn will do.
    aims = jnp.where((to_the_right == 0) & (ahead > 0), fire, jnp.where(to_the_right < 0, left, right))
    wanders = jax.random.randint(key, (), 0, len(game.actions))
    return jnp.where(in_sight(jnp.asarray(state.level.walls), state.position), aims, wanders)

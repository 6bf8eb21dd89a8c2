"""Rewards beside those of the task, which entries of the NeurIPS 2023 competition gave themselves for training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.state import EnvState, Players
from minimax_lib.envs.nmmo.survival import FED_ABOVE
from minimax_lib.envs.nmmo.tables import FULL
from minimax_lib.envs.nmmo.things import gear_of

DEFENCE = 15  # what the best entry divides it by
N_MOVES, N_DIRECTIONS = 8, 5  # the moves that the starter kit looks back at; staying is one
FEWEST_MOVES = 6  # of a life, for their variety to be paid


def starter_kit(before: Players, state: EnvState) -> jax.Array:
    """f32[P]: 0.03 where food and water give health back, 0.01 for each kind of event that is the life's first (3 at
    most), and 0.02 (H - 1), where H is the entropy of the last eight moves in bits, from the sixth move on."""
    recovers = (before.food > FED_ABOVE) & (before.water > FED_ABOVE) & (before.health < FULL)
    firsts = ((before.events == 0) & (state.players.events > 0)).sum(axis=1)
    made = jax.nn.one_hot(state.moves, N_DIRECTIONS).sum(axis=1)  # f32[P, 5]; a move of -1 is none
    n_made = made.sum(axis=1)
    share = made / jnp.maximum(n_made, 1)[:, None]
    variety = -jnp.where(made > 0, share * jnp.log2(jnp.maximum(share, 1 / N_MOVES)), 0.0).sum(axis=1) - 1
    wanders = jnp.where(n_made >= FEWEST_MOVES, 0.02 * variety, 0.0)
    return 0.03 * recovers + 0.01 * jnp.minimum(firsts, 3) + wanders


def best_entry(before: Players, state: EnvState) -> jax.Array:
    """f32[P]: a tenth of 0.03 for each point of health more (or less), 0.002 for each point by which the highest
    experience grows, 0.04 for 15 points of worn defence, and 0.001 for each piece of gold more (or less)."""
    after, goods = state.players, state.goods
    health, gold = after.health - before.health, after.gold - before.gold
    skill = after.experience.max(axis=1) - before.experience.max(axis=1)
    defence = 0 if goods is None else gear_of(goods.thing, goods.worn).defence
    return 0.1 * (0.03 * health + 0.002 * skill + 0.04 * defence / DEFENCE + 0.001 * gold)


Shaping = Callable[[Players, EnvState], jax.Array]
SHAPINGS: dict[str, Shaping] = {"starter_kit": starter_kit, "best_entry": best_entry}


def no_moves(shaping: str, n_players: int) -> jax.Array | None:
    """`EnvState.moves` at the start of a world; None where this shaping does not look at them."""
    return jnp.full((n_players, N_MOVES), -1, jnp.int8) if shaping == "starter_kit" else None


def shaped(
    shaping: str, before: Players, state: EnvState, move: jax.Array, playing: jax.Array
) -> tuple[EnvState, jax.Array]:
    """(the state, which knows these moves (i32[P]), f32[P] what the shaping pays those who played in the tick)."""
    if state.moves is not None:
        state = state.replace(moves=jnp.concatenate([state.moves[:, 1:], move[:, None].astype(jnp.int8)], axis=1))
    return state, jnp.where(playing, SHAPINGS[shaping](before, state), 0.0)  # the dead still wear what they wore

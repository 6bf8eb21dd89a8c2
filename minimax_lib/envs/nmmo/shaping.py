"""Rewards beside those of the task, which entries of the NeurIPS 2023 competition gave themselves for training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.goods import Goods
from minimax_lib.envs.nmmo.state import Players
from minimax_lib.envs.nmmo.things import gear_of

DEFENCE = 15  # what the best entry divides it by


def starter_kit(before: Players, after: Players, goods: Goods | None) -> jax.Array:
    """f32[P]: 0.03 for health that comes back, and 0.01 for each kind of event that is the life's first (3 at most).

    The kit's third part, for variety in the last eight moves, is left out: it needs a memory of moves.
    """
    recovers = after.health > before.health
    firsts = ((before.events == 0) & (after.events > 0)).sum(axis=1)
    return 0.03 * recovers + 0.01 * jnp.minimum(firsts, 3)


def best_entry(before: Players, after: Players, goods: Goods | None) -> jax.Array:
    """f32[P]: a tenth of 0.03 for each point of health more (or less), 0.002 for each point by which the highest
    experience grows, 0.04 for 15 points of worn defence, and 0.001 for each piece of gold more (or less)."""
    health, gold = after.health - before.health, after.gold - before.gold
    skill = after.experience.max(axis=1) - before.experience.max(axis=1)
    defence = 0 if goods is None else gear_of(goods.thing, goods.worn).defence
    return 0.1 * (0.03 * health + 0.002 * skill + 0.04 * defence / DEFENCE + 0.001 * gold)


Shaping = Callable[[Players, Players, Goods | None], jax.Array]
SHAPINGS: dict[str, Shaping] = {"starter_kit": starter_kit, "best_entry": best_entry}

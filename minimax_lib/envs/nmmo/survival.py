"""Hunger, thirst and health, which come first in a tick."""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import counted
from minimax_lib.envs.nmmo.state import HUNGER, NOBODY, THIRST, Entities, Npcs, Players
from minimax_lib.envs.nmmo.tables import FULL

DEPLETION = 5  # food and water lost in a tick
RECOVERY = 10  # health won in a tick by an agent that is fed
FED_ABOVE = 50  # food and water of an agent that is fed


@dataclasses.dataclass(frozen=True)
class Survival:
    """How hard it is to live."""

    starvation: int = 10  # health lost in a tick without food
    dehydration: int = 10  # without water


def bodies(players: Players, rules: Survival) -> Players:
    """The players after their health followed food and water, and both fell. Dead ones stay as they are, and those
    without health only grow older."""
    fed = (players.food > FED_ABOVE) & (players.water > FED_ABOVE)
    # Both on the values before this tick's loss. A resilient agent loses half, rounded down.
    loss = sum(
        jnp.where(stock == 0, jnp.where(players.resilient, rate // 2, rate), 0)
        for stock, rate in ((players.food, rules.starvation), (players.water, rules.dehydration))
    )
    health = jnp.clip(players.health + jnp.where(fed, RECOVERY, 0) - loss, 0, FULL)
    living = players.alive & (players.health > 0)
    cause = jnp.where(players.food == 0, HUNGER, THIRST)
    return players.replace(
        cause=jnp.where(living & (health == 0), cause, players.cause),
        age=players.age + players.alive,
        health=jnp.where(living, health, players.health),
        food=jnp.where(living, jnp.maximum(players.food - DEPLETION, 0), players.food),
        water=jnp.where(living, jnp.maximum(players.water - DEPLETION, 0), players.water),
    )


def nourished(players: Players, eats: jax.Array, drinks: jax.Array) -> Players:
    """The players after these (bool[P] each) ate or drank: both fill up whole."""
    return players.replace(
        food=jnp.where(eats, FULL, players.food),
        water=jnp.where(drinks, FULL, players.water),
        events=counted(players.events, {"EAT_FOOD": eats, "DRINK_WATER": drinks}),
    )


def unhurt(entities: Entities) -> Entities:
    """The entities with last tick's damage cleared. The attacker is cleared one tick later, if no hit came since."""
    return entities.replace(
        attacker=jnp.where(entities.alive & (entities.damage == 0), NOBODY, entities.attacker),
        damage=jnp.where(entities.alive, 0, entities.damage),
    )


def rested(npcs: Npcs) -> Npcs:
    """NPCs after a tick's recovery."""
    return npcs.replace(health=jnp.where(npcs.alive, jnp.minimum(npcs.health + 1, FULL), npcs.health))

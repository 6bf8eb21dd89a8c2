"""Levels from experience, and what it counts when one rises."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.events import counted
from minimax_lib.envs.nmmo.tables import N_STYLES, THRESHOLDS


def level_of(experience: jax.Array) -> jax.Array:
    """i32[...], the level 1..10 of a skill with this experience."""
    # A sum of comparisons is cheaper than a search, and the compiler joins it with what comes after.
    return sum(((experience >= int(least)).astype(jnp.int32) for least in THRESHOLDS[1:]), jnp.ones((), jnp.int32))


def best_level(experience: jax.Array) -> jax.Array:
    """i32[...], a player's level: the highest of its skills. `experience` is [..., 8]."""
    return level_of(experience.max(axis=-1))


def attack_level(experience: jax.Array) -> jax.Array:
    """i32[...], the highest level of the three styles. `experience` is [..., 8]."""
    return level_of(experience[..., :N_STYLES].max(axis=-1))


def learnt(experience: jax.Array, events: jax.Array, gained: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(experience [P, 8], events [P, 20]) after this much was gained (i32[P, 8]), with an event for each new level."""
    after = experience + gained
    risen = (level_of(after) > level_of(experience)).sum(axis=-1, dtype=jnp.int32)
    return after, counted(events, {"LEVEL_UP": risen})

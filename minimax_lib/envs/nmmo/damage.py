"""How much damage an attack does: offence against defence, and the style that a target is weak to."""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.skills import best_level, level_of
from minimax_lib.envs.nmmo.tables import N_STYLES, WEAK_TO

BASE_OFFENCE, OFFENCE_A_LEVEL, DEFENCE_A_LEVEL = 10, 5, 5
COMBAT_EXPERIENCE = 6  # of an attack, in its style


class Gear(struct.PyTreeNode):
    """What the things that players wear add."""

    attack: jax.Array  # i32[P, 3] by style
    defence: jax.Array  # i32[P]


def nothing_worn(n: int) -> Gear:
    """The gear of n players without things."""
    return Gear(attack=jnp.zeros((n, N_STYLES), jnp.int32), defence=jnp.zeros(n, jnp.int32))


class Guard(struct.PyTreeNode):
    """What counts of an entity that is attacked."""

    defence: jax.Array  # i32[...]
    weak_to: jax.Array  # i32[...], the style that does half as much again; -1: none


def damage_of(offence: jax.Array, defence: jax.Array, weak: jax.Array) -> jax.Array:
    """i32[...], the whole part of max(m * offence - defence, offence / 4), where m is 1.5 if `weak`, else 1."""
    return jnp.maximum(jnp.where(weak, 3 * offence // 2, offence) - defence, offence // 4)


def weak_style(experience: jax.Array) -> jax.Array:
    """i32[...], the style that an entity with this experience in its styles (i32[..., 3]) is weak to; -1: none.

    The best of its styles decides, the first one of several. Without a best one there is no weakness.
    """
    equal = (experience == experience[..., :1]).all(axis=-1)
    return jnp.where(equal, -1, jnp.asarray(WEAK_TO)[experience.argmax(axis=-1)])


def offence_of(experience: jax.Array, style: jax.Array, gear: Gear) -> jax.Array:
    """i32[P], of players who attack in this style (i32[P])."""

    def of_style(x: jax.Array) -> jax.Array:
        return jnp.take_along_axis(x[:, :N_STYLES], style[:, None], axis=1)[:, 0]

    return BASE_OFFENCE + OFFENCE_A_LEVEL * level_of(of_style(experience)) + of_style(gear.attack)


def guard_of(experience: jax.Array, gear: Gear) -> Guard:
    """Of players, by the highest level of all skills."""
    defence = DEFENCE_A_LEVEL * best_level(experience) + gear.defence
    return Guard(defence=defence, weak_to=weak_style(experience[:, :N_STYLES]))


def trained(style: jax.Array, attacks: jax.Array) -> jax.Array:
    """i32[P, 8], the experience of an attack in this style, for those who attack (bool[P])."""
    gained = jax.nn.one_hot(style, 8, dtype=jnp.int32) * COMBAT_EXPERIENCE
    return jnp.where(attacks[:, None], gained, 0)

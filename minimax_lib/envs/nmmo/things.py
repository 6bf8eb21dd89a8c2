"""The things of the game: 16 kinds of ten levels each, and what each of them needs and adds.

A thing is a number: ten times its kind plus its level minus 1. -1 is no thing.
"""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.damage import Gear
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.tables import FIRST_ITEM_ID, ITEMS, N_SKILLS, N_STYLES

NOTHING = -1
N_LEVELS = 10
N_KINDS = len(ITEMS)
N_THINGS = N_KINDS * N_LEVELS
(HAT, TOP, BOTTOM, SPEAR, BOW, WAND, ROD, GLOVES, PICKAXE, AXE, CHISEL, WHETSTONE, ARROW, RUNES, RATION, POTION) = (
    range(N_KINDS)
)
HELD, AMMUNITION = 3, 4  # where things are worn: hat, top, bottom, held in a hand, ammunition


def kind_of(thing: jax.Array) -> jax.Array:
    """i32[...], the kind of a thing (i32[...]); -1 of no thing."""
    return (thing * 205) >> 11  # divided by ten, rounded down; processors have no fast division


def thing_level(thing: jax.Array) -> jax.Array:
    """i32[...], the level of a thing."""
    return thing - N_LEVELS * kind_of(thing) + 1


def thing_of(kind: jax.Array | int, level: jax.Array) -> jax.Array:
    """i32[...], the thing of this kind and level."""
    return N_LEVELS * kind + level - 1


def type_id(thing: jax.Array) -> jax.Array:
    """i32[...], the reference's number of the kind of a thing."""
    return kind_of(thing) + FIRST_ITEM_ID


def stacks(thing: jax.Array) -> jax.Array:
    """bool[...], whether several such things take one slot: ammunition."""
    return (thing >= N_LEVELS * WHETSTONE) & (thing < N_LEVELS * RATION)


def worn_at(thing: jax.Array) -> jax.Array:
    """i32[...], where a thing is worn: 0 to 4. Of things that cannot be worn it is 5 or more."""
    kind = kind_of(thing)
    other = jnp.where(kind < WHETSTONE, HELD, jnp.where(kind < RATION, AMMUNITION, AMMUNITION + 1))
    return jnp.where(kind < SPEAR, kind, other)


def skill_of(thing: jax.Array) -> jax.Array:
    """i32[...], the skill whose level must reach that of the thing; 8: the highest of all."""
    kind = kind_of(thing)
    of_hand = (kind >= SPEAR) & (kind < WHETSTONE)  # three weapons and five tools, in the order of the eight skills
    of_shot = (kind >= WHETSTONE) & (kind < RATION)
    return jnp.where(of_hand, kind - SPEAR, jnp.where(of_shot, kind - WHETSTONE, N_SKILLS))


def usable(thing: jax.Array, experience: jax.Array) -> jax.Array:
    """bool[P, n], whether players with this experience (i32[P, 8]) are able to use things (i32[P, n])."""
    levels = level_of(experience)
    needed, level = skill_of(thing), levels.max(axis=1)[:, None]
    for skill in range(N_SKILLS):  # selects are cheaper than a look-up
        level = jnp.where(needed == skill, levels[:, skill][:, None], level)
    return (thing >= 0) & (thing_level(thing) <= level)


def restored(thing: jax.Array) -> jax.Array:
    """i32[...], what a ration gives of food and water, and a potion of health."""
    return 50 + 5 * thing_level(thing)


def gear_of(thing: jax.Array, worn: jax.Array) -> Gear:
    """What worn things (bool[P, n]) add, of all things carried (i32[P, n])."""
    kind, level = kind_of(thing), thing_level(thing)
    is_weapon, is_shot = (kind >= SPEAR) & (kind <= WAND), (kind >= WHETSTONE) & (kind <= RUNES)
    style = jnp.where(is_weapon, kind - SPEAR, jnp.where(is_shot, kind - WHETSTONE, N_STYLES))
    attack = jnp.where(is_weapon, 5 + 5 * level, jnp.minimum(5 + 10 * level, 100))
    is_tool = (kind >= ROD) & (kind <= CHISEL)
    defence = jnp.where(kind < SPEAR, 3 * level, jnp.where(is_tool, 15, 0))
    by_style = [jnp.where(worn & (style == s), attack, 0).sum(axis=1) for s in range(N_STYLES)]
    return Gear(attack=jnp.stack(by_style, axis=1), defence=jnp.where(worn, defence, 0).sum(axis=1))

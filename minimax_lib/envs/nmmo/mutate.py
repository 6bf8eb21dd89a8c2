"""Edits of a map, for ACCEL (Parker-Holder et al. 2022). For Neural MMO nobody has published any: these are ours."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.sampling import draw_cell
from minimax_lib.envs.nmmo.resources import beside, bordered, with_patches
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import Level
from minimax_lib.envs.nmmo.tables import CRYSTAL, FISH, FOLIAGE, GRASS, HERB, ORE, STONE, TREE, WATER

COMES, GOES, PATCH = range(3)  # the edits, equally likely
THINGS = np.array([WATER, FOLIAGE, ORE, TREE, CRYSTAL, HERB, FISH], np.uint8)
GROUNDS = np.array([WATER, GRASS, FOLIAGE, STONE], np.uint8)
MARGIN = 2  # tiles between the edge, where players spawn, and what is edited


def mutate(square: Square, kept: np.ndarray, key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits of its map.

    Each edit is one of three kinds, equally likely:

    * a tile of grass becomes water, foliage, ore, a tree, a crystal or a herb, or water beside grass gets fish
    * a tile of ore, a tree, a crystal or a herb becomes grass, or one with fish becomes water
    * 3 x 3 tiles become water, grass, foliage or stone

    The place is random among those that fit; where none does, the edit changes nothing. The edge stays as it is, and so
    do the tiles that tasks are about (`kept`, i32[Y, 2]) with the grass round them. Who spawns where, and the
    tasks, stay.
    """
    inside = jnp.asarray(square.box(MARGIN))
    line = jnp.arange(square.side, dtype=jnp.int32)

    def edit(terrain: jax.Array, key: jax.Array) -> tuple[jax.Array, None]:
        k_kind, k_material, k_place = jax.random.split(key, 3)
        kind = jax.random.randint(k_kind, (), 0, 3)
        chance = jax.random.uniform(k_material)
        thing = jnp.asarray(THINGS)[(chance * len(THINGS)).astype(jnp.int32)]
        ground = jnp.asarray(GROUNDS)[(chance * len(GROUNDS)).astype(jnp.int32)]
        grass, fish = terrain == GRASS, terrain == FISH
        free = jnp.where(thing == FISH, (terrain == WATER) & beside(grass), grass)
        taken = fish | (terrain == ORE) | (terrain == TREE) | (terrain == CRYSTAL) | (terrain == HERB)
        fits = jnp.where(kind == COMES, free, taken | (kind == PATCH)) & inside
        row, column, found = draw_cell(k_place, fits)
        reach = jnp.where(kind == PATCH, 1, 0)
        near = (jnp.abs(line - row) <= reach)[:, None] & (jnp.abs(line - column) <= reach)[None, :]
        left = jnp.where(fish, WATER, GRASS).astype(jnp.uint8)  # where a thing goes
        new = jnp.where(kind == COMES, thing, jnp.where(kind == GOES, left, ground))
        return jnp.where(near & found, new, terrain), None

    # One after another, because an edit must see what the edit before has left.
    terrain = jax.lax.scan(edit, level.terrain, jax.random.split(key, n_edits))[0]
    return level.replace(terrain=bordered(square, with_patches(terrain, kept)))

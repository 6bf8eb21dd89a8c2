"""What is placed on the ground of a map: ore, trees, crystals, herbs, fish, more water and foliage, and the border.

The reference places one thing after another, each on a uniformly drawn tile of those left. Here all tiles are ranked by
a random number once, and the first ones that fit are taken: the same law, all at once.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.tables import CRYSTAL, FISH, FOLIAGE, GRASS, HERB, ORE, STONE, TREE, VOID, WATER

CROSS = np.array([[0, 0], [-1, 0], [1, 0], [0, 1], [0, -1]], np.int32)  # a tile and its neighbours
PATCH = 2  # tiles of grass to each side of a tile that a task is about
ROUNDS = 8  # settle which clusters are too close to an earlier one: chains are shorter than this


@dataclasses.dataclass(frozen=True)
class Resources:
    """How many things are placed on a map."""

    clusters: int  # of ore, trees and crystals each; up to five tiles in the shape of a plus
    uniform: int  # herbs, and as many fish
    extra: int  # single tiles of water, and as many of foliage


def placed(key: jax.Array, square: Square, terrain: jax.Array, counts: Resources) -> jax.Array:
    """u8[S, S]: the ground `terrain` with everything on it and its border. Last comes the border, over all else."""
    k_clusters, k_grass, k_fish = jax.random.split(key, 3)
    terrain = with_clusters(k_clusters, square, terrain, counts.clusters)
    tiles, fits = drawn(k_grass, (terrain == GRASS) & square.box(1), counts.uniform + 2 * counts.extra)
    herbs, rest = jnp.split(tiles, [counts.uniform])
    herbs_fit, rest_fit = jnp.split(fits, [counts.uniform])
    terrain = put(terrain, herbs, herbs_fit, jnp.full(counts.uniform, HERB, jnp.uint8))
    shore = (terrain == WATER) & beside(terrain == GRASS) & square.box(2, 1)
    # The reference rejects a map with too few places for fish. Here it has fewer fish. No sampled map was seen so.
    fish, fish_fit = drawn(k_fish, shore, counts.uniform)
    terrain = put(terrain, fish, fish_fit, jnp.full(counts.uniform, FISH, jnp.uint8))
    extra = jnp.repeat(jnp.array([WATER, FOLIAGE], jnp.uint8), counts.extra)
    return bordered(square, put(terrain, rest, rest_fit, extra))


def with_patches(terrain: jax.Array, tiles: np.ndarray) -> jax.Array:
    """The ground where each of these tiles (i32[Y, 2], which tasks are about) is a herb amid 5 x 5 of grass."""
    for row, column in tiles.tolist():
        patch = slice(row - PATCH, row + PATCH + 1), slice(column - PATCH, column + PATCH + 1)
        terrain = terrain.at[patch].set(GRASS).at[row, column].set(HERB)
    return terrain


def with_clusters(key: jax.Array, square: Square, terrain: jax.Array, n: int) -> jax.Array:
    """The ground with n clusters of ore, trees and crystals each, on grass. A centre lies on grass that is left."""
    tiles, fits = drawn(key, (terrain == GRASS) & square.box(2), 8 * n)
    row, column = tiles // square.side, tiles % square.side
    close = jnp.abs(row[:, None] - row[None, :]) + jnp.abs(column[:, None] - column[None, :]) <= 1
    earlier_and_close = close & np.tril(np.ones((8 * n, 8 * n), bool), -1)
    accepted = fits
    for _ in range(ROUNDS):
        accepted = fits & ~(earlier_and_close & accepted[None, :]).any(axis=1)
    rank = jnp.cumsum(accepted) - 1
    accepted &= rank < 3 * n
    covered = (tiles[:, None] + jnp.asarray(CROSS[:, 0] * square.side + CROSS[:, 1])[None, :]).reshape(-1)
    none = 3 * n
    ranks = jnp.repeat(jnp.where(accepted, rank, none), len(CROSS)).astype(jnp.int32)
    first = jnp.full(terrain.size, none, jnp.int32).at[covered].min(ranks).reshape(terrain.shape)
    material = jnp.array([ORE, TREE, CRYSTAL], jnp.uint8)[first % 3]
    return jnp.where((first < none) & (terrain == GRASS), material, terrain)


def drawn(key: jax.Array, allowed: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    """(i32[n], bool[n]): n different allowed tiles of a map, uniform, in random order; which are there."""
    order = jnp.where(allowed, jax.random.uniform(key, allowed.shape, jnp.float32), -1.0)
    value, tiles = jax.lax.top_k(order.reshape(-1), n)
    return tiles.astype(jnp.int32), value >= 0


def put(terrain: jax.Array, tiles: jax.Array, fits: jax.Array, materials: jax.Array) -> jax.Array:
    """The ground with `materials` (u8[n]) on those of `tiles` (i32[n]) that fit."""
    outside = terrain.size
    flat = terrain.reshape(-1).at[jnp.where(fits, tiles, outside)].set(materials, mode="drop")
    return flat.reshape(terrain.shape)


def beside(there: jax.Array) -> jax.Array:
    """bool[S, S], which tiles have one of `there` (bool[S, S]) to the north, south, east or west."""
    wide = jnp.pad(there, 1)
    return wide[:-2, 1:-1] | wide[2:, 1:-1] | wide[1:-1, :-2] | wide[1:-1, 2:]


def bordered(square: Square, terrain: jax.Array) -> jax.Array:
    """The map with void outside its square, grass on its edge, and neither water nor stone next to the edge."""
    radius = square.centre // 2
    barred = (terrain == WATER) | (terrain == STONE)
    terrain = jnp.where((square.distances == radius - 1) & barred, jnp.uint8(FOLIAGE), terrain)
    terrain = jnp.where(square.distances == radius, jnp.uint8(GRASS), terrain)
    return jnp.where(square.distances > radius, jnp.uint8(VOID), terrain)

"""The ground of a map from noise: water, grass, foliage and stone, before anything is placed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.noise import hashed_gradients, simplex
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.tables import FOLIAGE, GRASS, STONE, WATER

TILES_PER_OCTAVE = 8
FREQUENCY = -3  # the base-2 logarithm of the first octave's frequency
LIMITS = ((0.30, WATER), (0.70, GRASS), (0.85, FOLIAGE))  # the highest fractal of each material; above is stone

Noise = Callable[[np.ndarray], jax.Array]
"""n fields [n, S, S] of noise with these frequencies, f64[n] in waves a tile."""


def n_octaves(square: Square) -> int:
    """How many noise fields a map mixes."""
    return square.centre // TILES_PER_OCTAVE


def octave_frequencies(square: Square) -> np.ndarray:
    """f64[n], waves a tile. Up to a centre of 128, all are alike."""
    last = min(FREQUENCY, 4 - np.log2(square.centre))
    return np.logspace(FREQUENCY, last, n_octaves(square), base=2)


def mask_frequencies(square: Square) -> np.ndarray:
    """f64[k], of the fields that say which octave is used where. The first counts most."""
    return 2.0 ** -np.arange(int(np.log2(square.centre)) - 2, 1, -1)


def sampled_noise(key: jax.Array, side: int) -> Noise:
    """Random fields, f32: freely placed parts of noise without an end. `key` must differ for octaves and mask."""

    def noise(frequencies: np.ndarray) -> jax.Array:
        n = len(frequencies)
        k_offsets, k_fields = jax.random.split(key)
        offsets = jax.random.uniform(k_offsets, (2, n, 1, 1), jnp.float32, 0, 256)
        fields = jax.random.bits(k_fields, (n, 1, 1), jnp.uint32)
        line = jnp.asarray(frequencies, jnp.float32)[:, None] * jnp.arange(side, dtype=jnp.float32)[None, :]
        x = jnp.broadcast_to(line[:, None, :] + offsets[0], (n, side, side))
        y = jnp.broadcast_to(line[:, :, None] + offsets[1], (n, side, side))
        return simplex(x, y, hashed_gradients(fields))

    return noise


def octave_of(square: Square, masks: jax.Array) -> jax.Array:
    """i32[S, S], the number of the octave that the mask's fields [k, S, S] choose for each tile."""
    weights = jnp.asarray(2.0 ** -np.arange(len(masks)), masks.dtype)
    mask = (masks * weights[:, None, None]).sum(axis=0)
    share = (mask - mask.min()) / (mask.max() - mask.min())
    n = n_octaves(square)
    return jnp.clip(jnp.floor(n * share - 1e-12), 0, n - 1).astype(jnp.int32)


def places_of(square: Square, chosen: jax.Array) -> jax.Array:
    """i32[n, S, S] in 0 .. 2 n - 2, where each octave stands relative to the one that a tile takes, n - 1.

    `chosen` is i32[S, S], as `octave_of` gives it. Towards the middle, the distance takes the place of the mask. The
    reference computes with floats: where the division leaves no rest, it may be one lower.
    """
    n, half = n_octaves(square), square.centre // 2
    number = np.arange(n, dtype=np.int32)[:, None, None]
    inside = half - square.distances[None]
    ring = np.clip(inside * n // half, 0, n - 1)
    by_distance = np.where(inside >= 0, n - 1 - ring + number, 0)
    reach = half - 2
    outward = np.minimum(square.distances, reach)[None]
    total = outward * by_distance + (reach - outward) * (chosen[None] - 1 + number)
    index = jax.lax.div(total, jnp.full_like(total, reach))
    return jnp.where(index < 0, 2 * n - 2, index)  # the reference's index -1 is the last one


def fractal(octaves: jax.Array, places: jax.Array, sharpness: jax.Array) -> jax.Array:
    """[S, S] in [0, 1], the height of each tile: a blend of octaves [n, S, S], few if `sharpness` (to 1) is small."""
    middle = len(octaves) - 1
    offset = (places - middle).astype(octaves.dtype) / middle
    weight = jnp.exp(-((offset / sharpness) ** 2))  # a normal density relative to its peak, squared
    value = (weight * octaves).sum(axis=0)
    value = value * (octaves.std() / value.std())
    return 0.5 + jnp.clip(value, -1, 1) / 2


def materials_of(height: jax.Array) -> jax.Array:
    """u8[S, S], the material of each tile by its fractal."""
    material = jnp.full(height.shape, STONE, jnp.uint8)
    for limit, kind in reversed(LIMITS):
        material = jnp.where(height <= limit, jnp.uint8(kind), material)
    return material


def sample_terrain(key: jax.Array, square: Square, sharpness: jax.Array) -> jax.Array:
    """u8[S, S], the ground of a random map."""
    k_octaves, k_mask = jax.random.split(key)
    octaves = sampled_noise(k_octaves, square.side)(octave_frequencies(square))
    masks = sampled_noise(k_mask, square.side)(mask_frequencies(square))
    return materials_of(fractal(octaves, places_of(square, octave_of(square, masks)), sharpness))

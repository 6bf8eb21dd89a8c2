"""Simplex noise in two dimensions (Perlin 2001), with gradients from a table or from a hash."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.nmmo.tables import TABLES

SKEW, UNSKEW = (np.sqrt(3.0) - 1) / 2, (3 - np.sqrt(3.0)) / 6
# f32[12, 2] (x, y). The diagonals are there once each and the axes twice.
GRADIENTS = np.array(TABLES["simplex"]["gradients_xy"], np.float32)

GradientOf = Callable[[jax.Array, jax.Array], jax.Array]
"""The number 0..11 of the gradient at the corner (i, j) of the lattice, i32[...]."""


def simplex(x: jax.Array, y: jax.Array, gradient_of: GradientOf) -> jax.Array:
    """The noise at (x, y), of the same shape and type, in about [-1, 1]."""
    skewed = (x + y) * SKEW
    i, j = jnp.floor(x + skewed), jnp.floor(y + skewed)
    unskewed = (i + j) * UNSKEW
    x0, y0 = x - i + unskewed, y - j + unskewed
    right = (x0 > y0).astype(x.dtype)  # whether the second corner is (1, 0) or (0, 1)
    i, j, step = i.astype(jnp.int32), j.astype(jnp.int32), (x0 > y0).astype(jnp.int32)
    corners = [
        (x0, y0, i, j),
        (x0 - right + UNSKEW, y0 - (1 - right) + UNSKEW, i + step, j + 1 - step),
        (x0 - 1 + 2 * UNSKEW, y0 - 1 + 2 * UNSKEW, i + 1, j + 1),
    ]
    total = jnp.zeros_like(x)
    for dx, dy, at_i, at_j in corners:
        falloff = jnp.maximum(0.5 - dx * dx - dy * dy, 0) ** 2
        total += falloff * falloff * _slope(gradient_of(at_i, at_j), dx, dy)
    return 70 * total


def _slope(number: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The product of the gradient with this number and (x, y), without a look into the table.

    Numbers 0..3 are the diagonals, 4..7 along x, 8..11 along y. Odd ones point back along x; of the diagonals, those
    from 2 on point back along y; of the last four, the odd ones do.
    """
    along_x = jnp.where(number % 2 == 0, x, -x)
    along_y = jnp.where(number < 4, jnp.where(number < 2, y, -y), jnp.where(number % 2 == 0, y, -y))
    return jnp.where(number < 8, along_x, 0) + jnp.where((number < 4) | (number >= 8), along_y, 0)


def hashed_gradients(field: jax.Array) -> GradientOf:
    """The gradients of the noise field with the key `field` (u32[...], of a shape that fits the points).

    A number is a random byte modulo 12, as in the reference: there, too, the first four are a little likelier.
    """

    def gradient_of(i: jax.Array, j: jax.Array) -> jax.Array:
        mixed = _mix(field + _mix(j.astype(jnp.uint32) + _mix(i.astype(jnp.uint32))))
        return ((mixed & 255) % 12).astype(jnp.int32)

    return gradient_of


def _mix(x: jax.Array) -> jax.Array:
    """A bijection of u32 in which every bit of the result depends on all bits (Wellons's lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)

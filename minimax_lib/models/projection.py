"""Dense layers on sequences, and the one place that knows in which of two ways their features come.

Most features are arrays. Those of images that change slowly are not worked out at all: their product with a matrix is
(`slow_images`), which on a CPU is far less work. Whoever multiplies features does it by what is defined here.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.models.initializers import Initializer
from minimax_lib.models.slow_images import SlowFeatures, SlowImage, project

Features = jax.Array | SlowFeatures  # [T, R, F]; both have a shape


def side_by_side(parts: Sequence[jax.Array | SlowImage]) -> Features:
    """The features [T, R, F] of all parts, in their order."""
    arrays = [part for part in parts if not isinstance(part, SlowImage)]
    if len(arrays) < len(parts):
        return SlowFeatures(tuple(parts))
    return jnp.concatenate(arrays, axis=-1)


def multiplied(features: Features, kernel: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """What is left to multiply with what: (features, kernel), or (their product, None) where it is done already.

    A recurrence joins the product of an array with its own. The product by changes it cannot join.
    """
    return (project(features, kernel), None) if isinstance(features, SlowFeatures) else (features, kernel)


class Projection(nn.Module):
    """A dense layer: [T * R, width] of features [T, R, F], all in one product that needs no transposes."""

    width: int
    kernel_init: Initializer
    dtype: Any = jnp.float32  # of the product

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, (features.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        if isinstance(features, SlowFeatures):
            return (project(features, kernel).reshape(-1, self.width) + bias[None]).astype(self.dtype)
        flat = features.reshape(-1, features.shape[-1]).astype(self.dtype)
        return flat @ kernel.astype(self.dtype) + bias[None].astype(self.dtype)

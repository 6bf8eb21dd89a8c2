"""Dense layers on sequences, for both forms of features.

Most features are arrays. The features of images that change slowly are never computed. Only their product with a matrix
is (`slow_images`), which is far less work on a CPU. Only this module knows both forms: other modules multiply features
with the functions below.
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
    """(their product, None) for features that change slowly; (features, kernel), not multiplied yet, for an array.

    A recurrence can join the product of an array with its own product, but not the product of slow features.
    """
    return (project(features, kernel), None) if isinstance(features, SlowFeatures) else (features, kernel)


class Projection(nn.Module):
    """A dense layer: [T * R, width] of features [T, R, F], as one product that needs no transposes."""

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

"""Dense layers on sequences, whatever kind of features they are given."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.models.initializers import Initializer
from minimax_lib.models.slow_images import SlowFeatures, project

Features = jax.Array | SlowFeatures  # [T, R, F]; both have a shape


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

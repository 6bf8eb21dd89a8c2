"""Dense layers on sequences, whatever kind of features they are given."""

import flax.linen as nn
import jax

from minimax_lib.models.initializers import Initializer
from minimax_lib.models.slow_images import SlowFeatures, project

Features = jax.Array | SlowFeatures  # [T, R, F]; both have a shape


class Projection(nn.Module):
    """A dense layer: f32[T * R, width] of features [T, R, F], all in one product that needs no transposes."""

    width: int
    kernel_init: Initializer

    @nn.compact
    def __call__(self, features: Features) -> jax.Array:
        kernel = self.param("kernel", self.kernel_init, (features.shape[-1], self.width))
        bias = self.param("bias", nn.initializers.zeros, (self.width,))
        if isinstance(features, SlowFeatures):
            return project(features, kernel).reshape(-1, self.width) + bias[None]
        return features.reshape(-1, features.shape[-1]) @ kernel + bias[None]

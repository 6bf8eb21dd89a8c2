"""From observations to features, whatever the observation space."""

from typing import Any, TypeGuard

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.models.initializers import GAIN_RELU, orthogonal


def is_image(space: Space) -> TypeGuard[Box]:
    """Whether observations are integer arrays [height, width, channels]."""
    return isinstance(space, Box) and len(space.shape) == 3 and np.issubdtype(np.dtype(space.dtype), np.integer)


def leaf_spaces(space: Space, name: str = "observation") -> list[tuple[str, Space]]:
    """The named parts of an observation, nested dictionaries unpacked."""
    if not isinstance(space, Dict):
        return [(name, space)]
    return [leaf for part, inner in space.items for leaf in leaf_spaces(inner, part)]


class Torso(nn.Module):
    """Features f32[..., F] of observations that fit `space`: what each part gives, side by side.

    An image (integer Box of rank 3) goes through one convolution, a Discrete through an embedding, any other Box is
    flattened. A Dict is its parts, in its order.
    """

    space: Space
    n_filters: int
    kernel_size: int
    image_scale: float
    embedding_width: int

    @nn.compact
    def __call__(self, obs: Any) -> jax.Array:
        return jnp.concatenate(self._features(self.space, obs, "observation"), axis=-1)

    def _features(self, space: Space, obs: Any, name: str) -> list[jax.Array]:
        if isinstance(space, Dict):
            return [f for part, inner in space.items for f in self._features(inner, obs[part], part)]
        if isinstance(space, Discrete):
            return [nn.Embed(space.n, self.embedding_width, embedding_init=orthogonal(), name=name)(obs)]
        if is_image(space):
            return [ImageEncoder(self.n_filters, self.kernel_size, self.image_scale, name=name)(obs)]
        return [obs.reshape(*obs.shape[: obs.ndim - len(space.shape)], -1).astype(jnp.float32)]


class ImageEncoder(nn.Module):
    """ReLU of one convolution without padding, stride 1, over images [..., h, w, c]; flattened.

    Written as one product of two matrices, all windows by the kernel: inside a loop, as in training, XLA's convolution
    is ten times slower on the CPU.
    """

    n_filters: int
    kernel_size: int
    scale: float  # the image is divided by it

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        patches = windows(image, self.kernel_size)
        patches = patches.reshape(-1, patches.shape[-1]).astype(jnp.float32) / self.scale
        x = nn.Dense(self.n_filters, kernel_init=orthogonal(GAIN_RELU), name="conv")(patches)
        return nn.relu(x).reshape(*image.shape[:-3], -1)


def windows(image: jax.Array, size: int) -> jax.Array:
    """All size x size windows of images [..., h, w, c], row by row, each flattened: [..., n, size * size * c]."""
    height, width, n_channels = image.shape[-3:]
    corners = [(y, x) for y in range(height - size + 1) for x in range(width - size + 1)]
    stacked = jnp.stack([image[..., y : y + size, x : x + size, :] for y, x in corners], axis=-4)
    return stacked.reshape(*image.shape[:-3], len(corners), size * size * n_channels)

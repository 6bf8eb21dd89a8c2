"""From observations to features, whatever the observation space."""

import functools
import operator
from typing import Any, TypeGuard

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.models.initializers import GAIN_RELU, orthogonal
from minimax_lib.models.projection import Features, side_by_side
from minimax_lib.models.slow_images import Convolution, SlowImage, changes_are_cheap


def is_image(space: Space) -> TypeGuard[Box]:
    """Whether observations are integer arrays [height, width, channels]."""
    return isinstance(space, Box) and len(space.shape) == 3 and np.issubdtype(np.dtype(space.dtype), np.integer)


def leaf_spaces(space: Space, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Box | Discrete]]:
    """The parts of an observation and the names that lead to each; one part, and no name, if `space` is not a Dict."""
    if not isinstance(space, Dict):
        return [(path, space)]
    return [leaf for name, inner in space.items for leaf in leaf_spaces(inner, (*path, name))]


def part_name(path: tuple[str, ...]) -> str:
    """What a part is called in messages and among the parameters."""
    return ".".join(path) or "observation"


class Torso(nn.Module):
    """Features [..., F] of observations that fit `space`: what each part gives, side by side.

    An image (integer Box of rank 3) goes through one convolution, a Discrete through an embedding, any other Box is
    flattened. A Dict is its parts, in its order.
    """

    space: Space
    n_filters: int
    kernel_size: int
    image_scale: float
    embedding_width: int
    dtype: Any = jnp.float32  # of the features

    @nn.compact
    def __call__(self, obs: Any) -> Features:
        parts = [
            self._encode(part_name(path), space, functools.reduce(operator.getitem, path, obs))
            for path, space in leaf_spaces(self.space)
        ]
        return side_by_side(parts)

    def _encode(self, name: str, space: Box | Discrete, part: jax.Array) -> jax.Array | SlowImage:
        rank = 0 if isinstance(space, Discrete) else len(space.shape)
        leading = part.shape[: part.ndim - rank]
        flat = part.reshape(-1, *part.shape[len(leading) :])  # so that products of matrices need no transposes
        if isinstance(space, Discrete):
            embed = nn.Embed(space.n, self.embedding_width, self.dtype, embedding_init=orthogonal(), name=name)
            features = embed(flat)
        elif is_image(space):
            encoder = ImageEncoder(self.n_filters, self.kernel_size, self.image_scale, self.dtype, name=name)
            # A rollout asks for one step at a time, where there is nothing to compare with.
            if space.changes_slowly and changes_are_cheap(n_steps=len(part)):
                return encoder.by_changes(part)
            features = encoder(flat)
        else:
            features = flat.astype(self.dtype)
        return features.reshape(*leading, -1)


class ImageEncoder(nn.Module):
    """ReLU of one convolution without padding, stride 1, over images [n, h, w, c]; flattened.

    Written as one product of two matrices, all windows by the kernel: inside a loop, as in training, XLA's convolution
    is ten times slower on the CPU.
    """

    n_filters: int
    kernel_size: int
    scale: float  # the image is divided by it
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.conv = Filters(self.n_filters, self.kernel_size, self.scale)

    def __call__(self, image: jax.Array) -> jax.Array:
        patches = windows(image, self.kernel_size)
        conv = self.conv(image.shape[-1]).astype(self.dtype)
        features = conv.features(patches.reshape(-1, patches.shape[-1]))
        return features.reshape(len(image), -1)

    def by_changes(self, image: jax.Array) -> SlowImage:
        """The same features of sequences of images [T, R, h, w, c], which are computed later, where they change."""
        return SlowImage(image, self.conv(image.shape[-1]))


class Filters(nn.Module):
    """The parameters of a convolution."""

    n_filters: int
    size: int
    scale: float

    @nn.compact
    def __call__(self, n_channels: int) -> Convolution:
        kernel = self.param("kernel", orthogonal(GAIN_RELU), (self.size**2 * n_channels, self.n_filters))
        bias = self.param("bias", nn.initializers.zeros, (self.n_filters,))
        return Convolution(kernel, bias, self.size, self.scale)


def windows(image: jax.Array, size: int) -> jax.Array:
    """All size x size windows of images [..., h, w, c], row by row, each flattened: [..., n, size * size * c]."""
    height, width, n_channels = image.shape[-3:]
    down, across = height - size + 1, width - size + 1
    shifted = [image[..., y : y + down, x : x + across, :] for y in range(size) for x in range(size)]
    return jnp.concatenate(shifted, axis=-1).reshape(*image.shape[:-3], down * across, size * size * n_channels)

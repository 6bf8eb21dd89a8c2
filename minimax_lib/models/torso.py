"""From observations to features, whatever the observation space."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Discrete, MultiDiscrete
from minimax_lib.models.initializers import GAIN_RELU, orthogonal
from minimax_lib.models.parts import ObservationPart
from minimax_lib.models.projection import Features, Projection, side_by_side
from minimax_lib.models.slow_images import Convolution, SlowImage, changes_are_cheap


class Torso(nn.Module):
    """Features [..., F] of observations: those of each part, side by side, in the order of `parts`.

    An image goes through convolutions. An image is a Box of rank 3, [height, width, channels], of any type. Any other
    Box is flattened and goes through dense layers. With a depth of 0, a Box is only flattened. Each number of a
    Discrete or MultiDiscrete has its own embedding. Bools become 0 and 1.
    """

    parts: tuple[ObservationPart, ...]
    n_filters: int
    kernel_size: int
    embedding_width: int
    vector_width: int
    dtype: Any = jnp.float32  # of the features

    @nn.compact
    def __call__(self, obs: Any) -> Features:
        return side_by_side([self._encode(part, part.of(obs)) for part in self.parts])

    def _encode(self, part: ObservationPart, values: jax.Array) -> jax.Array | SlowImage:
        encoder = self._encoder(part)
        # A rollout computes one step at a time. There, no earlier step is at hand to compare with.
        if part.goes_by_changes and changes_are_cheap(n_steps=len(values)):
            return encoder.by_changes(values)
        leading = values.shape[: values.ndim - len(part.shape)]
        features = encoder(values.reshape(-1, *part.shape))  # flat, so that products of matrices need no transposes
        return features.reshape(*leading, -1)

    def _encoder(self, part: ObservationPart) -> Any:
        space, name = part.space, module_name(part.name)
        if isinstance(space, Discrete):
            return nn.Embed(space.n, self.embedding_width, self.dtype, embedding_init=orthogonal(), name=name)
        if isinstance(space, MultiDiscrete):
            return Embeddings(space.sizes, self.embedding_width, self.dtype, name=name)
        if part.is_convolved:
            return ImageEncoder(self.n_filters, self.kernel_size, part.scale, part.depth, self.dtype, name=name)
        return VectorEncoder(self.vector_width, part.scale, part.depth, self.dtype, name=name)


def module_name(name: str) -> str:
    """The name of a part's module: that of the part, with an _ added if `Torso` itself has a member of that name."""
    return f"{name}_" if name in KEPT else name


# A flax module cannot have a submodule with the name of one of its methods or fields, and a part may be called "path".
KEPT = frozenset(dir(Torso)) | frozenset(field.name for field in dataclasses.fields(Torso))


class Embeddings(nn.Module):
    """[n, k * width] of numbers [n, k]. Each number has its own table; number i is one of 0 .. sizes[i] - 1."""

    sizes: tuple[int, ...]
    width: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, numbers: jax.Array) -> jax.Array:
        # The tables are stacked, so that one gather reads them all.
        table = self.param("embedding", self._tables, (sum(self.sizes), self.width))
        offsets = np.cumsum([0, *self.sizes[:-1]], dtype=np.int32)
        return table.astype(self.dtype)[numbers + offsets[None]].reshape(len(numbers), -1)

    def _tables(self, key: jax.Array, shape: Sequence[int]) -> jax.Array:
        keys = jax.random.split(key, len(self.sizes))
        tables = [orthogonal()(k, (size, shape[-1])) for k, size in zip(keys, self.sizes, strict=True)]
        return jnp.concatenate(tables)


class VectorEncoder(nn.Module):
    """Inputs [n, ...] are flattened, then go through `depth` dense ReLU layers of `width` units."""

    width: int
    scale: float  # inputs are divided by it
    depth: int = 0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        # Divided before it is rounded to `dtype`, so that only the quotient is rounded.
        x = (x if self.scale == 1.0 else x / self.scale).astype(self.dtype).reshape(len(x), -1)
        for i in range(self.depth):
            x = nn.relu(Projection(self.width, orthogonal(GAIN_RELU), self.dtype, name=f"dense_{i}")(x))
        return x


class ImageEncoder(nn.Module):
    """Images [n, h, w, c] go through `depth` convolutions with ReLUs, and are then flattened. No padding, stride 1.

    The first convolution has `n_filters` filters, the others twice as many. Each is written as one product of two
    matrices: all windows times the kernel. On a CPU, XLA's own convolution is ten times slower inside a loop, as in
    training.
    """

    n_filters: int
    kernel_size: int
    scale: float  # the image is divided by it
    depth: int = 1
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.conv = Filters(self.n_filters, self.kernel_size, self.scale)
        self.further = [Filters(2 * self.n_filters, self.kernel_size, scale=1.0) for _ in range(self.depth - 1)]

    def __call__(self, image: jax.Array) -> jax.Array:
        features = self._convolved(self.conv, image)
        down, across = image.shape[1:3]
        for conv in self.further:
            down, across = down - self.kernel_size + 1, across - self.kernel_size + 1
            features = self._convolved(conv, features.reshape(len(image), down, across, -1))
        return features.reshape(len(image), -1)

    def _convolved(self, filters: "Filters", image: jax.Array) -> jax.Array:
        """[n * windows, filters]."""
        patches = windows(image, self.kernel_size)
        conv = filters(image.shape[-1]).astype(self.dtype)
        return conv.features(patches.reshape(-1, patches.shape[-1]))

    def by_changes(self, image: jax.Array) -> SlowImage:
        """The same features for sequences of images [T, R, h, w, c], computed later and only where the images change.

        For one convolution only.
        """
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
    """[..., n, size * size * c]: all size x size windows of images [..., h, w, c], row by row, each flattened."""
    height, width, n_channels = image.shape[-3:]
    down, across = height - size + 1, width - size + 1
    shifted = [image[..., y : y + down, x : x + across, :] for y in range(size) for x in range(size)]
    return jnp.concatenate(shifted, axis=-1).reshape(*image.shape[:-3], down * across, size * size * n_channels)

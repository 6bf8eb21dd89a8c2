"""The network of the grid worlds in Prioritized Level Replay (Jiang et al. 2021a, appendix A.2)."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import Box, Discrete, Space
from minimax_lib.models import small_convolutions
from minimax_lib.models.distributions import check_policy
from minimax_lib.models.initializers import orthogonal
from minimax_lib.models.network import Network
from minimax_lib.models.parts import ObservationPart, is_image, parts_of
from minimax_lib.models.projection import Projection
from minimax_lib.models.settings import at_least
from minimax_lib.models.small_convolutions import SMALLEST, Layer

FILTERS = (16, 32)  # of the first two convolutions


@dataclasses.dataclass(frozen=True)
class GridConv:
    """The convolutional network of Prioritized Level Replay's grid worlds, without memory.

    It reads one image, as it is, and whatever else there is in the observation as further channels.
    """

    last_filters: int = 32
    """Filters of the third and last convolution. The first two have 16 and 32. Published: 32 for MultiRoom, 64 for
    ObstructedMaze."""
    head_width: int = 64
    """Tanh units of the policy's branch, and of the value's branch."""
    n_values: int = 1
    """Number of estimates of the value. Their mean is the value, their spread the score value_disagreement."""

    def __post_init__(self) -> None:
        for name in ("last_filters", "head_width", "n_values"):
            at_least(1, name, getattr(self, name))

    def build(self, observation_space: Space, action_space: Space) -> "GridConvNet":
        """The network for these spaces; ValueError if there is not one image, of at least 7 x 7 cells."""
        check_policy(observation_space, action_space)
        parts = parts_of(observation_space, image_scale=1.0, scales={}, depths={})
        images = [part for part in parts if is_image(part.space)]
        if len(images) != 1:
            found = ", ".join(repr(part.name) for part in images) or "none"
            raise ValueError(
                f"the model grid_conv reads one image, but the images in the observation are {found}: choose ff"
            )
        height, width = images[0].shape[:2]
        if min(height, width) < SMALLEST:
            raise ValueError(
                f"the observation {images[0].name!r} is {height}x{width}: for the model grid_conv, it must be at least "
                f"{SMALLEST}x{SMALLEST} (any size: ff)"
            )
        others = tuple(part for part in parts if part is not images[0])
        return GridConvNet(images[0], others, action_space, self.last_filters, self.head_width, self.n_values)


class GridConvNet(Network):
    """Policy and value from one image, each with its own branch after the convolutions.

    The image is not scaled. Everything else in the observation is a channel with the same number in every cell: a Box
    as it is, a discrete number as one 0 or 1 for each of its values.
    """

    image: ObservationPart
    others: tuple[ObservationPart, ...]
    action_space: Space
    last_filters: int
    head_width: int
    n_values: int = 1

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        image = self.image.of(obs)
        image = image.reshape(-1, *image.shape[2:])
        constants = [constant_channels(part, part.of(obs), len(image)) for part in self.others]
        layers = self._layers(image.shape[-1], constants)
        features = small_convolutions.features(image, layers)
        # One product computes both branches. Each starts as its own orthogonal matrix.
        branches = Projection(2 * self.head_width, orthogonal(math.sqrt(2.0), n_blocks=2), name="heads")(features)
        policy, value = jnp.split(nn.tanh(branches), 2, axis=-1)
        return self.policy_head(policy, obs, first, orthogonal(0.01)), self.value_head(value, first), carry

    def _layers(self, n_channels: int, constants: list[jax.Array]) -> tuple[Layer, Layer, Layer]:
        n_constants = sum(x.shape[-1] for x in constants)
        first = self._layer("conv_0", n_channels + n_constants, FILTERS[0])
        if constants:
            # A window of a constant channel adds the same everywhere, like a bias.
            weights = first.kernel[:, :, n_channels:].sum(axis=(0, 1))
            added = jnp.concatenate(constants, axis=-1) @ weights + first.bias[None]
            first = Layer(first.kernel[:, :, :n_channels], added)
        return first, self._layer("conv_1", *FILTERS), self._layer("conv_2", FILTERS[1], self.last_filters)

    def _layer(self, name: str, n_inputs: int, n_filters: int) -> Layer:
        kernel = self.param(f"{name}_kernel", nn.initializers.glorot_uniform(), (2, 2, n_inputs, n_filters))
        return Layer(kernel, self.param(f"{name}_bias", nn.initializers.zeros, (n_filters,)))


def constant_channels(part: ObservationPart, values: jax.Array, n: int) -> jax.Array:
    """f32[n, channels] of the values [T, R, ...] of a part, n = T * R."""
    if isinstance(part.space, Box):
        return values.reshape(n, -1).astype(jnp.float32)
    sizes = (part.space.n,) if isinstance(part.space, Discrete) else part.space.sizes
    numbers = values.reshape(n, len(sizes))
    return jnp.concatenate([jax.nn.one_hot(numbers[:, i], size) for i, size in enumerate(sizes)], axis=-1)

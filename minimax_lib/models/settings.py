"""Settings of the networks. The defaults are those of the published student (Jiang et al. 2023)."""

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp

from minimax_lib.envs.spaces import Space
from minimax_lib.models.actor_critic import ActorCritic
from minimax_lib.models.distributions import Gaussian, check_policy
from minimax_lib.models.memory import GRUMemory, LSTMMemory, NoMemory
from minimax_lib.models.parts import ObservationPart, by_name, check_kernel, is_integer_image, parts_of
from minimax_lib.models.s5 import GLU, Discretisation, Norm, S5Memory, StateSpace
from minimax_lib.models.torso import Torso

# Every layer adds to the compile time. The eigenvalues of an S5 layer are those of a matrix, computed on the host.
MOST_LAYERS, MOST_STATES = 100, 4096


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """The settings that all networks have: those of the layers before and after the memory."""

    conv_filters: int = 16
    """Filters of the first convolution over an image. Further convolutions (depths) have twice as many."""
    kernel_size: int = 3
    """Side of the convolutions' square kernels, in cells. There is no padding."""
    image_scale: float = 10.0
    """Images of integers are divided by it, except for those with their own scale (scales)."""
    scales: tuple[str, ...] = ()
    """Numbers that divide parts of the observation, as in image=255 speed=8. A part of a part is written
    inner.image=255, an observation without parts observation=255. By default, images of integers are divided by
    image_scale, and all other parts by 1."""
    depths: tuple[str, ...] = ()
    """Number of layers over parts of the observation, as in image=2 speed=1. An image has convolutions with ReLUs, any
    other part dense ReLU layers of vector_width units. With 0, a part is only flattened. By default, images have 1
    layer, and all other parts have 0."""
    vector_width: int = 64
    """Units of each dense layer over a part of the observation (depths)."""
    embedding_width: int = 5
    """Units of the embedding of a discrete observation (a direction, the time step). Each number has its own."""
    head_width: int = 32
    """Tanh units of the policy's head, and of the value's head."""
    n_values: int = 1
    """Number of estimates of the value. Their mean is the value, their spread the score value_disagreement."""

    gaussian: Gaussian = "plain"
    """Distribution of real-valued actions. plain: a Gaussian, whose actions are clipped to their bounds. squashed: the
    tanh of a Gaussian, which stays within the bounds."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the network's activations. With bfloat16, they take half the memory, and each is off by up to 0.4%.
    Parameters, the memory's carry and the outputs stay float32."""

    def __post_init__(self) -> None:
        for name in ("conv_filters", "kernel_size", "vector_width", "embedding_width", "head_width", "n_values"):
            at_least(1, name, getattr(self, name))
        if not 0 < self.image_scale < math.inf:
            raise ValueError(f"model.image_scale is {self.image_scale}: it must be positive and finite")
        for name, scale in self._scales.items():
            if not 0 < scale < math.inf:
                raise ValueError(f"model.scales has {name}={scale}: it must be positive and finite")
        for name, depth in self._depths.items():
            if depth < 0:
                raise ValueError(f"model.depths has {name}={depth}: it must be at least 0")
            if depth > MOST_LAYERS:
                raise ValueError(f"model.depths has {name}={depth}: it must be at most {MOST_LAYERS}")

    def build(self, observation_space: Space, action_space: Space) -> ActorCritic:
        """The network for these spaces; ValueError if the settings do not fit them."""
        check_policy(observation_space, action_space, self.gaussian)
        parts = parts_of(observation_space, self.image_scale, self._scales, self._depths)
        check_kernel(parts, self.kernel_size)
        self._check_used(parts)
        torso = Torso(parts, self.conv_filters, self.kernel_size, self.embedding_width, self.vector_width, self._dtype)
        return ActorCritic(
            torso, self._memory(), action_space, self.head_width, self.n_values, self._dtype, self.gaussian
        )

    def _check_used(self, parts: tuple[ObservationPart, ...]) -> None:
        """ValueError if image_scale or vector_width was changed, but applies to no part of the observation."""
        default = type(self)  # a dataclass keeps every default as an attribute of the class
        by_scale = [part for part in parts if is_integer_image(part.space)]
        if self.image_scale != default.image_scale and all(part.name in self._scales for part in by_scale):
            raise ValueError(
                f"model.image_scale is {self.image_scale}, but no part of the observation is an image of integers "
                f"without its own scale: it must be left at {default.image_scale} (other parts: model.scales)"
            )
        if self.vector_width != default.vector_width and not any(part.is_dense for part in parts):
            raise ValueError(
                f"model.vector_width is {self.vector_width}, but no part of the observation has dense layers: "
                f"it must be left at {default.vector_width} (layers: model.depths)"
            )

    @property
    def _scales(self) -> dict[str, float]:
        return by_name("scales", self.scales, float, "image=255")

    @property
    def _depths(self) -> dict[str, int]:
        return by_name("depths", self.depths, int, "image=2")

    @property
    def _dtype(self) -> jnp.dtype:
        return jnp.dtype(self.dtype)

    def _memory(self) -> nn.Module:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class LSTM(NetworkSettings):
    """A network with a long short-term memory."""

    memory_width: int = 256
    """Units of the memory."""
    memory_span: int | None = None
    """At the start, units hold for 1 to memory_span - 1 steps (chrono initialisation, Tallec & Ollivier 2018): about
    the time for which something must be remembered. None: all biases are 0, and half is forgotten in a step."""
    unroll: int | None = None
    """Steps of the recurrence in one iteration of the compiled loop. None: 1 on a CPU, 8 elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, "memory_width", self.memory_width)
        for name, bound in (("memory_span", 3), ("unroll", 1)):
            value = getattr(self, name)
            if value is not None:
                at_least(bound, name, value)

    def _memory(self) -> nn.Module:
        return LSTMMemory(self.memory_width, self.unroll, self._dtype, self.memory_span)


@dataclasses.dataclass(frozen=True)
class GRU(LSTM):
    """A network with a gated recurrent unit."""

    def _memory(self) -> nn.Module:
        return GRUMemory(self.memory_width, self.unroll, self._dtype, self.memory_span)


@dataclasses.dataclass(frozen=True)
class S5(NetworkSettings):
    """A network with a stack of S5 layers (Smith et al. 2022)."""

    memory_width: int = 256
    """Units of the linear layer before the S5 layers, and of each S5 layer."""
    n_layers: int = 2
    """Number of S5 layers."""
    state_size: int = 256
    """Eigenvalues of each layer's linear system, in conjugate pairs."""
    n_blocks: int = 2
    """Number of blocks of a layer's first eigenvalues. Each block has those of a HiPPO-N matrix of its size."""
    glu: GLU = "half1"
    """Gated linear units of a layer. With g = gelu(y), half1 is g sigmoid(W g), half2 is y sigmoid(W g), full is
    (V g) sigmoid(W g), and none is g."""
    norm: Norm = "after"
    """Place of a layer's norm: before its linear system, after its output was added to its input, or none."""
    discretisation: Discretisation = "zoh"
    """How the linear system is cut into steps: zero-order hold (zoh) or bilinear."""
    dt_min: float = 0.001
    """Lengths of steps are learnt. They start between dt_min and dt_max, log-uniformly."""
    dt_max: float = 0.1
    """See dt_min."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("memory_width", "n_layers", "state_size", "n_blocks"):
            at_least(1, name, getattr(self, name))
        pairs = 2 * self.n_blocks
        if self.state_size % pairs:
            nearest = max(round(self.state_size / pairs), 1) * pairs
            raise ValueError(
                f"model.state_size is {self.state_size}: model.n_blocks is {self.n_blocks}, so it must be a "
                f"multiple of {pairs} (try {nearest})"
            )
        for name, most in (("n_layers", MOST_LAYERS), ("state_size", MOST_STATES)):
            if getattr(self, name) > most:
                raise ValueError(f"model.{name} is {getattr(self, name)}: it must be at most {most}")
        for name in ("dt_min", "dt_max"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"model.{name} is {getattr(self, name)}: it must be positive and finite")
        if not self.dt_max >= self.dt_min:
            raise ValueError(f"model.dt_max is {self.dt_max}: it must be at least model.dt_min, {self.dt_min}")

    def _memory(self) -> nn.Module:
        space = StateSpace(self.state_size, self.n_blocks, self.discretisation, self.dt_min, self.dt_max)
        return S5Memory(self.memory_width, self.n_layers, space, self.glu, self.norm, self._dtype)


@dataclasses.dataclass(frozen=True)
class FeedForward(NetworkSettings):
    """A network without memory."""

    dense_width: int = 256
    """ReLU units of the dense layer that stands in the memory's place. 0: no such layer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, "dense_width", self.dense_width)

    def _memory(self) -> nn.Module:
        return NoMemory(self.dense_width, self._dtype)


def at_least(bound: int, name: str, value: int) -> None:
    """ValueError if the setting is below the bound."""
    if value < bound:
        raise ValueError(f"model.{name} is {value}: it must be at least {bound}")

"""Settings of the networks; the defaults are the published student (Jiang et al. 2023)."""

import dataclasses
import math
from typing import Literal

import flax.linen as nn
import jax.numpy as jnp

from minimax_lib.envs.spaces import Space
from minimax_lib.models.actor_critic import ActorCritic
from minimax_lib.models.distributions import Gaussian, check_policy
from minimax_lib.models.memory import GRUMemory, LSTMMemory, NoMemory
from minimax_lib.models.parts import Part, by_name, check_kernel, is_integer_image, parts_of
from minimax_lib.models.s5 import GLU, Discretisation, Norm, S5Memory, StateSpace
from minimax_lib.models.torso import Torso

# Layers are written out in the program, and the matrix of an S5 layer's states is worked out on the host.
MOST_LAYERS, MOST_STATES = 100, 4096


@dataclasses.dataclass(frozen=True)
class NetworkSettings:
    """What all networks share: the layers before and after the memory."""

    conv_filters: int = 16
    """Filters of the convolution over an image; further convolutions (depths) have twice as many."""
    kernel_size: int = 3
    """Side of the convolutions' square kernels, in cells; no padding."""
    image_scale: float = 10.0
    """Images of integers are divided by it, but for those with a scale of their own (scales)."""
    scales: tuple[str, ...] = ()
    """What parts of the observation are divided by, as in image=255 speed=8 (inner.image=255 for a part of a part, or
    observation=255 for an observation without parts). Where nothing is said: image_scale for images of integers, 1
    for all else."""
    depths: tuple[str, ...] = ()
    """Layers over parts of the observation, as in image=2 speed=1: convolutions for an image (each with a ReLU), dense
    ReLU layers of vector_width units for anything else, 0 to hand it on flattened. Where nothing is said: 1 for
    images, 0 for all else."""
    vector_width: int = 64
    """Units of each dense layer over a part of the observation (depths)."""
    embedding_width: int = 5
    """Units of the embedding of a discrete observation (the facing, the time step); each number has its own."""
    head_width: int = 32
    """Tanh units of the policy's head, and of the value's."""
    n_values: int = 1
    """Estimates of the value; their mean is the value, their spread what the score value_disagreement is made of."""

    gaussian: Gaussian = "plain"
    """What real-valued actions are drawn from: a plain Gaussian, whose actions are clipped to their bounds, or a
    squashed one, the tanh of a Gaussian, which stays within them."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """What the network computes in. With bfloat16, activations take half the memory and are off by up to 0.4% each;
    parameters, the memory's carry and what comes out of the network stay float32."""

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
        """The network for these spaces; ValueError where it cannot take them."""
        check_policy(observation_space, action_space, self.gaussian)
        parts = parts_of(observation_space, self.image_scale, self._scales, self._depths)
        check_kernel(parts, self.kernel_size)
        self._check_used(parts)
        torso = Torso(parts, self.conv_filters, self.kernel_size, self.embedding_width, self.vector_width, self._dtype)
        return ActorCritic(
            torso, self._memory(), action_space, self.head_width, self.n_values, self._dtype, self.gaussian
        )

    def _check_used(self, parts: tuple[Part, ...]) -> None:
        """ValueError for a setting of how parts are read that has been changed, where no part is read by it."""
        default = type(self)  # of which every setting's default is an attribute
        by_scale = [part for part in parts if is_integer_image(part.space)]
        if self.image_scale != default.image_scale and all(part.name in self._scales for part in by_scale):
            raise ValueError(
                f"model.image_scale is {self.image_scale}, but no part of the observation is an image of integers "
                f"without a scale of its own: it must be left at {default.image_scale} (other parts: model.scales)"
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
    unroll: int | None = None
    """Steps of the recurrence in one iteration of the compiled loop; None: 1 on a CPU, 8 elsewhere."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, "memory_width", self.memory_width)
        if self.unroll is not None:
            at_least(1, "unroll", self.unroll)

    def _memory(self) -> nn.Module:
        return LSTMMemory(self.memory_width, self.unroll, self._dtype)


@dataclasses.dataclass(frozen=True)
class GRU(LSTM):
    """A network with a gated recurrent unit."""

    def _memory(self) -> nn.Module:
        return GRUMemory(self.memory_width, self.unroll, self._dtype)


@dataclasses.dataclass(frozen=True)
class S5(NetworkSettings):
    """A network with a stack of S5 layers (Smith et al. 2022)."""

    memory_width: int = 256
    """Units of the linear layer before the S5 layers, and of each of these."""
    n_layers: int = 2
    """S5 layers."""
    state_size: int = 256
    """Eigenvalues of each layer's linear system, in conjugate pairs."""
    n_blocks: int = 2
    """Blocks that the states start in, each with the eigenvalues of a HiPPO-N matrix of its size."""
    glu: GLU = "half1"
    """Gated linear units of a layer. With g = gelu(y), half1: g sigmoid(W g), half2: y sigmoid(W g),
    full: (V g) sigmoid(W g), none: g."""
    norm: Norm = "after"
    """Layer norm before a layer's linear system, after its sum with what it was given, or none."""
    discretisation: Discretisation = "zoh"
    """How the linear system is cut into steps: zero-order hold, or bilinear."""
    dt_min: float = 0.001
    """Learnt lengths of a step start between dt_min and dt_max, log-uniformly."""
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
                f"model.state_size is {self.state_size}: model.n_blocks is {self.n_blocks}, so that it must be a "
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
    """ReLU units of the dense layer in the memory's place; 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, "dense_width", self.dense_width)

    def _memory(self) -> nn.Module:
        return NoMemory(self.dense_width, self._dtype)


def at_least(bound: int, name: str, value: int) -> None:
    """ValueError where the setting is below the bound."""
    if value < bound:
        raise ValueError(f"model.{name} is {value}: it must be at least {bound}")

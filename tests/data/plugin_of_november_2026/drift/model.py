"""A network of two layers, with a memory that fades."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import Box, Space
from minimax_lib.models.network import Network


class FadingNet(Network):
    """The memory is a mean of what was seen before, in which every step counts half as much as the one after it."""

    action_space: Space
    width: int

    def init_carry(self, shape):
        return jnp.zeros((*shape, self.width), jnp.float32)

    @nn.compact
    def __call__(self, obs, carry, first):
        seen = nn.tanh(nn.Dense(self.width)(obs))  # [T, R, width]

        def remember(memory, step):
            seen, first = step
            memory = 0.5 * jnp.where(first[:, None], 0.0, memory) + 0.5 * seen
            return memory, memory

        carry, memories = jax.lax.scan(remember, carry, (seen, first))
        features = nn.tanh(nn.Dense(self.width)(jnp.concatenate([seen, memories], axis=-1)))
        return self.policy_head(features, obs, first), self.value_head(features, first), carry


@dataclasses.dataclass(frozen=True)
class Fading:
    """A small network with a memory that fades."""

    width: int = 32
    """Units of each layer."""

    def __post_init__(self):
        if self.width < 1:
            raise ValueError(f"model.width is {self.width}: it must be at least 1")

    def build(self, observation_space, action_space):
        if not (isinstance(observation_space, Box) and len(observation_space.shape) == 1):
            raise ValueError(f"the model fading reads vectors, and not {observation_space}: choose ff")
        return FadingNet(action_space, self.width)

"""The one network: torso, memory, and separate heads for policy and value."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import Space
from minimax_lib.models.distributions import n_parameters
from minimax_lib.models.initializers import GAIN_LINEAR, GAIN_TANH, orthogonal
from minimax_lib.models.projection import Projection


class ActorCritic(nn.Module):
    """Policy and value of sequences of observations.

    `torso` maps observations to `Features`; `memory` has `init_carry` and works on sequences (see `memory`). The policy
    starts uniform, all biases at zero.
    """

    torso: nn.Module
    memory: nn.Module
    action_space: Space
    head_width: int
    n_values: int = 1
    dtype: Any = jnp.float32  # of the activations; what comes out is f32

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape; () for a model without memory."""
        return self.memory.init_carry(shape)

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        """(parameters of the action distribution f32[T, R, n], values f32[T, R, K], carry after the last step).

        The values are K estimates of the same thing: their mean is the value.

        `obs` [T, R, ...]; `carry` [R, ...] is the memory before the first step; where `first` (bool[T, R]) is set, the
        observation opens an episode and the memory is cleared before it is used.
        """
        hidden, carry = self.memory(self.torso(obs), carry, first)
        # One product for both heads, although each of them starts as an orthogonal matrix of its own.
        heads = Projection(2 * self.head_width, orthogonal(GAIN_TANH, n_blocks=2), self.dtype, name="heads")(hidden)
        policy, value = jnp.split(nn.tanh(heads), 2, axis=-1)
        # Zero weights make the first policy uniform. Without a dtype, these two layers compute in that of their
        # parameters, so that half precision ends here.
        policy = nn.Dense(n_parameters(self.action_space), kernel_init=nn.initializers.zeros, name="policy")(policy)
        values = nn.Dense(self.n_values, kernel_init=orthogonal(GAIN_LINEAR), name="value")(value)
        return policy.reshape(*first.shape, -1), values.reshape(*first.shape, -1), carry

"""The one network: torso, memory, and separate heads for policy and value."""

from typing import Any

import flax.linen as nn
import jax

from minimax_lib.envs.spaces import Space
from minimax_lib.models.distributions import n_parameters
from minimax_lib.models.initializers import GAIN_LINEAR, GAIN_TANH, orthogonal


class ActorCritic(nn.Module):
    """Policy and value of sequences of observations.

    `torso` maps observations to features; `memory` has `init_carry` and works on sequences (see `memory`). The policy
    starts uniform, all biases at zero.
    """

    torso: nn.Module
    memory: nn.Module
    action_space: Space
    head_width: int

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape; () for a model without memory."""
        return self.memory.init_carry(shape)

    @property
    def is_recurrent(self) -> bool:
        return bool(jax.tree.leaves(self.init_carry((1,))))

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        """(parameters of the action distribution f32[T, R, n], value f32[T, R], carry after the last step).

        `obs` [T, R, ...]; `carry` [R, ...] is the memory before the first step; where `first` (bool[T, R]) is set, the
        observation opens an episode and the memory is cleared before it is used.
        """
        hidden, carry = self.memory(self.torso(obs), carry, first)
        policy = self._head("policy", hidden, n_parameters(self.action_space), nn.initializers.zeros)
        value = self._head("value", hidden, 1, orthogonal(GAIN_LINEAR))
        return policy, value[..., 0], carry

    def _head(self, name: str, hidden: jax.Array, n_outputs: int, init: Any) -> jax.Array:
        x = nn.Dense(self.head_width, kernel_init=orthogonal(GAIN_TANH), name=f"{name}_hidden")(hidden)
        return nn.Dense(n_outputs, kernel_init=init, name=f"{name}_out")(nn.tanh(x))

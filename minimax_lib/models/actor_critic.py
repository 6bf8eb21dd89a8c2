"""The one network: torso, memory, and separate heads for policy and value."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import Space
from minimax_lib.models.distributions import Gaussian, distribution
from minimax_lib.models.initializers import GAIN_TANH, orthogonal
from minimax_lib.models.network import Network
from minimax_lib.models.projection import Projection

if TYPE_CHECKING:
    import distrax


class ActorCritic(Network):
    """Policy and value of sequences of observations.

    `torso` maps observations to `Features`. `memory` has `init_carry` and works on sequences (see `memory`).

    All biases start at zero. A discrete policy starts uniform. A Gaussian starts in the middle of its box, with half
    the box's width as its standard deviation. Standard deviations are separate parameters: they are the same for
    every observation.
    """

    torso: nn.Module
    memory: nn.Module
    action_space: Space
    head_width: int
    n_values: int = 1
    dtype: Any = jnp.float32  # of the activations; outputs are f32
    gaussian: Gaussian = "plain"  # the distribution of real-valued actions

    def distribution(self, parameters: jax.Array) -> "distrax.Distribution":
        """The action distribution that parameters [..., n] describe."""
        return distribution(self.action_space, parameters, self.gaussian)

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape; () for a model without memory."""
        return self.memory.init_carry(shape)

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        """(parameters of the action distribution f32[T, R, n], values f32[T, R, K], carry after the last step).

        The values are K estimates of the same number. Their mean is the value.

        `obs` is [T, R, ...]. `carry` [R, ...] is the memory before the first step. Where `first` (bool[T, R]) is set,
        the observation opens an episode, and the memory is cleared before it is used.
        """
        hidden, carry = self.memory(self.torso(obs), carry, first)
        # One product computes both heads. Each head starts as its own orthogonal matrix.
        heads = Projection(2 * self.head_width, orthogonal(GAIN_TANH, n_blocks=2), self.dtype, name="heads")(hidden)
        policy, value = jnp.split(nn.tanh(heads), 2, axis=-1)
        return self.policy_head(policy, obs, first), self.value_head(value, first), carry

"""The one network: torso, memory, and separate heads for policy and value."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import ACTION_MASK, Space
from minimax_lib.models.distributions import Gaussian, distribution, masked, n_deviations, n_outputs
from minimax_lib.models.initializers import GAIN_LINEAR, GAIN_TANH, orthogonal
from minimax_lib.models.projection import Projection

if TYPE_CHECKING:
    import distrax


class ActorCritic(nn.Module):
    """Policy and value of sequences of observations.

    `torso` maps observations to `Features`; `memory` has `init_carry` and works on sequences (see `memory`). The policy
    starts uniform (a Gaussian: in the middle of its box, with half the box's width for its standard deviation), all
    biases at zero. Standard deviations are parameters of their own, the same for every observation.
    """

    torso: nn.Module
    memory: nn.Module
    action_space: Space
    head_width: int
    n_values: int = 1
    dtype: Any = jnp.float32  # of the activations; what comes out is f32
    gaussian: Gaussian = "plain"  # what the policy draws real numbers from

    def distribution(self, parameters: jax.Array) -> "distrax.Distribution":
        """The action distribution that parameters [..., n] describe."""
        return distribution(self.action_space, parameters, self.gaussian)

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
        policy = nn.Dense(n_outputs(self.action_space), kernel_init=nn.initializers.zeros, name="policy")(policy)
        values = nn.Dense(self.n_values, kernel_init=orthogonal(GAIN_LINEAR), name="value")(value)
        policy = policy.reshape(*first.shape, -1)
        # In the parameters, and not only where actions are drawn: losses and scores see the policy that acts.
        if isinstance(obs, dict) and ACTION_MASK in obs:
            policy = masked(self.action_space, policy, obs[ACTION_MASK])
        if n := n_deviations(self.action_space):
            deviations = self.param("log_deviation", nn.initializers.zeros, (n,))
            policy = jnp.concatenate([policy, jnp.broadcast_to(deviations, (*first.shape, n))], axis=-1)
        return policy, values.reshape(*first.shape, -1), carry

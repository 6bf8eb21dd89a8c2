"""The base of networks: what an agent asks of one, with defaults for all but the network itself."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import ACTION_MASK, Space
from minimax_lib.models.distributions import distribution, masked, n_deviations, n_outputs
from minimax_lib.models.initializers import GAIN_LINEAR, Initializer, orthogonal

if TYPE_CHECKING:
    import distrax


class Network(nn.Module):
    """Policy and value of sequences of observations. Derive from this class.

    A subclass has a field `action_space` and a method `__call__`, decorated with `nn.compact`:

        __call__(obs, carry, first) -> (parameters, values, carry)

    `obs` [T, R, ...] are T steps of R rows. `carry` [R, ...] is the memory before the first step, and afterwards the
    one after the last. Where `first` (bool[T, R]) is set, the observation opens an episode: the memory must be cleared
    before it is used. `parameters` (f32[T, R, n]) describe the action distributions: `policy_head` makes them. `values`
    (f32[T, R, K]) are K estimates of the value, of which the mean counts: `value_head` makes them.
    """

    n_values = 1  # K; a field in a subclass that can make several

    @property
    def _actions(self) -> Space:
        return self.action_space  # type: ignore[attr-defined]  # a field of the subclass

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape, [*shape, ...]. By default, none: a network without memory."""
        return ()

    def distribution(self, parameters: jax.Array) -> "distrax.Distribution":
        """The action distribution that parameters [..., n] describe. By default, as `policy_head` makes them."""
        return distribution(self._actions, parameters)

    def policy_head(
        self, features: jax.Array, obs: Any, first: jax.Array, kernel_init: Initializer = nn.initializers.zeros
    ) -> jax.Array:
        """Parameters f32[T, R, n] of the action distributions, from features [T, R, width] (or flat, [T * R, width]).

        To be called inside `__call__`. Actions that the mask in `obs` forbids get the probability 0. By default, the
        first policy is uniform.
        """
        # The layer has no dtype, so it computes in that of its parameters: half precision ends here.
        outputs = nn.Dense(n_outputs(self._actions), kernel_init=kernel_init, name="policy")(features)
        outputs = outputs.reshape(*first.shape, -1)
        # The mask changes the policy itself, not only the drawing of actions: losses and scores see the policy that
        # acts.
        if isinstance(obs, dict) and ACTION_MASK in obs:
            outputs = masked(self._actions, outputs, obs[ACTION_MASK])
        if n := n_deviations(self._actions):
            deviations = self.param("log_deviation", nn.initializers.zeros, (n,))
            outputs = jnp.concatenate([outputs, jnp.broadcast_to(deviations, (*first.shape, n))], axis=-1)
        return outputs

    def value_head(self, features: jax.Array, first: jax.Array) -> jax.Array:
        """Estimates f32[T, R, K] of the value, from features as above. To be called inside `__call__`."""
        values = nn.Dense(self.n_values, kernel_init=orthogonal(GAIN_LINEAR), name="value")(features)
        return values.reshape(*first.shape, -1)


MEMBERS = ("init", "apply", "init_carry", "distribution", "n_values")


def check_network(network: Any, settings: Any) -> None:
    """ValueError in one line where `network` lacks what an agent asks for; a model's `settings` have built it."""
    missing = [member for member in MEMBERS if not hasattr(network, member)]
    if missing:
        raise ValueError(
            f"{type(settings).__name__}.build makes a {type(network).__name__} without {', '.join(missing)}: "
            "derive it from minimax_lib.models.network.Network"
        )

"""From an action space to a distribution over it; the only module that imports distrax when it is loaded."""

import distrax
import jax

from minimax_lib.envs.spaces import Discrete, Space


def n_parameters(action_space: Space) -> int:
    """How many numbers describe a distribution over `action_space`; ValueError for a space without a policy."""
    if isinstance(action_space, Discrete):
        return action_space.n
    raise ValueError(f"no policy for actions in {type(action_space).__name__}: choose an environment with Discrete")


def distribution(action_space: Space, parameters: jax.Array) -> distrax.Distribution:
    """The distribution over `action_space` that `parameters` [..., n_parameters] describe (Discrete: logits)."""
    n_parameters(action_space)
    return distrax.Categorical(logits=parameters)

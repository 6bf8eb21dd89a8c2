"""From an action space to a distribution over it; the only module that imports distrax, and only once it is used."""

from typing import TYPE_CHECKING

import jax

from minimax_lib.envs.spaces import Discrete, Space

if TYPE_CHECKING:
    import distrax


def n_parameters(action_space: Space) -> int:
    """How many numbers describe a distribution over `action_space`; ValueError for a space without a policy."""
    if isinstance(action_space, Discrete):
        return action_space.n
    raise ValueError(
        f"no policy for actions in {type(action_space).__name__}: choose an environment whose actions are Discrete"
    )


def distribution(action_space: Space, parameters: jax.Array) -> "distrax.Distribution":
    """The distribution over `action_space` that `parameters` [..., n_parameters] describe (Discrete: logits)."""
    import distrax  # half a second, which a mistyped flag need not wait for

    n_parameters(action_space)  # ValueError for a space without a policy
    return distrax.Categorical(logits=parameters)

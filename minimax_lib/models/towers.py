"""A network in which policy and value have nothing in common (Parker-Holder et al. 2022, for BipedalWalker)."""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax

from minimax_lib.envs.spaces import Space
from minimax_lib.models.distributions import Gaussian, check_policy, distribution
from minimax_lib.models.initializers import orthogonal
from minimax_lib.models.network import Network
from minimax_lib.models.parts import by_name, parts_of
from minimax_lib.models.settings import MOST_LAYERS, at_least
from minimax_lib.models.torso import Torso


@dataclasses.dataclass(frozen=True)
class Towers:
    """Two networks without memory, one for the policy and one for the value, of dense tanh layers.

    They share no layer, but for the embeddings of discrete observations. Images are flattened.
    """

    width: int = 64
    """Units of each layer."""
    n_layers: int = 2
    """Number of layers of the policy, and of the value."""
    scales: tuple[str, ...] = ()
    """Numbers that divide parts of the observation, as in motion=8. Without parts: observation=8."""
    embedding_width: int = 5
    """Units of the embedding of a discrete observation. Each number has its own."""
    n_values: int = 1
    """Number of estimates of the value. Their mean is the value, their spread the score value_disagreement."""
    gaussian: Gaussian = "plain"
    """Distribution of real-valued actions. plain: a Gaussian, whose actions are clipped to their bounds. squashed: the
    tanh of a Gaussian, which stays within the bounds."""

    def __post_init__(self) -> None:
        for name in ("width", "n_layers", "embedding_width", "n_values"):
            at_least(1, name, getattr(self, name))
        if self.n_layers > MOST_LAYERS:
            raise ValueError(f"model.n_layers is {self.n_layers}: it must be at most {MOST_LAYERS}")
        for name, scale in self._scales.items():
            if not 0 < scale < math.inf:
                raise ValueError(f"model.scales has {name}={scale}: it must be positive and finite")

    def build(self, observation_space: Space, action_space: Space) -> "TowersNet":
        """The network for these spaces; ValueError if the settings do not fit them."""
        check_policy(observation_space, action_space, self.gaussian)
        flat = {part.name: 0 for part in parts_of(observation_space, 1.0, {}, {}) if part.depth}
        parts = parts_of(observation_space, 1.0, self._scales, flat)
        torso = Torso(parts, 1, 1, self.embedding_width, 1)  # nothing is convolved: parts are only put side by side
        return TowersNet(torso, action_space, self.width, self.n_layers, self.n_values, self.gaussian)

    @property
    def _scales(self) -> dict[str, float]:
        return by_name("scales", self.scales, float, "motion=8")


class TowersNet(Network):
    """The network that `Towers` describes. Both outputs are linear; the policy starts in the middle of its box."""

    torso: nn.Module
    action_space: Space
    width: int
    n_layers: int
    n_values: int = 1
    gaussian: Gaussian = "plain"

    def distribution(self, parameters: jax.Array) -> Any:
        """The action distribution that parameters [..., n] describe."""
        return distribution(self.action_space, parameters, self.gaussian)

    @nn.compact
    def __call__(self, obs: Any, carry: Any, first: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
        features = self.torso(obs)
        policy = value = features
        for i in range(self.n_layers):
            weights = orthogonal(math.sqrt(2.0))
            policy = nn.tanh(nn.Dense(self.width, kernel_init=weights, name=f"policy_{i}")(policy))
            value = nn.tanh(nn.Dense(self.width, kernel_init=weights, name=f"value_{i}")(value))
        # dcd starts its policy with weights as large as all others. Ours starts in the middle, as all do here.
        return self.policy_head(policy, obs, first), self.value_head(value, first), carry

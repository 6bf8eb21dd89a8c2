"""How scores and ages of tasks become weights (Jiang et al. 2021a, eq. 1 to 3, and level-replay's other transforms)."""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.priorities import highest_first, rank_powers, score_powers
from minimax_lib.registry import unknown_name

Name = Literal["rank", "power", "greedy", "eps_greedy", "softmax", "match", "match_rank", "constant"]
# level-replay adds it to scores, so that no seen task has weight 0 where the staleness does not see to that.
FLOOR = 1e-3


@dataclasses.dataclass(frozen=True)
class Preference:
    """Which of the tasks that have been tried come back."""

    transform: Name = "rank"
    """What the weight grows with. rank: the rank of the score. power: the score itself. greedy: only the highest score
    counts. eps_greedy: the highest, and all tasks alike with probability `eps`. softmax: the exponential of the score.
    match, match_rank: score (1 - score), for scores that are rates, or its rank. constant: nothing."""
    temperature: float = 0.1
    """Weights are raised to the power 1 / temperature: low values favour the highest scores more."""
    staleness: float = 0.3
    """Share of the weight that goes to tasks by how long ago they were begun."""
    staleness_transform: Name = "power"
    """What the weight of an old task grows with, as `transform`."""
    staleness_temperature: float = 1.0
    """The temperature of `staleness_transform`."""
    eps: float = 0.05
    """The share of eps_greedy that all tasks have alike."""

    def __post_init__(self) -> None:
        for name in ("transform", "staleness_transform"):
            if getattr(self, name) not in get_args(Name):
                raise unknown_name(name, getattr(self, name), get_args(Name))
        for name in ("temperature", "staleness_temperature"):
            if not (getattr(self, name) > 0 and np.isfinite(getattr(self, name))):
                raise ValueError(f"{name} is {getattr(self, name)}: it must be positive and finite")
        for name in ("staleness", "eps"):
            if not 0 <= getattr(self, name) <= 1:  # this way round, NaN is refused too
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")

    def weights(self, scores: jax.Array, ages: jax.Array, seen: jax.Array) -> jax.Array:
        """f32[N] that add up to 1; 0 where not `seen`, and everywhere if nothing is.

        `scores` f32[N], `ages` i32[N]. Where all ages are 0, the scores alone decide.
        """
        if self.transform == "power" and self.staleness == 0:
            scores = jnp.maximum(scores, 0.0) + FLOOR  # those below 0 get it too
        by_score = self._shares(self.transform, scores, seen, self.temperature)
        ages = jnp.where(seen, ages, 0).astype(jnp.float32)
        by_age = self._shares(self.staleness_transform, ages, seen, self.staleness_temperature)
        share = jnp.where(ages.max() > 0, jnp.float32(self.staleness), 0.0)
        return (1.0 - share) * by_score + share * by_age

    def _shares(self, transform: str, values: jax.Array, seen: jax.Array, temperature: float) -> jax.Array:
        """The transform of `values` over the seen tasks, f32[N] that add up to 1."""
        strengths = jnp.where(seen, TRANSFORMS[transform](values, seen, temperature, self.eps), 0.0)
        # No seen task has any strength: a power of scores that are all 0. They are all equal then.
        strengths = jnp.where(strengths.sum() > 0, strengths, seen.astype(jnp.float32))
        return strengths / jnp.maximum(strengths.sum(), jnp.finfo(jnp.float32).tiny)


def constant(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    return jnp.ones_like(values)


def greedy(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """1 for the highest value; of equal ones, the lowest number."""
    best = jnp.argmax(jnp.where(seen, values, -jnp.inf))
    return (jnp.arange(len(values)) == best).astype(jnp.float32)


def eps_greedy(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """A share `eps` for all tasks alike. The rest is for the highest value; equal ones share it."""
    highest = seen & (values == jnp.where(seen, values, -jnp.inf).max())
    return (1.0 - eps) * highest / jnp.maximum(highest.sum(), 1) + eps / len(values)


def rank(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """rank ** (-1 / temperature), the highest value first; of equal ones, the lowest number."""
    order = highest_first(jnp.where(seen, values, -jnp.inf))
    powers = jnp.asarray(rank_powers(len(values), temperature), jnp.float32)
    return jnp.zeros_like(values).at[order].set(powers, unique_indices=True)


def power(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """max(value, 0) ** (1 / temperature), in the unit of the highest."""
    return score_powers(jnp.where(seen, values, -jnp.inf), temperature)


def softmax(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """exp(value / temperature), in the unit of the highest."""
    highest = jnp.where(seen, values, -jnp.inf).max()
    return jnp.exp(jnp.minimum(values - highest, 0.0) / temperature)


def match(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    """(value (1 - value)) ** (1 / temperature), for values that are rates of success."""
    return power(values * (1.0 - values), seen, temperature, eps)


def match_rank(values: jax.Array, seen: jax.Array, temperature: float, eps: float) -> jax.Array:
    return rank(values * (1.0 - values), seen, temperature, eps)


# (values f32[N], seen bool[N], temperature, eps) -> strengths f32[N]. Those of unseen tasks do not matter.
Transform = Callable[[jax.Array, jax.Array, float, float], jax.Array]
TRANSFORMS: dict[str, Transform] = {
    "rank": rank,
    "power": power,
    "greedy": greedy,
    "eps_greedy": eps_greedy,
    "softmax": softmax,
    "match": match,
    "match_rank": match_rank,
    "constant": constant,
}

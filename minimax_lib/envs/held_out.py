"""Held-out tasks that every environment has."""

import dataclasses

import jax

from minimax_lib.envs.base import Environment, Level
from minimax_lib.registry import unknown_name

TRAINING_DISTRIBUTION = "TrainingDistribution"  # fresh levels of the environment's own `sample_level`
NO_SUITE = dict.fromkeys(("validation", "benchmark", "all"), (TRAINING_DISTRIBUTION,))  # groups of tasks


@dataclasses.dataclass(frozen=True)
class TrainingDistribution:
    """The suite (`HeldOut`) of an environment that has no other."""

    env: Environment
    names: tuple[str, ...] = (TRAINING_DISTRIBUTION,)

    def __post_init__(self) -> None:
        for name in self.names:
            if name != TRAINING_DISTRIBUTION:
                raise unknown_name("held-out task", name, [TRAINING_DISTRIBUTION])

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        keys = jax.random.split(key, (len(self.names), n_episodes))
        return jax.vmap(jax.vmap(self.env.sample_level))(keys)

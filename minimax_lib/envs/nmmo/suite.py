"""The held-out maps of Neural MMO."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from minimax_lib.envs.held_out import NamedTasks
from minimax_lib.envs.nmmo.state import Level

HELD_OUT, VALIDATION = "HeldOutMaps", "ValidationMaps"
N_MAPS = {HELD_OUT: 64, VALIDATION: 16}
SEEDS = {HELD_OUT: 20230715, VALIDATION: 20230716}  # no seeds of training
GROUPS = {"validation": (VALIDATION,), "benchmark": (HELD_OUT,)}


@dataclasses.dataclass(frozen=True)
class NMMOSuite(NamedTasks):
    """Maps that are the same in every evaluation: episode e of a task is on its map e, and after the last on the first.

    A map is drawn as in training, with its places to spawn and its tasks. Worlds end at the horizon or with the last
    life, and pay for tasks alone, whatever training does to spare time.
    """

    known: ClassVar[tuple[str, ...]] = tuple(N_MAPS)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole = dataclasses.replace(self.env, stop_below=0, horizon_jitter=0.0, resilient=0.0, health_reward=0.0)
        object.__setattr__(self, "env", whole)

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]. They do not depend on `key`."""
        numbers = [jnp.arange(n_episodes, dtype=jnp.int32) % N_MAPS[name] for name in self.names]
        keys = [jax.random.key(SEEDS[name]) for name in self.names]
        one_map = jax.vmap(self._map, (None, 0))
        return jax.vmap(one_map)(jnp.stack(keys), jnp.stack(numbers))

    def _map(self, key: jax.Array, number: jax.Array) -> Level:
        """The level with this number (i32[]) of the list that `key` stands for."""
        return self.env.sample_level(jax.random.fold_in(key, number))

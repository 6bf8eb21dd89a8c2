"""A finite training set: a fixed list of levels (Jiang et al. 2021a)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.curricula.base import NEW, LevelBatch, Play, level_batch
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import SameLevel
from minimax_lib.rollout import Rollout

LEVELS_SEED = 20210122  # the list is the same for every run


class FiniteState(struct.PyTreeNode):
    """The order in which a run comes to know the levels."""

    order: jax.Array  # i32[n_levels], a permutation of this device's part of the list
    n_seen: jax.Array  # i32[], levels handed out


@dataclasses.dataclass(frozen=True)
class FiniteLevels:
    """New levels are unseen ones of a list of `n_levels`, uniformly; level i is that of seed i.

    When all have been seen, it begins again from the first. Of devices that share a batch, each has the next `n_levels`
    of the list.
    """

    env: Environment
    n_rows: int
    n_levels: int
    train_rows = slice(None)
    sources = (NEW,)
    restart = SameLevel()

    def extra_env_steps(self, clock: int) -> int:
        return 0

    def init(self, key: jax.Array) -> FiniteState:
        order = jax.random.permutation(key, jnp.arange(self.n_levels, dtype=jnp.int32))
        first = axes.device_index() * self.n_levels
        return FiniteState(order=first + order, n_seen=jnp.zeros((), jnp.int32))

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: FiniteState, play: Play
    ) -> tuple[FiniteState, LevelBatch]:
        places = (state.n_seen + jnp.arange(self.n_rows, dtype=jnp.int32)) % self.n_levels
        seeds = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(LEVELS_SEED), state.order[places])
        levels = jax.vmap(self.env.sample_level)(seeds)
        n_seen = (state.n_seen + self.n_rows) % (self.n_levels * self.n_rows)  # a multiple of both: never overflows
        return state.replace(n_seen=n_seen), level_batch(levels, NEW, train=True)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: FiniteState, batch: LevelBatch, runs: Rollout
    ) -> tuple[FiniteState, dict[str, jax.Array]]:
        return state, {}

"""A finite training set: a fixed list of levels (Jiang et al. 2021a)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.envs.base import Environment

LEVELS_SEED = 20210122  # the list is the same for every run


class FiniteState(struct.PyTreeNode):
    """The order in which a run comes to know the levels."""

    order: jax.Array  # i32[n_levels], a permutation of this device's part of the list
    n_seen: jax.Array  # i32[], levels handed out


@dataclasses.dataclass(frozen=True)
class FiniteLevels(Curriculum):
    """New levels are unseen ones of a list of `n_levels`, uniformly; level i is that of seed i.

    When all have been seen, it begins again from the first. Of devices that share a batch, each has the next `n_levels`
    of the list.
    """

    env: Environment
    n_rows: int
    n_levels: int

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows)

    def init(self, key: jax.Array) -> FiniteState:
        order = jax.random.permutation(key, jnp.arange(self.n_levels, dtype=jnp.int32))
        first = axes.device_index() * self.n_levels
        return FiniteState(order=first + order, n_seen=jnp.zeros((), jnp.int32))

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: FiniteState, students: Students
    ) -> tuple[FiniteState, LevelBatch]:
        places = (state.n_seen + jnp.arange(self.n_rows, dtype=jnp.int32)) % self.n_levels
        seeds = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(LEVELS_SEED), state.order[places])
        levels = jax.vmap(self.env.sample_level)(seeds)
        # Wrapping at a multiple of both numbers keeps the count small, and the next batch where it would have been.
        n_seen = (state.n_seen + self.n_rows) % (self.n_levels * self.n_rows)
        return state.replace(n_seen=n_seen), level_batch(levels)


@dataclasses.dataclass(frozen=True)
class FiniteList:
    """Unseen levels of a fixed list of random ones; a level buffer then has a slot for each, whatever its capacity."""

    n_levels: int = 4000
    """Levels of the list; several devices have a part of it each."""

    shared: ClassVar[tuple[str, ...]] = ("n_levels",)

    def __post_init__(self) -> None:
        if self.n_levels < 1:
            raise ValueError(f"generator.n_levels is {self.n_levels}: it must be at least 1")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return FiniteLevels(env, n_rows, self.n_levels)

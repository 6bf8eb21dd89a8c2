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
from minimax_lib.envs.given import check_source
from minimax_lib.envs.levels import level_of_list

CHECKED = 64  # levels of a list that are looked at beforehand, where the environment is somebody else's


class FiniteState(struct.PyTreeNode):
    """The order in which a run comes to know the levels."""

    order: jax.Array  # i32[n_levels], a permutation of this device's part of the list
    n_seen: jax.Array  # i32[], levels handed out since the list last began


@dataclasses.dataclass(frozen=True)
class FiniteLevels(Curriculum):
    """New levels come from a list of `n_levels`, in a random order. Level i of the list is drawn with seed i.

    After the last one, the order begins again. Of several devices that share a batch, each has its own `n_levels` of
    the list.
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
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: FiniteState, students: Students
    ) -> tuple[FiniteState, LevelBatch]:
        places = self._ahead(state.n_seen, jnp.arange(self.n_rows, dtype=jnp.uint32))
        levels = jax.vmap(lambda number: level_of_list(self.env, number))(state.order[places])
        return state.replace(n_seen=self._ahead(state.n_seen, jnp.uint32(self.n_rows))), level_batch(levels)

    def _ahead(self, n_seen: jax.Array, n: jax.Array) -> jax.Array:
        """i32[...], the place in the list that is `n` (u32[...]) levels after `n_seen`."""
        # Both are reduced before they are added. So the sum is below 2 * n_levels, however large the batches. That fits
        # for every list of less than 2**31 levels.
        n_levels = jnp.uint32(self.n_levels)
        return ((n_seen.astype(jnp.uint32) % n_levels + n % n_levels) % n_levels).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class FiniteList:
    """A fixed list of random levels. A level buffer then has a slot for each of them, whatever its capacity."""

    n_levels: int = 4000
    """Levels of the list. Of several devices, each has a part of it."""

    divided: ClassVar[tuple[str, ...]] = ("n_levels",)

    def __post_init__(self) -> None:
        if self.n_levels < 1:
            raise ValueError(f"generator.n_levels is {self.n_levels}: it must be at least 1")
        if self.n_levels >= 2**31:
            raise ValueError(f"generator.n_levels is {self.n_levels}: it must be less than {2**31}")

    @property
    def n_listed(self) -> int:
        """See `RolloutSettings`."""
        return self.n_levels

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        n = min(self.n_levels, CHECKED)
        names = [f"level {number} of the list" for number in range(n)]
        check_source(env, env, lambda _: jax.vmap(lambda i: level_of_list(env, i))(jnp.arange(n)), names)
        return FiniteLevels(env, n_rows, self.n_levels)

"""A curriculum in one file: levels that go wrong stay for the next batch.

python train.py --plugins docs.examples.hard_levels --runner hard_levels --runner.share 0.25 --n-updates 100
"""

import dataclasses

import jax
import jax.numpy as jnp

import minimax_lib
from minimax_lib.curricula.base import NEW, REPLAY, Curriculum, Plan, level_batch
from minimax_lib.trees import tree_where


@dataclasses.dataclass(frozen=True)
class HardLevels(Curriculum):
    """The rows of a batch with the lowest returns keep their levels; the others get fresh ones."""

    env: minimax_lib.envs.base.Environment
    n_rows: int
    share: float

    @property
    def plan(self):
        return Plan(self.n_rows, sources=(NEW, REPLAY))

    def init(self, key):
        return {"levels": self._fresh(key), "stays": jnp.zeros(self.n_rows, bool)}

    def propose(self, shared_key, key, clock, state, students):
        batch = level_batch(tree_where(state["stays"], state["levels"], self._fresh(key)))
        return state, batch.replace(source=jnp.where(state["stays"], REPLAY, NEW))

    def observe(self, key, clock, state, batch, outcome):
        returns = outcome.episodes.mean.mean(axis=0)  # of all students; 0 where no episode ended
        stays = returns <= jnp.quantile(returns, self.share)
        return {"levels": batch.levels, "stays": stays}, {"stays": stays.mean()}

    def _fresh(self, key):
        return jax.vmap(self.env.sample_level)(jax.random.split(key, self.n_rows))


@dataclasses.dataclass(frozen=True)
class Settings:
    """Levels with low returns stay for the next batch."""

    share: float = 0.5
    """Share of the rows that keep their level."""

    def build(self, env, agent, n_rows):
        return HardLevels(env, n_rows, self.share)


minimax_lib.register_curriculum("hard_levels", Settings)

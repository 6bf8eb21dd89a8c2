"""A curriculum: simple levels at first, and more hard ones as the students solve them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.curricula.base import Curriculum, Plan, level_batch
from minimax_lib.envs.base import Environment, sample_levels
from minimax_lib.envs.registry import editing_of
from minimax_lib.trees import tree_where


@dataclasses.dataclass(frozen=True)
class Warmup(Curriculum):
    """A share of the levels is hard. It grows by `rate` after a batch that was mostly solved, and shrinks otherwise."""

    env: Environment
    simple: Any  # the environment whose random levels are simple
    n_rows: int
    rate: float

    @property
    def plan(self):
        return Plan(self.n_rows)

    def init(self, key):
        return jnp.zeros((), jnp.float32)  # the share of hard levels

    def propose(self, shared_key, key, clock, state, students):
        k_which, k_simple, k_hard = jax.random.split(key, 3)
        is_hard = jax.random.bernoulli(k_which, state, (self.n_rows,))
        simple, hard = sample_levels(self.simple, k_simple, self.n_rows), sample_levels(self.env, k_hard, self.n_rows)
        return state, level_batch(tree_where(is_hard, hard, simple))

    def observe(self, key, clock, state, batch, outcome):
        solved = outcome.episodes.first.solved.mean(dtype=jnp.float32)
        share = jnp.clip(jnp.where(solved > 0.5, state + self.rate, state - self.rate), 0.0, 1.0)
        return share, {"hard_share": share}


@dataclasses.dataclass(frozen=True)
class WarmupSettings:
    """Simple levels at first, and more hard ones as they are solved."""

    rate: float = 0.05
    """How much the share of hard levels changes after a batch."""

    def __post_init__(self):
        if not 0 < self.rate <= 1:
            raise ValueError(f"runner.rate is {self.rate}: it must be between 0 and 1")

    def build(self, env, agent, n_rows):
        return Warmup(env, editing_of(env).base(env), n_rows, self.rate)

"""Sampling for learnability over a list of tasks (Rutherford et al. 2024): those that are solved sometimes."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.registry import unknown_name
from minimax_lib.tasks.rates import HIGHEST_BASELINE, Unseen, above, check_share
from minimax_lib.tasks.weighted import Weighted

Sampling = Literal["dist", "topk"]


class LearnabilityState(struct.PyTreeNode):
    """The latest rates of N tasks."""

    rates: jax.Array  # f32[N]
    baseline: jax.Array  # f32[N], the first rates
    measured: jax.Array  # bool[N], the task has had a rate


@dataclasses.dataclass(frozen=True)
class SFL(Weighted):
    """Tasks that are solved sometimes: a task's learnability is r (1 - r), r its rate in an evaluation of all tasks.

    With one episode a task, every rate is 0 or 1, and no task is learnable. So an evaluation needs two or more.
    """

    n_tasks: int
    sampling: Sampling = "dist"
    """dist: in proportion to learnability. topk: the k most learnable, all alike."""
    k: int = 10
    """Tasks of `topk`."""
    q: float = 1.0
    """Share of the draws that go to these; the rest is uniform over all tasks."""
    normalize: bool = False
    """Rates are taken above those of the first time."""
    unseen: Unseen = "zero"
    """What a task without a new rate counts as. zero: never solved. keep: as before."""

    min_episodes = 2

    def __post_init__(self) -> None:
        if self.sampling not in get_args(Sampling):
            raise unknown_name("sampling", self.sampling, get_args(Sampling))
        if self.unseen not in get_args(Unseen):
            raise unknown_name("unseen", self.unseen, get_args(Unseen))
        check_share("q", self.q)
        if self.sampling == "topk" and not 1 <= self.k < self.n_tasks:
            raise ValueError(
                f"k is {self.k}: it must be at least 1 and below the number of tasks, {self.n_tasks}; "
                "with all tasks in the top k, they would be drawn uniformly"
            )

    def init(self, key: jax.Array) -> LearnabilityState:
        zeros = jnp.zeros(self.n_tasks, jnp.float32)
        return LearnabilityState(zeros, zeros, jnp.zeros(self.n_tasks, bool))

    def evaluated(self, state: LearnabilityState, rates: jax.Array, known: jax.Array) -> LearnabilityState:
        told = known if self.unseen == "keep" else jnp.ones(self.n_tasks, bool)
        rates = jnp.where(told, jnp.where(known, rates, 0.0), state.rates)
        first = told & ~state.measured
        baseline = jnp.where(first, jnp.minimum(rates, HIGHEST_BASELINE), state.baseline)
        return LearnabilityState(rates, baseline, state.measured | told)

    def learnability(self, state: LearnabilityState) -> jax.Array:
        """f32[N]"""
        rates = above(state.rates, state.baseline) if self.normalize else state.rates
        return rates * (1.0 - rates)

    def weights(self, state: LearnabilityState) -> jax.Array:
        learnability, uniform = self.learnability(state), jnp.full(self.n_tasks, 1.0 / self.n_tasks, jnp.float32)
        if self.sampling == "topk":
            best = jnp.argsort(-learnability, stable=True)[: self.k]
            chosen = uniform * (1.0 - self.q)
            # Where nothing is learnable, the first k of the list are no better than the others.
            return jnp.where(learnability.any(), chosen.at[best].add(self.q / self.k), uniform)
        total = learnability.sum()
        return jnp.where(total > 0, learnability / jnp.where(total > 0, total, 1.0), uniform)

    def report(self, state: LearnabilityState) -> dict[str, jax.Array]:
        return {"tasks/rate": state.rates.mean(), "tasks/learnability": self.learnability(state).mean()}

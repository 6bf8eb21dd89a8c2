"""A task curriculum of one's own, which docs/tasks.md explains.

python train.py --plugins docs.examples.forgotten_tasks --runner tasks --runner.core forgotten --n-updates 100
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks import Weighted, reweighted
from minimax_lib.tasks.registry import TASK_CURRICULA


class ForgottenState(struct.PyTreeNode):
    rates: jax.Array  # f32[N], of the last evaluation
    best: jax.Array  # f32[N], the highest of all


@dataclasses.dataclass(frozen=True)
class Forgotten(Weighted):
    """Tasks come back that the student could do better once."""

    n_tasks: int
    uniform: float = 0.2
    """Share of the draws that are uniform over all tasks."""

    min_episodes = 4

    def init(self, key):
        zeros = jnp.zeros(self.n_tasks, jnp.float32)
        return ForgottenState(rates=zeros, best=zeros)

    def evaluated(self, state, rates, known):
        rates = jnp.where(known, rates, 0.0)
        return ForgottenState(rates=rates, best=jnp.maximum(state.best, rates))

    def weights(self, state):
        uniform = jnp.full(self.n_tasks, 1 / self.n_tasks, jnp.float32)
        return (1 - self.uniform) * reweighted(uniform, state.best - state.rates) + self.uniform * uniform

    def report(self, state):
        return {"tasks/forgotten": (state.best - state.rates).mean()}


TASK_CURRICULA.register("forgotten", Forgotten)

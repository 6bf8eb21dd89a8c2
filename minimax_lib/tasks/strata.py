"""The best task of each stratum: the others have hardly any weight (Sullivan et al. 2025)."""

import dataclasses
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.registry import unknown_name
from minimax_lib.tasks.rates import check_share
from minimax_lib.tasks.spaces import Stratified
from minimax_lib.tasks.weighted import Filter

Metric = Literal["success", "score", "learnability"]
EPISODES = {"success": 1, "score": 0, "learnability": 2}  # of each task that the metric needs


class StrataState(struct.PyTreeNode):
    inner: Any
    rates: jax.Array  # f32[N], of the last evaluation
    evaluated: jax.Array  # bool[], there was one


@dataclasses.dataclass(frozen=True)
class Strata(Filter):
    """Of each stratum, the task with the highest `metric` keeps its weight; of equal ones, the lowest number.

    Until there are rates, where the metric or `inner` needs them, the inner weights stay as they are.
    """

    strata: tuple[tuple[int, ...], ...]
    metric: Metric = "success"  # the rate r of success, the inner weight, or r (1 - r)
    factor_of_others: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(Metric):
            raise unknown_name("metric", self.metric, get_args(Metric))
        check_share("factor_of_others", self.factor_of_others)
        space = Stratified(self.strata)
        object.__setattr__(self, "strata", space.strata)
        if space.n != self.n_tasks:
            raise ValueError(f"the strata have {space.n} tasks: there are {self.n_tasks}")

    @property
    def min_episodes(self) -> int:
        return max(super().min_episodes, EPISODES[self.metric])

    def init(self, key: jax.Array) -> StrataState:
        return StrataState(self.inner.init(key), jnp.zeros(self.n_tasks, jnp.float32), jnp.zeros((), bool))

    def evaluated(self, state: StrataState, rates: jax.Array, known: jax.Array) -> StrataState:
        state = super().evaluated(state, rates, known)
        return state.replace(rates=self.rates_after(state.rates, rates, known), evaluated=jnp.ones((), bool))

    def factor(self, state: StrataState) -> jax.Array:
        values = {
            "success": lambda: state.rates,
            "score": lambda: self.inner.weights(state.inner),
            "learnability": lambda: state.rates * (1.0 - state.rates),
        }[self.metric]()
        stratum, n_strata = jnp.asarray(Stratified(self.strata).stratum), len(self.strata)
        numbers = jnp.arange(self.n_tasks, dtype=jnp.int32)
        highest = jax.ops.segment_max(values, stratum, n_strata)[stratum] == values
        first = jax.ops.segment_min(jnp.where(highest, numbers, self.n_tasks), stratum, n_strata)
        applies = state.evaluated if self.min_episodes else jnp.ones((), bool)
        return jnp.where((numbers == first[stratum]) | ~applies, 1.0, self.factor_of_others)

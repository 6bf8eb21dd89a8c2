"""Learning progress: tasks on which the rate of success changes (Kanitscheider et al. 2021)."""

import dataclasses
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.registry import unknown_name
from minimax_lib.tasks.rates import HIGHEST_BASELINE, Unseen, above, check_inside
from minimax_lib.tasks.weighted import Weighted

# Below it, the spread of learning progress is rounding: moving averages of a constant leave 1e-8 in float32.
NO_SPREAD = 1e-6


class LearningProgressState(struct.PyTreeNode):
    """What is known of N tasks; 0 where nothing is known."""

    baseline: jax.Array  # f32[N], the rate of the student as it began
    fast: jax.Array  # f32[N], moving average of the rate above the baseline
    slow: jax.Array  # f32[N], moving average of `fast`
    rate: jax.Array  # f32[N], moving average of the rate
    measured: jax.Array  # bool[N], the task has had a rate


@dataclasses.dataclass(frozen=True)
class LearningProgress(Weighted):
    """Tasks on which the rate of success changes. All tasks are evaluated from time to time.

    The weight of a task is the sigmoid of its learning progress, standardised over the tasks that can be solved.

    Learning progress is the difference of a fast and a slow moving average of the rate of success. Both are bent first
    (`theta`), so that the same change counts more where the rate is low.
    """

    n_tasks: int
    alpha: float = 0.1
    """Weight of the latest rates in the moving averages."""
    theta: float = 0.1
    """Below .5, the same change counts more where the rate is low."""
    normalize: bool = True
    """Rates are taken above those of the first time."""
    baseline: tuple[float, ...] | None = None
    """These rates in place of those of the first time. None: those of the first time."""
    unseen: Unseen = "zero"
    """What a task without a new rate counts as. zero: never solved. keep: as before."""

    min_episodes = 1

    def __post_init__(self) -> None:
        check_inside("alpha", self.alpha)
        check_inside("theta", self.theta)
        if self.unseen not in get_args(Unseen):
            raise unknown_name("unseen", self.unseen, get_args(Unseen))
        if self.baseline is not None:
            rates = np.asarray(self.baseline, np.float32)
            if rates.shape != (self.n_tasks,) or not ((rates >= 0) & (rates < 1)).all():
                raise ValueError(f"baseline has shape {rates.shape}: it needs {self.n_tasks} rates from 0 to below 1")
            object.__setattr__(self, "baseline", tuple(rates.tolist()))

    def init(self, key: jax.Array) -> LearningProgressState:
        zeros = jnp.zeros(self.n_tasks, jnp.float32)
        baseline = zeros if self.baseline is None else jnp.asarray(self.baseline, jnp.float32)
        return LearningProgressState(baseline, zeros, zeros, zeros, jnp.zeros(self.n_tasks, bool))

    def evaluated(self, state: LearningProgressState, rates: jax.Array, known: jax.Array) -> LearningProgressState:
        rates = jnp.where(known, rates, 0.0)
        told = known if self.unseen == "keep" else jnp.ones(self.n_tasks, bool)
        first = told & ~state.measured
        baseline = state.baseline
        if self.baseline is None:
            baseline = jnp.where(first, jnp.minimum(rates, HIGHEST_BASELINE), baseline)

        def averaged(old: jax.Array, new: jax.Array) -> jax.Array:
            mixed = self.alpha * new + (1.0 - self.alpha) * old
            return jnp.where(first, new, jnp.where(told, mixed, old))

        fast = averaged(state.fast, above(rates, baseline) if self.normalize else rates)
        slow, rate = averaged(state.slow, fast), averaged(state.rate, rates)
        return LearningProgressState(baseline, fast, slow, rate, state.measured | told)

    def progress(self, state: LearningProgressState) -> jax.Array:
        """f32[N], the learning progress."""

        def bent(rate: jax.Array) -> jax.Array:
            return rate * (1.0 - self.theta) / (rate + self.theta * (1.0 - 2.0 * rate))

        return jnp.abs(bent(state.fast) - bent(state.slow))

    def weights(self, state: LearningProgressState) -> jax.Array:
        progress = self.progress(state)
        members = (progress > 0) | (state.rate > 0)
        members = members | ~members.any()
        count = members.sum().astype(jnp.float32)
        centred = jnp.where(members, progress - jnp.where(members, progress, 0.0).sum() / count, 0.0)
        spread = jnp.sqrt((centred**2).sum() / count)
        standard = jnp.where(spread < NO_SPREAD, 0.0, centred / jnp.maximum(spread, NO_SPREAD))
        strengths = jnp.where(members, jax.nn.sigmoid(standard), 0.0)
        return strengths / strengths.sum()

    def report(self, state: LearningProgressState) -> dict[str, jax.Array]:
        return {
            "tasks/rate": state.rate.mean(),
            "tasks/progress": self.progress(state).mean(),
            "tasks/high_baseline": (state.baseline >= HIGHEST_BASELINE).mean(dtype=jnp.float32),
        }

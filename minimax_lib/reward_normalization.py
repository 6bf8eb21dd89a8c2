"""Rewards divided by the running standard deviation of the discounted return (Engstrom et al. 2020, section 3)."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.playing.rollout import Rollout


class Moments(struct.PyTreeNode):
    """Running moments of the discounted return of each student, f32[A] each. They are the same on every device."""

    count: jax.Array  # grows by whole rollouts, and f32 holds millions of these
    mean: jax.Array
    variance: jax.Array


class RewardState(struct.PyTreeNode):
    """What normalisation remembers from one rollout to the next."""

    moments: Moments
    returns: Any = ()  # f32[A, R], discounted, of episodes that go on in the next rollout; () if none do


@dataclasses.dataclass(frozen=True)
class RewardNormalization:
    """The published code normalises step by step. This does it for a whole rollout at once, with the same numbers.

    In every row, g <- discount * g + r, and g = 0 after an episode's end. After each step, g of all rows (of all
    devices) is merged into the running moments. The step's rewards are divided by sqrt(variance + 1e-8) and then
    clipped to +-`clip`.
    """

    discount: float = 0.99
    clip: float = 10.0

    def init(self, n_students: int, n_rows: int | None = None) -> RewardState:
        """The state before the first step. Give `n_rows` if episodes go on from rollout to rollout."""
        zeros, ones = jnp.zeros(n_students, jnp.float32), jnp.ones(n_students, jnp.float32)
        moments = Moments(count=1e-4 * ones, mean=zeros, variance=ones)
        return RewardState(moments, () if n_rows is None else self.opening(n_students, n_rows))

    def opening(self, n_students: int, n_rows: int) -> jax.Array:
        """f32[A, R], the discounted returns of rows that have just been reset."""
        return jnp.zeros((n_students, n_rows), jnp.float32)

    def learn(self, moments: Moments, returns: jax.Array, runs: Rollout) -> tuple[Moments, jax.Array, Rollout]:
        """(moments and discounted returns after `runs`, `runs` with normalised rewards).

        `returns` f32[A, R] are the discounted returns with which `runs` [T, A, R] begins.
        """
        steps = runs.steps

        def discounted(g: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            reward, done = step
            g = self.discount * g + reward
            return jnp.where(done, 0.0, g), g

        returns, g = jax.lax.scan(discounted, returns, (steps.reward, steps.done))
        # The steps are added up among themselves, and the moments take over the sum. A step alone would soon be a
        # share of 1e-7 of all returns, which f32 rounds away: the variance would drift.
        none = jax.tree.map(jnp.zeros_like, moments)
        rollout, so_far = jax.lax.scan(with_step, none, self._of_rows(moments, g, steps.valid))
        _, variances = merged(jax.tree.map(lambda x: x[None], moments), so_far)
        return merged(moments, rollout)[0], returns, self._divided(runs, variances[..., None])

    def apply(self, moments: Moments, runs: Rollout) -> Rollout:
        """`runs` [T, A, R] with rewards on the present scale. The moments do not change."""
        return self._divided(runs, moments.variance[None, :, None])

    def _of_rows(self, before: Moments, g: jax.Array, valid: jax.Array | None) -> Moments:
        """Moments over the rows of all devices in each step, f32[T, A]. `valid` is bool[T, A, R]; None: all rows."""
        # A number near their mean is subtracted, so that the difference below keeps its digits. One sum over devices
        # serves all three.
        shifted = g - before.mean[None, :, None]
        ones = jnp.ones(g.shape[:2], jnp.float32) * g.shape[2]
        if valid is not None:
            # A step in which every agent is dead counts as next to none: the moments must stay finite.
            shifted, ones = jnp.where(valid, shifted, 0.0), jnp.maximum(valid.sum(axis=-1, dtype=jnp.float32), 1e-4)
        n, total, squares = axes.device_sum((ones, shifted.sum(axis=-1), (shifted**2).sum(axis=-1)))
        mean = total / n
        return Moments(n, mean + before.mean[None], jnp.maximum(squares / n - mean**2, 0.0))

    def _divided(self, runs: Rollout, variance: jax.Array) -> Rollout:
        scaled = runs.steps.reward / jnp.sqrt(variance + 1e-8)
        return runs.replace(steps=runs.steps.replace(reward=jnp.clip(scaled, -self.clip, self.clip)))


def with_step(rollout: Moments, step: Moments) -> tuple[Moments, Moments]:
    """The moments of a rollout's steps up to this one, twice: to go on from, and to keep."""
    so_far, _ = merged(rollout, step)
    return so_far, so_far


def merged(a: Moments, b: Moments) -> tuple[Moments, jax.Array]:
    """(the moments of two sets together, their variance) (Chan et al. 1979, eq. 2.1)."""
    count = a.count + b.count
    step = b.mean - a.mean
    within = a.variance * (a.count / count) + b.variance * (b.count / count)
    variance = within + step**2 * (a.count / count) * (b.count / count)
    return Moments(count, a.mean + step * (b.count / count), variance), variance

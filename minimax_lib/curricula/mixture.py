"""How new what students see and do is: its likelihood under a mixture of Gaussians (CENIE; Teoh et al. 2024)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.curricula.score_models import Sight
from minimax_lib.envs.base import Environment
from minimax_lib.playing.rollout import Transition
from minimax_lib.tasks.draws import draw_where

LEAST_VARIANCE = 1e-3  # added to every variance; most numbers of an observation never change
TINY = 1e-6  # as many points as a component has at least, so that an empty one keeps finite numbers


class GaussianMixture(struct.PyTreeNode):
    """K Gaussians in F dimensions, without correlations."""

    log_weights: jax.Array  # f32[K]
    means: jax.Array  # f32[K, F]
    variances: jax.Array  # f32[K, F]


def joint_log_densities(mixture: GaussianMixture, points: jax.Array) -> jax.Array:
    """f32[N, K]: the logarithm of weight times density of each component, at `points` [N, F]."""
    # (x - m)^2 as three products of matrices: [N, K, F] would take much more memory. About the mean of all components:
    # otherwise a number that is large and hardly changes would leave rounding alone.
    centre = (jnp.exp(mixture.log_weights) @ mixture.means)[None]
    points, means, precisions = points - centre, mixture.means - centre, 1.0 / mixture.variances
    squares = points**2 @ precisions.T - 2.0 * points @ (means * precisions).T
    squares = squares + (means**2 * precisions).sum(axis=1)[None]
    norms = points.shape[1] * jnp.log(2.0 * jnp.pi) + jnp.log(mixture.variances).sum(axis=1)
    return mixture.log_weights[None] - 0.5 * (squares + norms[None])


def log_likelihoods(mixture: GaussianMixture, points: jax.Array) -> jax.Array:
    """f32[N], of `points` [N, F]."""
    return jax.nn.logsumexp(joint_log_densities(mixture, points), axis=1)


def em_step(mixture: GaussianMixture, points: jax.Array, counts: jax.Array) -> GaussianMixture:
    """One step of expectation maximisation on those of `points` [N, F] that count (bool[N])."""
    joint = joint_log_densities(mixture, points)
    shares = jax.nn.softmax(joint, axis=1) * counts[:, None]
    n = shares.sum(axis=0) + TINY
    means = shares.T @ points / n[:, None]
    # About the new means. The difference of the mean square and the squared mean would lose digits.
    deviations = jax.lax.map(lambda k: shares[:, k] @ (points - means[k][None]) ** 2, jnp.arange(len(n)))
    return GaussianMixture(
        log_weights=jnp.log(n / n.sum()), means=means, variances=deviations / n[:, None] + LEAST_VARIANCE
    )


def opening(points: jax.Array, n_components: int) -> GaussianMixture:
    """A mixture to begin with: K of `points` [N, F], evenly spaced, as the means, and the variances of all points."""
    places = jnp.arange(n_components) * (len(points) // n_components)
    return GaussianMixture(
        log_weights=jnp.full(n_components, -jnp.log(float(n_components)), jnp.float32),
        means=points[places],
        variances=jnp.broadcast_to(points.var(axis=0) + LEAST_VARIANCE, (n_components, points.shape[1])),
    )


class NoveltyState(struct.PyTreeNode):
    """The mixture of earlier steps, and the M latest of those that it was fitted to."""

    mixture: GaussianMixture
    points: jax.Array  # f32[M, F]
    n_seen: jax.Array  # i32[], batches so far


@dataclasses.dataclass(frozen=True)
class Novelty:
    """A `ScoreModel` that says of each step how unlikely its observation and action are under those of earlier batches.

    After each batch, as many of its steps, drawn at random, take the place of the oldest points, and the mixture takes
    `n_fits` steps of expectation maximisation from where it was. Each of several devices has a mixture of its own.
    """

    sight: Sight
    n_components: int = 10
    n_batches: int = 8  # whose steps are remembered
    n_of_batch: int = 256  # steps of each of them
    n_fits: int = 5

    def init(self, key: jax.Array) -> NoveltyState:
        n_numbers = len(self.sight.is_real) + self.sight.n_of_action
        points = jnp.zeros((self.n_batches * self.n_of_batch, n_numbers), jnp.float32)
        return NoveltyState(mixture=opening(points, self.n_components), points=points, n_seen=jnp.zeros((), jnp.int32))

    def measure(self, state: NoveltyState, steps: Transition) -> jax.Array:
        """f32[T, A, R]: minus the log likelihood of each step; of the first batch, under a mixture about itself."""
        points = self._points(steps)
        # With the same number for all of them, the levels of the first batch would come before all others, or behind
        # them, until they are replayed: log likelihoods are hundreds, of either sign.
        mixture = self._known(state, points.reshape(-1, points.shape[-1]))
        # Step by step in time, so that memory holds the densities of one step at a time.
        found = jax.lax.map(lambda points: -log_likelihoods(mixture, points), points)
        return found.reshape(steps.done.shape)

    def fit(self, key: jax.Array, state: NoveltyState, steps: Transition) -> NoveltyState:
        every = self._points(steps)
        every = every.reshape(-1, every.shape[-1])
        counts = jnp.ones(len(every), bool) if steps.valid is None else steps.valid.reshape(-1)
        chosen = every[draw_where(key, counts, self.n_of_batch)]
        start = state.n_seen % self.n_batches * self.n_of_batch
        points = jax.lax.dynamic_update_slice_in_dim(state.points, chosen, start, axis=0)
        n_seen = state.n_seen + 1
        known = jnp.arange(len(points)) < n_seen * self.n_of_batch
        mixture = self._known(state, chosen)

        def step(_: int, mixture: GaussianMixture) -> GaussianMixture:
            return em_step(mixture, points, known)

        mixture = jax.lax.fori_loop(0, self.n_fits, step, mixture)
        # So many batches are enough to fill the memory. Then the count only has to go round.
        n_seen = jnp.where(n_seen >= 2 * self.n_batches, n_seen - self.n_batches, n_seen)
        return NoveltyState(mixture=mixture, points=points, n_seen=n_seen)

    def _known(self, state: NoveltyState, points: jax.Array) -> GaussianMixture:
        """The mixture; before there is one, that which begins with `points` [N, F]."""
        first = opening(points, self.n_components)
        return jax.tree.map(lambda new, old: jnp.where(state.n_seen > 0, old, new), first, state.mixture)

    def _points(self, steps: Transition) -> jax.Array:
        """f32[T, A * R, F], what was seen and done in each step."""
        seen, done = self.sight.observed(steps.obs), self.sight.done(steps.action)
        return jnp.concatenate([seen, done], axis=-1).reshape(len(steps.done), -1, seen.shape[-1] + done.shape[-1])


def novelty(env: Environment) -> Novelty:
    """The model for what is seen and done in `env`."""
    return Novelty(Sight(env.observation_space, env.action_space))

"""What scores are computed from: how the students fared on each level."""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.loops import steps_at_once
from minimax_lib.playing.returns import (
    ONE_ROW_EACH,
    EpisodeReturns,
    Layout,
    by_level,
    episode_returns,
    rows_of_levels,
    split_by_level,
)
from minimax_lib.playing.rollout import Rollout, Transition


class Experience(struct.PyTreeNode):
    """What a score is computed from: A students played B levels for T steps, in R = B * E rows."""

    done: jax.Array  # bool[T, A, R]
    value: jax.Array  # f32[T, A, R]
    advantage: jax.Array  # f32[T, A, R]
    td_error: jax.Array  # f32[T, A, R], r_t + gamma V_{t+1} - V_t
    logits: jax.Array | None  # f32[T, A, R, n], for the scores that need the network
    values: jax.Array | None  # f32[T, A, R, K], all estimates of the value, likewise
    episodes: EpisodeReturns  # [A, B]
    best_return: jax.Array  # f32[R], the highest return ever reached on the row's level, these rollouts included
    change: jax.Array | None = None  # f32[A, B], what an update on the level alone would change, for those that need it
    clipped: jax.Array | None = None  # f32[T, A, R], see `clipped_gae`, for those that need it
    discounted: jax.Array | None = None  # f32[A, B], see `discounted_mean`, for those that need it
    optimum: jax.Array | None = None  # f32[B], the best discounted return of the level, likewise
    valid: jax.Array | None = None  # bool[T, A, R], the step counts (see `Transition.valid`); None: all steps do
    modelled: jax.Array | None = None  # f32[T, A, R], what the score's own model says of each step, for those with one
    by_agent: EpisodeReturns | None = None  # [A, B * G], of each of G agents: entry b * G + g; None: G is 1

    @property
    def n_evals(self) -> int:
        """E, rows of each level."""
        return self.done.shape[-1] // self.episodes.count.shape[-1]


def experience(
    runs: Rollout,
    best_return: jax.Array,
    gamma: float,
    gae_lambda: float,
    logits: jax.Array | None = None,
    values: jax.Array | None = None,
    layout: Layout = ONE_ROW_EACH,
) -> Experience:
    """The experience of rollouts [T, A, R] on levels with a `best_return` (f32[B]), to which rows belong by `layout`.

    `gamma` and `gae_lambda` are those of the students.
    """

    def of_levels(x: jax.Array) -> jax.Array:
        return rows_of_levels(x, layout)

    steps, n_evals = split_by_level(runs.steps, layout), layout.n_evals
    # With lambda 0, an advantage is the TD error of its step. So bootstrapping is decided in one place.
    one_step, _ = runs.advantages(gamma, 0.0)
    return Experience(
        done=steps.done,
        value=steps.value,
        advantage=of_levels(runs.advantages(gamma, gae_lambda)[0]),
        td_error=of_levels(one_step),
        logits=jax.tree.map(of_levels, logits),
        values=jax.tree.map(of_levels, values),
        episodes=episode_returns(steps, n_evals, layout.in_turn),
        best_return=jnp.repeat(best_return, n_evals),
        valid=steps.valid,
        by_agent=returns_by_agent(steps, layout) if layout.n_agents > 1 else None,
    )


def discounted_mean(steps: Transition, gamma: float, n_evals: int) -> jax.Array:
    """f32[A, B]: the mean discounted return of the episodes that ended in `steps` [T, A, B * n_evals]; 0 for none."""
    valid = jnp.ones_like(steps.done) if steps.valid is None else steps.valid

    def one_step(loop: tuple, step: tuple) -> tuple[tuple, None]:
        total, weight, so_far = loop
        reward, valid, done = step
        so_far = so_far + jnp.where(valid, weight * reward, 0.0)
        total = total + jnp.where(done, so_far, 0.0)
        weight = jnp.where(done, 1.0, jnp.where(valid, weight * gamma, weight))
        return (total, weight, jnp.where(done, 0.0, so_far)), None

    zero = jnp.zeros_like(steps.reward[0])
    told = (steps.reward, valid, steps.done)
    (total, _, _), _ = jax.lax.scan(one_step, (zero, jnp.ones_like(zero), zero), told, unroll=steps_at_once(16))
    count = by_level(steps.done.sum(axis=0, dtype=jnp.int32), n_evals).sum(axis=-1)
    return by_level(total, n_evals).sum(axis=-1) / jnp.maximum(count, 1)


def returns_by_agent(steps: Transition, layout: Layout) -> EpisodeReturns:
    """[A, B * G], the episodes of each of G agents on each of B levels. `steps` are those of `split_by_level`."""
    n_evals, n_agents, told = layout.n_evals, layout.n_agents, steps.replace(obs=(), action=())
    apart = jax.tree.map(lambda x: agents_apart(x, 2, n_evals, n_agents), told)
    return episode_returns(apart, n_evals // n_agents, layout.in_turn)


def agents_apart(x: jax.Array, axis: int, n_evals: int, n_agents: int) -> jax.Array:
    """The same rows in another order: the rows of an agent on a level lie together, as if the agent were the level."""
    parts = x.reshape(*x.shape[:axis], -1, n_evals // n_agents, n_agents, *x.shape[axis + 1 :])
    return parts.swapaxes(axis + 1, axis + 2).reshape(x.shape)


def episode_mean(values: jax.Array, done: jax.Array, n_evals: int = 1, valid: jax.Array | None = None) -> jax.Array:
    """f32[..., B]: the mean over a level's finished episodes of the mean over their steps; -inf where there is none.

    Of `values` [T, ..., B * n_evals], over the `valid` steps (bool in the same shape; None: all steps).
    """
    weights = jnp.ones((len(values), *(1,) * (values.ndim - 1)), values.dtype)
    if valid is not None:
        values, weights = jnp.where(valid, values, 0.0), valid.astype(values.dtype)

    # In a mean over all steps, long episodes would outweigh short ones, and most of them are failures.
    def one_step(loop: tuple, step: tuple) -> tuple[tuple, None]:
        running, length, total, count = loop
        value, done, weight = step
        running, length = running + value, length + weight
        # Of a step that ends an episode and does not count, nothing may be left.
        total = total + jnp.where(done, running / jnp.maximum(length, 1.0), 0.0)
        return (jnp.where(done, 0.0, running), jnp.where(done, 0.0, length), total, count + done), None

    zero = jnp.zeros_like(values[0])
    start, n = (zero, zero, zero, zero), steps_at_once(16)
    (_, _, total, count), _ = jax.lax.scan(one_step, start, (values, done, weights), unroll=n)
    total, count = by_level(total, n_evals).sum(axis=-1), by_level(count, n_evals).sum(axis=-1)
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), -jnp.inf)


def mean_of(students: jax.Array, values: jax.Array) -> jax.Array:
    """f32[B]: the mean of `values` (f32[A, B]) over those of the students (bool[A, B]); 0 if there are none."""
    total = jnp.where(students, values, 0.0).sum(axis=0)
    return total / jnp.maximum(students.sum(axis=0, dtype=jnp.int32), 1)


def comparable(episodes: EpisodeReturns) -> jax.Array:
    """bool[B]: some student has finished an episode on the level; where rows play levels in turn, all have.

    On a level that restarts, a student without a finished episode has played all the time, and failed so far. In turn,
    it may not have come to the level, or only just.
    """
    return (episodes.count > 0).any(axis=0) & episodes.known.all(axis=0)


def with_unfinished(episodes: EpisodeReturns) -> EpisodeReturns:
    """The same, but a student that has finished no episode has the return that it has so far.

    Students can then be compared. Regret is highest on a level that the antagonist solves while the protagonist is
    still on its way.
    """
    has_finished, so_far = episodes.count > 0, episodes.first.returns
    return episodes.replace(
        mean=jnp.where(has_finished, episodes.mean, so_far.mean(axis=-1)),
        best=jnp.where(has_finished, episodes.best, so_far.max(axis=-1)),
    )

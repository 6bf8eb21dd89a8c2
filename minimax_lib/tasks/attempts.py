"""Attempts, cut out of the steps of rollouts that begin where the one before has ended."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results

Tail = Literal["stitch", "write", "drop"]


class Steps(struct.PyTreeNode):
    """T steps of N rows, [T, N]."""

    task: jax.Array  # i32, the task that the step belongs to
    done: jax.Array  # bool, the attempt ended with this step
    progress: jax.Array  # f32
    episode: jax.Array  # bool, the episode ended with this step, and with it the attempt
    episode_return: jax.Array  # f32, of the episode so far
    quantity: jax.Array  # f32, what the score is the mean of; NaN where it is not computed
    valid: jax.Array | None = None  # bool, the step counts: its agent was alive; None: all steps do
    over: jax.Array | None = None  # bool, the task of all agents of the environment ended; None: it has one agent


class Unfinished(struct.PyTreeNode):
    """The attempts that N rows are in the middle of."""

    length: jax.Array  # i32[N], steps so far
    before: jax.Array  # f32[N], the episode's return when the attempt began
    total: jax.Array  # f32[N], sum of the score's quantity over those of them that count
    n_scored: jax.Array  # i32[N], steps in that sum
    highest: jax.Array  # f32[N], of the quantity at these steps; -inf where there are none

    @staticmethod
    def none(n_rows: int) -> "Unfinished":
        """All rows begin an attempt."""
        zero, nothing = jnp.zeros(n_rows, jnp.int32), jnp.zeros(n_rows, jnp.float32)
        lowest = jnp.full(n_rows, -jnp.inf, jnp.float32)
        return Unfinished(length=zero, before=nothing, total=nothing, n_scored=zero, highest=lowest)


def results_of(steps: Steps, before: Unfinished, tail: Tail, max_score_coef: float = 0.0) -> tuple[Results, Unfinished]:
    """(the results of at most T * N attempts, [T, N]; the attempts that go on in the next rollout).

    An attempt that is cut by the end of a rollout is scored over all of its steps, once it has ended ("stitch"). Or its
    parts are scored one by one, each as if it were an attempt ("write", as in level-replay's code). Or only the part in
    which it ends is scored ("drop"). With `max_score_coef` m, the score is m max + (1 - m) mean.
    """
    none = Unfinished.none(before.length.shape[0])

    def one_step(loop: Unfinished, step: Steps) -> tuple[Unfinished, tuple[jax.Array, jax.Array, jax.Array]]:
        counts = jnp.int32(1) if step.valid is None else step.valid.astype(jnp.int32)
        length, n_scored = loop.length + counts, loop.n_scored + counts
        quantity = step.quantity if step.valid is None else jnp.where(step.valid, step.quantity, 0.0)
        lowest = quantity if step.valid is None else jnp.where(step.valid, quantity, -jnp.inf)
        total, highest = loop.total + quantity, jnp.maximum(loop.highest, lowest)
        score = total / n_scored.astype(jnp.float32)
        if max_score_coef != 0:
            score = max_score_coef * highest + (1.0 - max_score_coef) * score
        after = Unfinished(length, loop.before, total, n_scored, highest)
        cleared = jax.tree.map(lambda empty, x: jnp.where(step.done, empty, x), none, after)
        goes_on = jnp.where(step.episode, 0.0, step.episode_return)  # into the next attempt of the episode
        cleared = cleared.replace(before=jnp.where(step.done, goes_on, loop.before))
        return cleared, (length, step.episode_return - loop.before, score)

    after, (length, returns, score) = jax.lax.scan(one_step, before, steps)
    scored = steps.done
    if tail != "stitch":
        if tail == "write":
            scored = scored.at[-1].set(True)
        after = none.replace(length=after.length, before=after.before)
    results = Results(
        task=steps.task,
        valid=steps.done,
        progress=steps.progress,
        returns=returns,
        length=length,
        episode=steps.done & steps.episode,
        episode_return=steps.episode_return,
        score=jnp.where(scored, score, jnp.nan),
    )
    return results, after

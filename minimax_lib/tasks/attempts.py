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
    returns: jax.Array  # f32, of the attempt so far
    quantity: jax.Array  # f32, what the score is the mean of; NaN where nobody computes it


class Unfinished(struct.PyTreeNode):
    """The attempts that N rows are in the middle of."""

    length: jax.Array  # i32[N], steps so far
    total: jax.Array  # f32[N], sum of the score's quantity over those of them that count
    n_scored: jax.Array  # i32[N], steps in that sum

    @staticmethod
    def none(n_rows: int) -> "Unfinished":
        """All rows begin an attempt."""
        zero = jnp.zeros(n_rows, jnp.int32)
        return Unfinished(length=zero, total=jnp.zeros(n_rows, jnp.float32), n_scored=zero)


def results_of(steps: Steps, before: Unfinished, tail: Tail) -> tuple[Results, Unfinished]:
    """(the results of at most T * N attempts, [T, N]; the attempts that go on in the next rollout).

    An attempt that is cut by the end of a rollout is scored over all of its steps, once it has ended ("stitch"). Or its
    parts are scored one by one, each as if it were an attempt ("write", as in level-replay's code). Or only the part in
    which it ends is scored ("drop").
    """

    def one_step(loop: Unfinished, step: Steps) -> tuple[Unfinished, tuple[jax.Array, jax.Array]]:
        length, n_scored = loop.length + 1, loop.n_scored + 1
        total = loop.total + step.quantity
        mean = total / n_scored.astype(jnp.float32)
        after = Unfinished(length, total, n_scored)
        cleared = jax.tree.map(lambda x: jnp.where(step.done, jnp.zeros_like(x), x), after)
        return cleared, (length, mean)

    after, (length, mean) = jax.lax.scan(one_step, before, steps)
    scored = steps.done
    if tail != "stitch":
        if tail == "write":
            scored = scored.at[-1].set(True)
        after = after.replace(total=jnp.zeros_like(after.total), n_scored=jnp.zeros_like(after.n_scored))
    results = Results(
        task=steps.task,
        valid=steps.done,
        progress=steps.progress,
        returns=steps.returns,
        length=length,
        episode=steps.done,
        episode_return=steps.returns,
        score=jnp.where(scored, mean, jnp.nan),
    )
    return results, after

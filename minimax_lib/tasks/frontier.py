"""Questions at the frontier: those that are answered right sometimes (LILO, Foster et al. 2025; UCB's bonus)."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.tasks.core import Results
from minimax_lib.tasks.ordered import in_order
from minimax_lib.tasks.rates import check_share
from minimax_lib.tasks.weighted import Weighted


class FrontierState(struct.PyTreeNode):
    """What is known of N tasks. Sums are over answers, and a group of answers counts less with each later one."""

    answers: jax.Array  # f32[N], how many
    total: jax.Array  # f32[N], of their progress
    squares: jax.Array  # f32[N], of its square
    right: jax.Array  # i32[N], groups that were all right, one after another; those before the last other one are not
    spoilt: jax.Array  # bool[N], the group under way has an answer that is not right
    open: jax.Array  # bool[N], a group is under way
    told: jax.Array  # i32[], answers to all tasks, whole; exact up to 2**31


@dataclasses.dataclass(frozen=True)
class Frontier(Weighted):
    """Tasks whose answers differ: some are right, and some are wrong.

    A task's weight is (4 v) ** (1 / temperature) + bonus sqrt(log(1 + t) / (1 + n)), where n of all t answers were to
    this task, and v is the variance of their progress, with one right and one wrong answer more (Beta(1, 1)). For
    answers that are right or wrong, v = p (1 - p). A group of answers is an episode of several attempts.
    Where each attempt of an episode has a task of its own, it is a group alone.
    """

    n_tasks: int
    temperature: float = 0.2
    """Low values favour the tasks whose answers differ most."""
    bonus: float = 0.005
    """What is added for tasks with few answers."""
    discount: float = 0.8
    """What is known of a task counts so much less with each new group of answers."""
    mastered: int = 2
    """Groups that are all right, one after another, after which a task has no weight."""
    again: float = 0.05
    """Share of the draws that go to the tasks without a weight for this reason."""

    takes_groups = True

    def __post_init__(self) -> None:
        check_share("again", self.again)
        if not 0 < self.discount <= 1:
            raise ValueError(f"discount is {self.discount}: it must be above 0 and at most 1")
        for name, least in (("bonus", 0), ("mastered", 1)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least {least}")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}: it must be positive and finite")

    def init(self, key: jax.Array) -> FrontierState:
        n = self.n_tasks
        zeros, no = jnp.zeros(n, jnp.float32), jnp.zeros(n, bool)
        return FrontierState(zeros, zeros, zeros, jnp.zeros(n, jnp.int32), no, no, jnp.zeros((), jnp.int32))

    def update(self, state: FrontierState, results: Results) -> FrontierState:
        def one(state: FrontierState, i: jax.Array) -> FrontierState:
            task, progress, ends = results.task[i], results.progress[i], results.episode[i]
            kept = jnp.where(state.open[task], 1.0, self.discount)  # a group counts as one
            spoilt = (state.open[task] & state.spoilt[task]) | (progress < 1)
            right = jnp.where(spoilt, 0, state.right[task] + 1)
            return state.replace(
                answers=state.answers.at[task].set(kept * state.answers[task] + 1),
                total=state.total.at[task].set(kept * state.total[task] + progress),
                squares=state.squares.at[task].set(kept * state.squares[task] + progress**2),
                right=state.right.at[task].set(jnp.where(ends, right, state.right[task])),
                spoilt=state.spoilt.at[task].set(spoilt),
                open=state.open.at[task].set(~ends),
                told=state.told + 1,
            )

        return in_order(one, state, results.valid)

    def variance(self, state: FrontierState) -> jax.Array:
        """f32[N], of the progress of answers, with one right and one wrong answer more."""
        n = state.answers + 2
        return jnp.maximum((state.squares + 1) / n - ((state.total + 1) / n) ** 2, 0.0)

    def weights(self, state: FrontierState) -> jax.Array:
        mastered = state.right >= self.mastered
        few = jnp.sqrt(jnp.log1p(state.told.astype(jnp.float32)) / (1 + state.answers))
        strengths = (4 * self.variance(state)) ** (1 / self.temperature) + self.bonus * few
        strengths = jnp.where(mastered, 0.0, strengths)
        n_mastered = mastered.sum(dtype=jnp.float32)
        again = jnp.where(n_mastered > 0, jnp.where(n_mastered < self.n_tasks, self.again, 1.0), 0.0)
        total = strengths.sum()
        # No task may be left with a strength: then all that are not mastered are alike.
        shares = jnp.where(total > 0, strengths, (~mastered).astype(jnp.float32))
        shares = shares / jnp.maximum(shares.sum(), jnp.finfo(jnp.float32).tiny)
        return (1 - again) * shares + again * mastered / jnp.maximum(n_mastered, 1.0)

    def report(self, state: FrontierState) -> dict[str, jax.Array]:
        tried = state.answers > 0
        n = jnp.maximum(tried.sum(dtype=jnp.float32), 1.0)
        rate = jnp.where(tried, state.total / jnp.maximum(state.answers, 1.0), 0.0)
        return {
            "tasks/tried": tried.mean(dtype=jnp.float32),
            "tasks/rate": rate.sum() / n,
            "tasks/mixed": jnp.where(tried, (rate > 0) & (rate < 1), False).sum(dtype=jnp.float32) / n,
            "tasks/mastered": (state.right >= self.mastered).mean(dtype=jnp.float32),
        }

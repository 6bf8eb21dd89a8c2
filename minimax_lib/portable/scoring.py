"""Scores of attempts from a trainer's own rollouts."""

import dataclasses
import functools
from typing import Annotated, Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.curricula.experience import Experience
from minimax_lib.curricula.scores import SCORES
from minimax_lib.gae import gae, next_values
from minimax_lib.messages import shown
from minimax_lib.registry import unknown_name
from minimax_lib.tasks.attempts import Tail


@dataclasses.dataclass(frozen=True)
class Scoring:
    """How `Host.report_rollout` makes scores of rewards and values."""

    score: Annotated[str, SCORES] = "l1_value_loss"
    """The quantity whose mean over the steps of an attempt is its score."""
    gamma: float = 0.99
    """Discount of the trainer."""
    gae_lambda: float = 0.95
    """Lambda of the trainer's advantages."""
    tail: Tail = "stitch"
    """How to score an attempt that the end of a rollout cuts: see `--runner.tail`."""
    max_score_coef: float = 0.0
    """Share of the highest quantity in a score; the rest is the mean."""

    def __post_init__(self) -> None:
        score = SCORES[self.score]
        if score.quantity is None or score.mixes_scales or score.n_values > 1:
            able = [n for n in SCORES.names() if (s := SCORES[n]).quantity and not s.mixes_scales and s.n_values == 1]
            raise ValueError(
                f"score is {self.score!r}: it must be a mean over the steps of one attempt, choose from "
                f"{', '.join(able)}"
            )
        for name in ("gamma", "gae_lambda", "max_score_coef"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")
        if self.tail not in get_args(Tail):
            raise unknown_name("tail", self.tail, get_args(Tail))

    @property
    def needs_logits(self) -> bool:
        return SCORES[self.score].needs_network


def checked_scoring(scoring: Any) -> Scoring:
    """`scoring`. ValueError in one line if it is something else, such as the name of a score."""
    if not isinstance(scoring, Scoring):
        raise ValueError(f"scoring is {shown(scoring)}: it must be a Scoring, such as Scoring('l1_value_loss')")
    return scoring


class PlayedSteps(struct.PyTreeNode):
    """T steps of B rows, [T, B]. `done`: the episode, or the attempt, ended with the action of this step."""

    reward: jax.Array  # f32
    value: jax.Array  # f32, of the observation before the action
    done: jax.Array  # bool
    counts: jax.Array  # bool, False where a step only opened an episode
    last_value: jax.Array  # f32[B], of the observation after the last action
    logits: jax.Array | None  # f32[T, B, n]


class OpenAttempts(struct.PyTreeNode):
    """The attempts that B rows are in the middle of."""

    total: jax.Array  # f32[B], sum of the quantity
    n_steps: jax.Array  # i32[B], steps in that sum
    highest: jax.Array  # f32[B], of the quantity at these steps; -inf where there are none

    @staticmethod
    def none(n_rows: int, arrays: Any = jnp) -> "OpenAttempts":
        """All rows begin an attempt. `arrays`: jax.numpy, or NumPy, which compiles nothing."""
        nothing, lowest = arrays.zeros(n_rows, np.float32), arrays.full(n_rows, -np.inf, np.float32)
        return OpenAttempts(nothing, arrays.zeros(n_rows, np.int32), lowest)


@functools.partial(jax.jit, static_argnums=0)
def attempt_scores(scoring: Scoring, x: PlayedSteps, before: OpenAttempts) -> tuple[jax.Array, jax.Array, OpenAttempts]:
    """(f32[T, B] scores of the attempts up to each step, bool[T, B] where one counts, attempts that go on)."""
    none, share = OpenAttempts.none(len(x.last_value)), scoring.max_score_coef

    def one_step(
        loop: OpenAttempts, step: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[OpenAttempts, tuple[Any, Any]]:
        quantity, done, counts = step
        total, n = loop.total + jnp.where(counts, quantity, 0.0), loop.n_steps + counts
        highest = jnp.maximum(loop.highest, jnp.where(counts, quantity, -jnp.inf))
        score = total / jnp.maximum(n, 1).astype(jnp.float32)
        if share != 0:
            score = share * highest + (1.0 - share) * score
        after = jax.tree.map(lambda empty, x: jnp.where(done, empty, x), none, OpenAttempts(total, n, highest))
        return after, (score, n > 0)

    after, (score, any_step) = jax.lax.scan(one_step, before, (_quantities(scoring, x), x.done, x.counts))
    scored = x.done
    if scoring.tail != "stitch":
        if scoring.tail == "write":
            scored = scored.at[-1].set(True)
        after = none
    return score, scored & any_step, after


def _quantities(scoring: Scoring, x: PlayedSteps) -> jax.Array:
    """f32[T, B], what the score is the mean of."""
    discount = 1.0 - x.done.astype(jnp.float32)
    following = next_values(x.value, x.last_value)
    known = x.reward, x.done, discount, x.value, following
    advantage, _ = gae(*known, scoring.gamma, scoring.gae_lambda)
    one_step, _ = gae(*known, scoring.gamma, 0.0)
    nothing: Any = None  # of whole episodes; a mean over steps does not read it
    student = Experience(
        done=x.done[:, None],
        value=x.value[:, None],
        advantage=advantage[:, None],
        td_error=one_step[:, None],
        logits=None if x.logits is None else x.logits[:, None],
        values=None,
        episodes=nothing,
        best_return=nothing,
    )
    quantity = SCORES[scoring.score].quantity
    assert quantity is not None
    return quantity(student)[:, 0]

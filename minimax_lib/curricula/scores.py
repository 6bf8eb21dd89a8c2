"""What a level is worth to a curriculum, from the rollouts of the students on it.

Every score is the mean over the episodes that were completed inside the rollout (a maximum where its formula says so);
a mean over steps is taken episode by episode first. The unfinished tail of a row counts for nothing, and a row
without a finished episode scores -inf: such a score is never written to a level buffer.

Of several students, it is enough that one has finished an episode. Where a score is a mean over steps, the others are
left out; where it compares returns, they count with the return that they have so far.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.spaces import Discrete, Space
from minimax_lib.loops import steps_at_once
from minimax_lib.registry import Registry
from minimax_lib.rollout import EpisodeReturns, Rollout, by_level, episode_returns


class Experience(struct.PyTreeNode):
    """What a score is a function of: A students played B levels for T steps, in R = B * E rows."""

    done: jax.Array  # bool[T, A, R]
    value: jax.Array  # f32[T, A, R]
    advantage: jax.Array  # f32[T, A, R]
    td_error: jax.Array  # f32[T, A, R], r_t + gamma V_{t+1} - V_t
    logits: jax.Array | None  # f32[T, A, R, n], for the scores that need the network
    values: jax.Array | None  # f32[T, A, R, K], all estimates of the value, likewise
    episodes: EpisodeReturns  # [A, B]
    best_return: jax.Array  # f32[R], the highest return ever reached on the row's level, these rollouts included

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
    n_evals: int = 1,
) -> Experience:
    """The experience of rollouts [T, A, B * n_evals] on levels with a `best_return` (f32[B]).

    The discounting is the students'.
    """
    steps = runs.steps
    # With lambda 0 an advantage is the TD error of its step; bootstrapping is decided in one place.
    one_step, _ = runs.advantages(gamma, 0.0)
    return Experience(
        done=steps.done,
        value=steps.value,
        advantage=runs.advantages(gamma, gae_lambda)[0],
        td_error=one_step,
        logits=logits,
        values=values,
        episodes=episode_returns(steps, n_evals),
        best_return=jnp.repeat(best_return, n_evals),
    )


def episode_mean(values: jax.Array, done: jax.Array, n_evals: int = 1) -> jax.Array:
    """f32[..., B]: the mean over a level's finished episodes of the mean over their steps; -inf where there is none.

    Of `values` [T, ..., B * n_evals].
    """

    # In a mean over all steps, long episodes, which are mostly failures, would outweigh the short ones.
    def one_step(loop: tuple, step: tuple) -> tuple[tuple, None]:
        running, length, total, count = loop
        value, done = step
        running, length = running + value, length + 1.0
        total = total + jnp.where(done, running / length, 0.0)
        return (jnp.where(done, 0.0, running), jnp.where(done, 0.0, length), total, count + done), None

    zero = jnp.zeros_like(values[0])
    start, n = (zero, zero, zero, zero), steps_at_once(16)
    (_, _, total, count), _ = jax.lax.scan(one_step, start, (values, done), unroll=n)
    total, count = by_level(total, n_evals).sum(axis=-1), by_level(count, n_evals).sum(axis=-1)
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), -jnp.inf)


Quantity = Callable[[Experience], jax.Array]  # f32[T, A, R], of every step


def step_mean(quantity: Quantity) -> Callable[[Experience], jax.Array]:
    """The score f32[B] that is the episodes' mean of `quantity`, and the mean over the students."""

    def score(x: Experience) -> jax.Array:
        has_finished = x.episodes.count > 0
        total = jnp.where(has_finished, episode_mean(quantity(x), x.done, x.n_evals), 0.0).sum(axis=0)
        # An unfinished episode has no mean over its steps: the students that have finished one speak for all.
        return finished(x, total / jnp.maximum(has_finished.sum(axis=0, dtype=jnp.int32), 1))

    return score


def finished(x: Experience, score: jax.Array) -> jax.Array:
    """f32[B]: `score` where some student has finished an episode, -inf elsewhere."""
    # Where nobody has, the mean return is 0, which would pass for a return that was reached.
    return jnp.where((x.episodes.count > 0).any(axis=0), score, -jnp.inf)


def with_unfinished(episodes: EpisodeReturns) -> EpisodeReturns:
    """The same, but a student that has finished no episode counts with the return that it has so far.

    So that students can be compared: a level that the antagonist solves, while the protagonist is still on its way, is
    where the regret is highest.
    """
    has_finished, so_far = episodes.count > 0, episodes.first.returns
    return episodes.replace(
        mean=jnp.where(has_finished, episodes.mean, so_far.mean(axis=-1)),
        best=jnp.where(has_finished, episodes.best, so_far.max(axis=-1)),
    )


def mean_return(x: Experience) -> jax.Array:
    return finished(x, with_unfinished(x.episodes).mean.mean(axis=0))


def neg_return(x: Experience) -> jax.Array:
    return finished(x, -with_unfinished(x.episodes).mean.mean(axis=0))


def relative_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: best return of the antagonist (student 1) above the protagonist's (student 0) mean, at least 0."""
    # The antagonist's best return stands for what can be reached on the level. Regret is never negative, but this
    # estimate of it could be.
    return jnp.maximum(episodes.best[1] - episodes.mean[0], 0.0)


def mean_relative_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: the same with the antagonist's mean return."""
    return jnp.maximum(episodes.mean[1] - episodes.mean[0], 0.0)


def population_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: best return of any student above the mean over the students of their mean returns."""
    # It needs no floor at 0: no mean is above the best return.
    return episodes.best.max(axis=0) - episodes.mean.mean(axis=0)


def regret(formula: Callable[[EpisodeReturns], jax.Array]) -> Callable[[Experience], jax.Array]:
    """The score f32[B] that is `formula` where some student has finished an episode."""
    return lambda x: finished(x, formula(with_unfinished(x.episodes)))


def learnability(x: Experience) -> jax.Array:
    """f32[B]: p (1 - p), p the share of a level's evaluations whose first episode was solved."""
    # First episodes: of all that end inside a rollout, the long ones, which are mostly failures, are cut off.
    p = x.episodes.first.solved.mean(axis=-1, dtype=jnp.float32)
    return finished(x, (p * (1.0 - p)).mean(axis=0))


def log_probabilities(x: Experience) -> jax.Array:
    """f32[T, A, R, n]: the logarithms of the probabilities of Discrete actions."""
    if x.logits is None:
        raise ValueError("a score looks at the policy, which the experience does not hold: declare needs_network=True")
    return jax.nn.log_softmax(x.logits)


def entropy(x: Experience) -> jax.Array:
    """f32[T, A, R]: the policy's entropy, as a share of the highest that there is."""
    # As in the authors' code (level-replay): the number of actions is then no factor of the score.
    log_p = log_probabilities(x)
    return -(jnp.exp(log_p) * log_p).sum(axis=-1) / jnp.log(log_p.shape[-1])


def doubt(x: Experience) -> jax.Array:
    """f32[T, A, R]: one less the probability of the likeliest action."""
    return 1.0 - jnp.exp(log_probabilities(x).max(axis=-1))


def confidence_margin(x: Experience) -> jax.Array:
    """f32[T, A, R]: how much likelier the likeliest action is than the next."""
    first, second = jnp.moveaxis(jax.lax.top_k(jnp.exp(log_probabilities(x)), 2)[0], -1, 0)
    return first - second


def disagreement(x: Experience) -> jax.Array:
    """f32[T, A, R]: the standard deviation of the estimates of the value."""
    if x.values is None:
        raise ValueError("a score looks at the values, which the experience does not hold: declare needs_network=True")
    return x.values.std(axis=-1)


@dataclasses.dataclass(frozen=True)
class Score:
    """A function of an `Experience`, and what it needs."""

    function: Callable[[Experience], jax.Array]
    n_students: int = 1  # at least
    most_students: int | None = None
    needs_network: bool = False  # reads `logits` or `values`
    n_values: int = 1  # estimates of the value that the network must make, at least
    quantity: Quantity | None = None  # what the score is the mean of, where it is a mean over steps
    needs_discrete: bool = False  # reads the probabilities of Discrete actions
    n_evals: int = 1  # rows of a level, at least
    mixes_scales: bool = False  # compares values, which may be of normalised rewards, with returns, which never are

    def __call__(self, x: Experience) -> jax.Array:
        """f32[B]; -inf where no episode finished."""
        return self.function(x)


def per_step(quantity: Quantity, **needs: Any) -> Score:
    """The score that is the mean of `quantity` over the steps of an episode, over episodes, and over students.

    `needs` are what a `Score` says that it needs.
    """
    return Score(step_mean(quantity), quantity=quantity, **needs)


OF_POLICY = {"needs_network": True, "needs_discrete": True}


SCORES: Registry[Score] = Registry(
    "score",
    {
        # Jiang et al. 2021a (PLR), eq. 2 and table 1
        "l1_value_loss": per_step(lambda x: jnp.abs(x.advantage)),
        "gae": per_step(lambda x: x.advantage),
        "one_step_td": per_step(lambda x: jnp.abs(x.td_error)),
        "policy_entropy": per_step(entropy, **OF_POLICY),
        "least_confidence": per_step(doubt, **OF_POLICY),
        "min_margin": per_step(lambda x: 1.0 - confidence_margin(x), **OF_POLICY),
        # Jiang et al. 2021b (DCD)
        "positive_value_loss": per_step(lambda x: jnp.maximum(x.advantage, 0.0)),
        "max_mc": per_step(lambda x: x.best_return[None, None] - x.value, mixes_scales=True),
        # Mead et al. 2025 (MNA)
        "negative_advantage": per_step(lambda x: jnp.maximum(-x.advantage, 0.0)),
        # Dennis et al. 2020 (PAIRED), Jiang et al. 2023 (minimax)
        "return": Score(mean_return),
        "neg_return": Score(neg_return),
        "relative_regret": Score(regret(relative_regret), n_students=2, most_students=2),
        "mean_relative_regret": Score(regret(mean_relative_regret), n_students=2, most_students=2),
        "population_regret": Score(regret(population_regret), n_students=2),
        # Jiang et al. 2023 (minimax)
        "value_disagreement": per_step(disagreement, needs_network=True, n_values=2),
        # Rutherford et al. 2024 (SFL), eq. 2
        "learnability": Score(learnability, n_evals=2),
    },
)


def register_score(name: str, function: Callable[[Experience], jax.Array], **needs: Any) -> Score:
    """Adds a score to the choices of `--runner.score`; `needs` are what a `Score` says that it needs.

    `step_mean` and `finished` help to write its function.
    """
    return SCORES.register(name, Score(function, **needs))


def check_score(which: str, name: str, action_space: Space, n_students: int, n_values: int) -> None:
    """ValueError where the score called `name`, used as `which`, cannot be computed.

    There are `n_students`, who act in `action_space` and whose network gives `n_values` estimates of the value.
    """
    score = SCORES[name]
    if score.needs_discrete and not isinstance(action_space, Discrete):
        raise ValueError(
            f"{which} is {name!r}, which needs Discrete actions, but the environment's are "
            f"{type(action_space).__name__}: choose a score of values or returns, as positive_value_loss"
        )
    if n_students < score.n_students:
        bound = f"{'' if score.most_students else 'at least '}{score.n_students}"
        raise ValueError(
            f"{which} is {name!r}, which compares students: runner.n_students is {n_students}, "
            f"choose {bound}, or another score"
        )
    if score.most_students is not None and n_students > score.most_students:
        raise ValueError(
            f"{which} is {name!r}, which compares {score.most_students} students: runner.n_students is {n_students}, "
            "choose the score population_regret"
        )
    if n_values < score.n_values:
        raise ValueError(f"model.n_values is {n_values}: {which}={name} needs {score.n_values}")

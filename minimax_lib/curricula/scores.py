"""What a level is worth to a curriculum, from the rollouts of the students on it.

Every score is the mean over the episodes that were completed inside the rollout (a maximum where its formula says so);
a mean over steps is taken episode by episode first. The unfinished tail of a row counts for nothing, and a row
without a finished episode scores -inf: such a score is never written to a level buffer.

Of several students, it is enough that one has finished an episode. Where a score is a mean over steps, the others are
left out; where it compares returns, they count with the return that they have so far.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.loops import steps_at_once
from minimax_lib.registry import Registry
from minimax_lib.rollout import EpisodeReturns, Rollout, episode_returns


class Experience(struct.PyTreeNode):
    """What a score is a function of: A students played B levels for T steps."""

    done: jax.Array  # bool[T, A, B]
    value: jax.Array  # f32[T, A, B]
    advantage: jax.Array  # f32[T, A, B]
    td_error: jax.Array  # f32[T, A, B], r_t + gamma V_{t+1} - V_t
    logits: jax.Array | None  # f32[T, A, B, n], for the scores that need the network
    values: jax.Array | None  # f32[T, A, B, K], all estimates of the value, likewise
    episodes: EpisodeReturns  # [A, B]
    best_return: jax.Array  # f32[B], the highest return ever reached on the level, these rollouts included


def experience(
    runs: Rollout,
    best_return: jax.Array,
    gamma: float,
    gae_lambda: float,
    logits: jax.Array | None = None,
    values: jax.Array | None = None,
) -> Experience:
    """The experience of rollouts [T, A, B]; the discounting is the students'."""
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
        episodes=episode_returns(steps),
        best_return=best_return,
    )


def episode_mean(values: jax.Array, done: jax.Array) -> jax.Array:
    """f32[...]: the mean over finished episodes of the mean over their steps of `values` [T, ...]; -inf without one."""

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
    return jnp.where(count > 0, total / jnp.maximum(count, 1.0), -jnp.inf)


Quantity = Callable[[Experience], jax.Array]  # f32[T, A, B], of every step


def step_mean(quantity: Quantity) -> Callable[[Experience], jax.Array]:
    """The score f32[B] that is the episodes' mean of `quantity`, and the mean over the students."""

    def score(x: Experience) -> jax.Array:
        has_finished = x.episodes.count > 0
        total = jnp.where(has_finished, episode_mean(quantity(x), x.done), 0.0).sum(axis=0)
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
    has_finished = episodes.count > 0
    return episodes.replace(
        mean=jnp.where(has_finished, episodes.mean, episodes.first.returns),
        best=jnp.where(has_finished, episodes.best, episodes.first.returns),
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
    """f32[B]: p (1 - p), p the rate of finished episodes that were solved."""
    p = x.episodes.solved / jnp.maximum(x.episodes.count, 1)
    return finished(x, (p * (1.0 - p)).mean(axis=0))


def log_probabilities(x: Experience) -> jax.Array:
    """f32[T, A, B, n]: the logarithms of the probabilities of the actions."""
    if x.logits is None:
        raise ValueError("a score looks at the policy, which the experience does not hold: declare needs_network=True")
    return jax.nn.log_softmax(x.logits)


def entropy(x: Experience) -> jax.Array:
    """f32[T, A, B]: the policy's entropy, as a share of the highest that there is."""
    # As in the authors' code (level-replay): the number of actions is then no factor of the score.
    log_p = log_probabilities(x)
    return -(jnp.exp(log_p) * log_p).sum(axis=-1) / jnp.log(log_p.shape[-1])


def doubt(x: Experience) -> jax.Array:
    """f32[T, A, B]: one less the probability of the likeliest action."""
    return 1.0 - jnp.exp(log_probabilities(x).max(axis=-1))


def confidence_margin(x: Experience) -> jax.Array:
    """f32[T, A, B]: how much likelier the likeliest action is than the next."""
    first, second = jnp.moveaxis(jax.lax.top_k(jnp.exp(log_probabilities(x)), 2)[0], -1, 0)
    return first - second


def disagreement(x: Experience) -> jax.Array:
    """f32[T, A, B]: the standard deviation of the estimates of the value."""
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

    def __call__(self, x: Experience) -> jax.Array:
        """f32[B]; -inf where no episode finished."""
        return self.function(x)


def per_step(quantity: Quantity, needs_network: bool = False, n_values: int = 1) -> Score:
    """The score that is the mean of `quantity` over the steps of an episode, over episodes, and over students."""
    return Score(step_mean(quantity), needs_network=needs_network, n_values=n_values, quantity=quantity)


SCORES: Registry[Score] = Registry(
    "score",
    {
        # Jiang et al. 2021a (PLR), eq. 2 and table 1
        "l1_value_loss": per_step(lambda x: jnp.abs(x.advantage)),
        "gae": per_step(lambda x: x.advantage),
        "one_step_td": per_step(lambda x: jnp.abs(x.td_error)),
        "policy_entropy": per_step(entropy, needs_network=True),
        "least_confidence": per_step(doubt, needs_network=True),
        "min_margin": per_step(lambda x: 1.0 - confidence_margin(x), needs_network=True),
        # Jiang et al. 2021b (DCD)
        "positive_value_loss": per_step(lambda x: jnp.maximum(x.advantage, 0.0)),
        "max_mc": per_step(lambda x: x.best_return[None, None] - x.value),
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
        "learnability": Score(learnability),
    },
)


def register_score(
    name: str, function: Callable[[Experience], jax.Array], n_students: int = 1, needs_network: bool = False
) -> Score:
    """Adds a score to the choices of `--runner.score`. `step_mean` and `finished` help to write its function."""
    return SCORES.register(name, Score(function, n_students, needs_network=needs_network))


def check_score(which: str, name: str, n_students: int, n_values: int) -> None:
    """ValueError where the score called `name`, used as `which`, cannot be computed.

    There are `n_students`, whose network gives `n_values` estimates of the value.
    """
    score = SCORES[name]
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

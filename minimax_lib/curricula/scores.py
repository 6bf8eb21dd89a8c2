"""What a level is worth to a curriculum, from the rollouts of the students on it.

A score is a mean over the episodes that were completed inside the rollout, or a maximum if its formula says so. A mean
over steps is first taken within each episode. The unfinished end of a row does not count, except in parameter_change:
updates learn from it too. A level without a finished episode scores -inf, and such a score is never written to a level
buffer.

Of several students, it is enough that one has finished an episode. A score that is a mean over steps leaves the others
out. A score that compares returns takes the return that they have so far. Where rows play several levels in turn, all
students must have finished one: the others may not even have come to the level.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from minimax_lib.curricula.experience import (
    Experience,
    agents_apart,
    comparable,
    episode_mean,
    mean_of,
    with_unfinished,
)
from minimax_lib.curricula.mixture import novelty
from minimax_lib.curricula.score_models import ScoreModel
from minimax_lib.curricula.transition_error import next_observation
from minimax_lib.envs.base import Environment
from minimax_lib.messages import shown
from minimax_lib.playing.returns import EpisodeReturns, by_level
from minimax_lib.registry import check_name, unknown_name
from minimax_lib.tasks.registry import SCORES
from minimax_lib.trees import assert_shape

Quantity = Callable[[Experience], jax.Array]  # f32[T, A, R], of every step


def step_mean(quantity: Quantity) -> Callable[[Experience], jax.Array]:
    """The score f32[B] that is the episodes' mean of `quantity`, and the mean over the students."""

    def score(x: Experience) -> jax.Array:
        has_finished = x.episodes.count > 0
        # An unfinished episode has no mean over its steps. Only students that have finished an episode count.
        return finished(x, mean_of(has_finished, episode_mean(quantity(x), x.done, x.n_evals, x.valid)))

    return score


def finished(x: Experience, score: jax.Array) -> jax.Array:
    """f32[B]: `score` where students have finished enough episodes (see `comparable`), -inf elsewhere."""
    # Without a finished episode, the mean return is 0, which would look like a real return.
    return jnp.where(comparable(x.episodes), score, -jnp.inf)


def mean_return(x: Experience) -> jax.Array:
    return finished(x, with_unfinished(x.episodes).mean.mean(axis=0))


def neg_return(x: Experience) -> jax.Array:
    return finished(x, -with_unfinished(x.episodes).mean.mean(axis=0))


def relative_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: best return of the antagonist (student 1) above the protagonist's (student 0) mean, at least 0."""
    # The antagonist's best return stands for the best return there is. True regret is never negative, but this estimate
    # could be.
    return jnp.maximum(episodes.best[1] - episodes.mean[0], 0.0)


def mean_relative_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: the same with the antagonist's mean return."""
    return jnp.maximum(episodes.mean[1] - episodes.mean[0], 0.0)


def population_regret(episodes: EpisodeReturns) -> jax.Array:
    """f32[B]: best return of any student above the mean over the students of their mean returns."""
    # It needs no floor at 0: no mean is above the best return.
    return episodes.best.max(axis=0) - episodes.mean.mean(axis=0)


def regret(formula: Callable[[EpisodeReturns], jax.Array]) -> Callable[[Experience], jax.Array]:
    """The score f32[B] that is `formula` where the students can be compared."""
    return lambda x: finished(x, formula(with_unfinished(x.episodes)))


def learnability(x: Experience) -> jax.Array:
    """f32[B]: p (1 - p), p the share of a level's evaluations whose first episode was solved."""
    # Only first episodes count. Of later ones, the long ones are cut off, and most of these are failures.
    p = x.episodes.first.solved.mean(axis=-1, dtype=jnp.float32)
    return finished(x, (p * (1.0 - p)).mean(axis=0))


def maximised_negative_advantage(x: Experience) -> jax.Array:
    """f32[B]: the mean of minus the clipped advantage over the steps of finished episodes; 0 where none was solved."""
    if x.clipped is None:
        raise ValueError("a score looks at clipped advantages, which the experience does not hold (needs_clipped=True)")
    finishes = jnp.cumsum(x.done[::-1], axis=0, dtype=jnp.int32)[::-1] > 0
    counts = (finishes if x.valid is None else finishes & x.valid).astype(jnp.float32)
    total = by_level((-x.clipped * counts).sum(axis=0), x.n_evals).sum(axis=-1)
    mean = total / jnp.maximum(by_level(counts.sum(axis=0), x.n_evals).sum(axis=-1), 1.0)
    # Without this, unsolvable levels would be the highest: there the value is too high until the end.
    solved = jnp.where(x.episodes.solved > 0, mean, 0.0)
    return finished(x, mean_of(x.episodes.count > 0, solved))


def exact_regret(x: Experience) -> jax.Array:
    """f32[B]: the best discounted return that the level allows, above the students' mean, at least 0."""
    if x.optimum is None or x.discounted is None:
        raise ValueError("a score looks at the best return, which the experience does not hold (needs_optimum=True)")
    return finished(x, mean_of(x.episodes.count > 0, jnp.maximum(x.optimum[None] - x.discounted, 0.0)))


def log_probabilities(x: Experience) -> jax.Array:
    """f32[T, A, R, n]: the logarithms of the probabilities of Discrete actions."""
    if x.logits is None:
        raise ValueError("a score looks at the policy, which the experience does not hold: declare needs_network=True")
    return jax.nn.log_softmax(x.logits)


def entropy(x: Experience) -> jax.Array:
    """f32[T, A, R]: the policy's entropy, as a share of the highest that there is."""
    # A share, as in the authors' code (level-replay): so the score does not depend on the number of actions.
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


def parameter_change(x: Experience) -> jax.Array:
    """f32[B]: the squared norm of the update that the level alone would cause, with its unfinished episodes."""
    if x.change is None:
        raise ValueError("a score looks at updates, which the experience does not hold: declare needs_update=True")
    return finished(x, mean_of(x.episodes.count > 0, x.change))


@dataclasses.dataclass(frozen=True)
class Score:
    """A function of an `Experience`, and what it needs."""

    function: Callable[[Experience], jax.Array]
    n_students: int = 1  # at least
    most_students: int | None = None
    needs_network: bool = False  # reads `logits` or `values`
    needs_update: bool = False  # reads `change`
    n_values: int = 1  # estimates of the value that the network must make, at least
    quantity: Quantity | None = None  # what the score is the mean of, where it is a mean over steps
    needs_discrete: bool = False  # reads the probabilities of Discrete actions
    n_evals: int = 1  # rows of a level, at least
    adds_best: bool = False  # `quantity` is `best_return` plus something, so `best_return` may be added after the mean
    needs_clipped: bool = False  # reads `clipped`
    needs_optimum: bool = False  # reads `optimum` and `discounted`; the environment must have `optimal_return`
    mixes_scales: bool = False  # compares values, which may be of normalised rewards, with returns, which never are
    model: Callable[[Environment], ScoreModel] | None = (
        None  # makes the score's own model, of which it reads `modelled`
    )
    meaning: str = ""  # one line for `--list scores`

    def __call__(self, x: Experience) -> jax.Array:
        """f32[B]; -inf where no episode finished."""
        score = self.function(x)
        assert_shape("a score of levels", x.episodes.count.shape[-1:], score)
        return score


def per_step(quantity: Quantity, **needs: Any) -> Score:
    """The score that is the mean of `quantity` over the steps of an episode, over episodes, and over students.

    `needs` are what a `Score` says that it needs.
    """
    return Score(step_mean(quantity), quantity=quantity, **needs)


def modelled(x: Experience) -> jax.Array:
    """f32[T, A, R]: what the score's own model says of each step."""
    if x.modelled is None:
        raise ValueError("a score looks at a model, which the experience does not hold: declare model=...")
    return x.modelled


def transition_error(x: Experience) -> jax.Array:
    """f32[B]: the mean error of the predicted observations, without the last step of an episode, which has none."""
    counts = ~x.done if x.valid is None else ~x.done & x.valid
    return finished(x, mean_of(x.episodes.count > 0, episode_mean(modelled(x), x.done, x.n_evals, counts)))


def with_transition_error(score: Score, weight: float) -> Score:
    """`score`, to which `weight` times the transition error is added (TRACED)."""

    def function(x: Experience) -> jax.Array:
        base, error = score(x), transition_error(x)
        return jnp.where(jnp.isfinite(base), base + weight * error, base)

    return dataclasses.replace(score, function=function, quantity=None, adds_best=False, model=next_observation)


OVER_AGENTS: dict[str, tuple[Callable[..., jax.Array], float | None]] = {
    "max": (jnp.max, -jnp.inf),
    "min": (jnp.min, jnp.inf),
    "mean": (jnp.mean, None),
}


def over_agents(score: Score, how: Literal["max", "min", "mean"]) -> Score:
    """`score` of each agent alone, and then the highest, the lowest or the mean of them.

    Agents that have finished no episode on the level do not count. Without this, the lives of all agents are pooled.
    ValueError for a score of updates or of the best return, which are of all agents.
    """
    if how not in OVER_AGENTS:
        raise unknown_name("reduction over agents", how, list(OVER_AGENTS))
    if score.needs_update or score.needs_optimum:
        what = "updates" if score.needs_update else "the best return of a level"
        raise ValueError(f"over_agents is given a score that looks at {what}: that is of all agents together")

    def function(x: Experience) -> jax.Array:
        if x.by_agent is None:
            return score(x)
        n_agents = x.by_agent.count.shape[-1] // x.episodes.count.shape[-1]
        alone = x.replace(episodes=None, by_agent=None)
        apart = jax.tree.map(lambda y: agents_apart(y, min(y.ndim - 1, 2), x.n_evals, n_agents), alone)
        scores = score(apart.replace(episodes=x.by_agent)).reshape(-1, n_agents)
        counts = jnp.isfinite(scores)
        reduce, initial = OVER_AGENTS[how]
        start = {} if initial is None else {"initial": initial}
        found = reduce(jnp.where(counts, scores, 0.0), axis=1, where=counts, **start)
        return jnp.where(counts.any(axis=1), found, -jnp.inf)

    return dataclasses.replace(score, function=function, quantity=None)


OF_POLICY = {"needs_network": True, "needs_discrete": True}


SHIPPED: dict[str, Score] = {
    # Jiang et al. 2021a (PLR), eq. 2 and table 1
    "l1_value_loss": per_step(lambda x: jnp.abs(x.advantage), meaning="absolute advantage"),
    "gae": per_step(lambda x: x.advantage, meaning="advantage"),
    "one_step_td": per_step(lambda x: jnp.abs(x.td_error), meaning="absolute TD error"),
    "policy_entropy": per_step(
        entropy, **OF_POLICY, meaning="entropy of the policy, as a share of the highest there is"
    ),
    "least_confidence": per_step(doubt, **OF_POLICY, meaning="1 - the probability of the likeliest action"),
    "min_margin": per_step(
        lambda x: 1.0 - confidence_margin(x),
        **OF_POLICY,
        meaning="1 - how much likelier the likeliest action is than the next",
    ),
    # Jiang et al. 2021b (DCD)
    "positive_value_loss": per_step(lambda x: jnp.maximum(x.advantage, 0.0), meaning="max(advantage, 0)"),
    "max_mc": per_step(
        lambda x: x.best_return[None, None] - x.value,
        adds_best=True,
        mixes_scales=True,
        meaning="best return ever reached on the level - value",
    ),
    # Mead et al. 2026
    "mna": Score(
        maximised_negative_advantage,
        needs_clipped=True,
        meaning="minus the advantage, clipped as it grows; 0 on levels that were never solved",
    ),
    # Monette et al. 2025 (NCC)
    "exact_regret": Score(
        exact_regret,
        needs_optimum=True,
        mixes_scales=True,
        meaning="best discounted return of the level - that of the students, at least 0; AMaze only",
    ),
    # Of no paper. It is high on levels that cannot be solved.
    "negative_advantage": per_step(
        lambda x: jnp.maximum(-x.advantage, 0.0),
        meaning="max(-advantage, 0); highest on levels that cannot be solved: choose mna",
    ),
    # Dennis et al. 2020 (PAIRED), Jiang et al. 2023 (minimax)
    "return": Score(mean_return, meaning="mean return of the students"),
    "neg_return": Score(neg_return, meaning="minus the mean return of the students"),
    "relative_regret": Score(
        regret(relative_regret),
        n_students=2,
        most_students=2,
        meaning="best return of student 1 - mean return of student 0, at least 0",
    ),
    "mean_relative_regret": Score(
        regret(mean_relative_regret),
        n_students=2,
        most_students=2,
        meaning="mean return of student 1 - mean return of student 0, at least 0",
    ),
    "population_regret": Score(
        regret(population_regret), n_students=2, meaning="best return of any student - mean return of all students"
    ),
    # Jiang et al. 2023 (minimax)
    "value_disagreement": per_step(
        disagreement, needs_network=True, n_values=2, meaning="standard deviation of the estimates of the value"
    ),
    # Rutherford et al. 2024 (SFL), eq. 2
    "learnability": Score(learnability, n_evals=2, meaning="p (1 - p), p the share of the level's rows that solve it"),
    # Cho et al. 2026 (TRACED), one of its two terms
    "transition_error": Score(
        transition_error,
        model=next_observation,
        meaning="error of a model that predicts the next observation; high where that is random, too",
    ),
    # Teoh et al. 2024 (CENIE)
    "novelty": Score(
        step_mean(modelled),
        model=novelty,
        meaning="minus the log likelihood of what is seen and done, under a mixture of what was before",
    ),
    # Yuan et al. 2026 (PACE)
    "parameter_change": Score(
        parameter_change,
        needs_update=True,
        meaning="squared norm of the parameter update that the level alone would cause",
    ),
}
for _name, _score in SHIPPED.items():
    SCORES.register(_name, _score)


def register_score(name: str, score: Score | Callable[[Experience], jax.Array], **needs: Any) -> Score:
    """Adds a score to the choices of `--runner.score`: a `Score`, or a function and the fields of its `Score`.

    `per_step` makes the score that is a mean over steps; `finished` helps to write a function of whole episodes.
    """
    check_name(SCORES.kind, name)
    if isinstance(score, Score):
        if needs:
            raise ValueError(
                f"score {name!r} is registered with {', '.join(needs)} beside a Score: give them to the Score itself"
            )
        made = score
    else:
        known = [field.name for field in dataclasses.fields(Score) if field.name != "function"]
        for need in needs:
            if need not in known:
                raise unknown_name(f"field of the score {name!r}", need, known)
        made = Score(score, **needs)
    _check_fields(name, made)
    # A module that is imported again under another name makes an equal score, which is not a conflict.
    return SCORES[name] if name in SCORES and SCORES[name] == made else SCORES.register(name, made)


def _check_fields(name: str, score: Score) -> None:
    """ValueError in one line for a field of the wrong kind."""

    def refuse(field: str, rule: str) -> ValueError:
        value = shown(getattr(score, field))
        return ValueError(f"score {name!r} is registered with {field}={value}: it must be {rule}")

    if not callable(score.function) or isinstance(score.function, type):
        raise refuse("function", "a Score, or a function of an Experience")
    if score.quantity is not None and not callable(score.quantity):
        raise refuse("quantity", "a function of an Experience, or none")
    for field in ("n_students", "n_values", "n_evals"):
        # Python's True is an int too.
        if type(getattr(score, field)) is not int or getattr(score, field) < 1:
            raise refuse(field, "a whole number of at least 1")
    most = score.most_students
    if most is not None and (type(most) is not int or most < score.n_students):
        raise refuse("most_students", f"none, or a whole number of at least n_students, {score.n_students}")
    flags = ("needs_network", "needs_update", "needs_discrete", "needs_clipped", "needs_optimum", "mixes_scales")
    for field in flags:
        if not isinstance(getattr(score, field), bool):
            raise refuse(field, "True or False")
    if score.model is not None and not callable(score.model):
        raise refuse("model", "a function that makes a ScoreModel for an environment, or none")
    if not isinstance(score.meaning, str):
        raise refuse("meaning", "one line of text")

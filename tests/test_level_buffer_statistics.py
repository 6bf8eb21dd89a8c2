"""Draws follow the weights: chi-squared tests with fixed keys, refused at p < 1e-4."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.level_buffer import LevelBuffer, ReplaySettings

LEAST_P = 1e-4


def buffer_with(scores, ages) -> LevelBuffer:
    """Slots with these scores and ages; a score of None is a free slot."""
    buffer = jax.device_get(jax.jit(level_buffer.init, static_argnums=1)(np.zeros((), np.int32), len(scores)))
    filled = np.array([score is not None for score in scores])
    values = np.array([-np.inf if score is None else score for score in scores], np.float32)
    return buffer.replace(scores=values, ages=np.array(ages, np.int32), filled=filled)


def assert_follows(counts: np.ndarray, probabilities: np.ndarray) -> None:
    """Cells that cannot happen never do, and the others as often as they should (cells of fewer than 5 are pooled)."""
    expected = probabilities / probabilities.sum() * counts.sum()
    assert counts[probabilities == 0].sum() == 0
    rare = expected < 5
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    kept = expected > 0
    assert chisquare(counts[kept], expected[kept]).pvalue > LEAST_P


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def draw(config: ReplaySettings, buffer: LevelBuffer, n: int, n_times: int) -> jax.Array:
    """i32[n_times, n] slots, each row from the same buffer."""
    keys = jax.random.split(jax.random.key(7), n_times)
    return jax.vmap(lambda key: level_buffer.sample(key, config, buffer, n)[1])(keys)


def sequence_probabilities(config: ReplaySettings, buffer: LevelBuffer, n: int) -> np.ndarray:
    """f64[C ** n], by the rule: weights, one draw, everyone else a level older, weights again."""
    capacity = len(buffer.filled)
    weigh = jax.jit(functools.partial(level_buffer.weights, config))
    filled = np.asarray(buffer.filled)

    @functools.cache
    def weights(ages: tuple[int, ...]) -> np.ndarray:
        return np.asarray(weigh(buffer.replace(ages=np.array(ages, np.int32))), np.float64)

    result = []
    for slots in itertools.product(range(capacity), repeat=n):
        ages, probability = tuple(buffer.ages.tolist()), 1.0
        for slot in slots:
            probability *= weights(ages)[slot]
            ages = tuple(0 if i == slot or not filled[i] else age + 1 for i, age in enumerate(ages))
        result.append(probability)
    return np.array(result)


def deep(*case) -> object:
    return pytest.param(*case, marks=pytest.mark.deep)


@pytest.mark.parametrize(
    ("config", "scores", "ages"),
    [
        (ReplaySettings(temperature=1.0, staleness=0.5), [0.3, 0.9, None, 0.5], [4, 0, 0, 1]),
        deep(ReplaySettings(temperature=0.5, staleness=0.3), [0.3, 0.3, -0.2], [0, 0, 0]),
        deep(ReplaySettings(temperature=0.3, staleness=1.0), [0.3, None, 0.9, 0.1], [9, 0, 0, 1]),
        deep(ReplaySettings(prioritisation="proportional", temperature=1.0, staleness=0.3), [1.0, 3.0, 0.0], [1, 2, 3]),
        deep(ReplaySettings(prioritisation="greedy", staleness=0.6), [1.0, 3.0, 0.0], [1, 2, 3]),
        deep(ReplaySettings(prioritisation="proportional", staleness=0.0), [-1.0, None, 0.0], [1, 0, 3]),
    ],
)
def test_sequences_of_draws_follow_the_rule_one_by_one(config, scores, ages):
    """The joint distribution of four draws, each of which changes the weights of the next."""
    buffer, n = buffer_with(scores, ages), 4
    slots = np.asarray(draw(config, buffer, n, 40_000))
    cells = np.ravel_multi_index(tuple(slots.T), (len(scores),) * n)
    counts = np.bincount(cells, minlength=len(scores) ** n)
    assert_follows(counts, sequence_probabilities(config, buffer, n))


@pytest.mark.parametrize("prioritisation", ["rank", "proportional"])
@pytest.mark.deep
def test_draws_from_a_large_buffer_follow_the_weights(prioritisation):
    config, capacity = ReplaySettings(prioritisation=prioritisation, temperature=1.0, staleness=0.5), 500
    rng = np.random.default_rng(0)
    scores = [None if i % 5 == 4 else x for i, x in enumerate(rng.normal(size=capacity))]
    ages = [0 if score is None else age for score, age in zip(scores, rng.integers(0, 9999, capacity), strict=True)]
    buffer = buffer_with(scores, ages)
    slots = np.asarray(draw(config, buffer, 1, 40_000)).reshape(-1)
    counts = np.bincount(slots, minlength=capacity)
    assert_follows(counts, np.asarray(level_buffer.weights(config, buffer), np.float64))


@pytest.mark.deep
def test_equal_levels_are_drawn_equally_often_in_one_long_batch():
    config, capacity, n = ReplaySettings(prioritisation="proportional", staleness=0.5), 8, 20_000
    buffer = jax.tree.map(jnp.asarray, buffer_with([1.0] * capacity, [0] * capacity))
    after, slots = level_buffer.sample(jax.random.key(3), config, buffer, n)
    slots = np.asarray(slots)
    counts = np.bincount(slots, minlength=capacity)
    assert abs(counts / n - 1 / capacity).max() < 0.01  # ages make the counts vary less than independent draws would
    assert after.ages.tolist() == [n - 1 - np.flatnonzero(slots == i)[-1] for i in range(capacity)]

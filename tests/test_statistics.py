"""Aggregates over seeds, against values worked out by hand and against sampling theory."""

import numpy as np
import pytest

from minimax_lib.evaluation.statistics import MIN_SEEDS, bootstrap_interval, interquartile_mean, summarise


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -100.0])) == pytest.approx(3.5)
    assert interquartile_mean(np.array([0.0, 1.0])) == pytest.approx(0.5)  # too few to trim
    assert interquartile_mean(np.array([0.0, 0.0, 1.0, 5.0])) == pytest.approx(0.5)
    assert interquartile_mean(np.array([9.0, 2.0, 3.0, 4.0, 0.0])) == pytest.approx(3.0)  # a quarter of 5 is 1


def test_summary_pools_seeds_and_tasks():
    scores = np.array([[0.0, 1.0], [0.2, 0.8]])  # sorted: 0, .2, .8, 1
    summary = summarise(scores)
    assert (summary.n_seeds, summary.mean, summary.iqm) == (2, pytest.approx(0.5), pytest.approx(0.5))


@pytest.mark.parametrize("n_seeds", range(1, 8))
@pytest.mark.parametrize("n_tasks", [1, 3])
def test_a_summary_has_an_interval_from_five_seeds_on(n_seeds, n_tasks):
    scores = np.random.default_rng(0).uniform(size=(n_seeds, n_tasks))
    assert summarise(scores).interval == (bootstrap_interval(scores) if n_seeds >= 5 else None)


def test_one_seed_has_no_interval_at_all():
    assert bootstrap_interval(np.array([[0.7, 0.1, 0.4]])) is None


def test_interval_of_equal_seeds_is_a_point():
    assert bootstrap_interval(np.full((5, 3), 0.25)) == (0.25, 0.25)


def test_two_seeds_by_hand():
    """Resampling (0, 1) twice gives 0, .5, 1 with probability 1/4, 1/2, 1/4: the 95% interval is all of it."""
    assert bootstrap_interval(np.array([0.0, 1.0])) == (0.0, 1.0)


def test_whole_seeds_are_resampled():
    """The effects of a seed cancel here, so that all resampled means are equal. Task by task, they would not be."""
    scores = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert bootstrap_interval(scores, np.mean) == (0.5, 0.5)


def test_interval_of_the_mean_is_the_normal_one_for_many_seeds():
    scores = np.random.default_rng(1).normal(size=400)
    low, high = bootstrap_interval(scores, np.mean)
    half_width = 1.96 * scores.std() / np.sqrt(400)
    assert low == pytest.approx(scores.mean() - half_width, abs=0.01)
    assert high == pytest.approx(scores.mean() + half_width, abs=0.01)


def coverage(n_seeds: int, n_tasks: int, n_trials: int = 300, correlation: float = 0.0) -> float:
    """How often the interval of normal scores around 0 holds 0, their true interquartile mean."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(n_trials):
        own = np.sqrt(1 - correlation) * rng.normal(size=(n_seeds, n_tasks))
        common = np.sqrt(correlation) * rng.normal(size=(n_seeds, 1)) if correlation else 0.0
        low, high = bootstrap_interval(own + common, n_resamples=500)
        covered += low <= 0 <= high
    return covered / n_trials


@pytest.mark.parametrize(
    ("n_seeds", "n_tasks"),
    [
        (MIN_SEEDS, 4),
        *(pytest.param(*case, marks=pytest.mark.deep) for case in ((MIN_SEEDS, 1), (10, 1), (10, 4), (20, 1), (20, 4))),
    ],
)
def test_the_interval_covers_the_truth_about_as_often_as_it_says(n_seeds, n_tasks):
    assert 0.85 <= coverage(n_seeds, n_tasks) <= 0.99


def test_the_interval_covers_the_truth_where_a_good_seed_is_good_at_all_tasks():
    """As its docstring says; task by task, it would in 66% of draws. Of 150 at 91%, 3.5 standard deviations are 8%."""
    assert coverage(10, n_tasks=13, n_trials=150, correlation=0.25) >= 0.83


@pytest.mark.parametrize(("n_seeds", "at_most"), [(2, 0.6), (3, 0.8)])
@pytest.mark.deep
def test_the_interval_of_two_or_three_seeds_would_cover_the_truth_far_too_rarely(n_seeds, at_most):
    assert coverage(n_seeds, n_tasks=1) <= at_most


def test_the_interval_is_deterministic_and_ignores_the_order_of_tasks_statistically():
    scores = np.random.default_rng(3).uniform(size=(8, 5))
    assert bootstrap_interval(scores) == bootstrap_interval(scores)
    np.testing.assert_allclose(bootstrap_interval(scores), bootstrap_interval(scores[::-1, ::-1]), atol=0.02)


@pytest.mark.parametrize("scores", [np.zeros((0,)), np.zeros((2, 0)), np.zeros((1, 1, 1)), np.array([0.0, np.nan])])
def test_impossible_scores_are_refused(scores):
    with pytest.raises(ValueError, match=r"^scores "):
        summarise(scores)

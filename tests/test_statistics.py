"""Aggregates over seeds against values worked by hand and against the sampling theory that they rest on."""

import numpy as np
import pytest

from minimax_lib.evaluation.statistics import bootstrap_interval, interquartile_mean, summarise


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -100.0])) == pytest.approx(3.5)
    assert interquartile_mean(np.array([0.0, 1.0])) == pytest.approx(0.5)  # too few to trim
    assert interquartile_mean(np.array([0.0, 0.0, 1.0, 5.0])) == pytest.approx(0.5)
    assert interquartile_mean(np.array([9.0, 2.0, 3.0, 4.0, 0.0])) == pytest.approx(3.0)  # a quarter of 5 is 1


def test_summary_pools_seeds_and_tasks():
    scores = np.array([[0.0, 1.0], [0.2, 0.8]])  # sorted: 0, .2, .8, 1
    summary = summarise(scores)
    assert (summary.n_seeds, summary.mean, summary.iqm) == (2, pytest.approx(0.5), pytest.approx(0.5))
    assert summary.interval is not None


def test_one_seed_has_no_interval():
    assert summarise(np.array([0.7])).interval is None
    assert summarise(np.array([[0.7, 0.1, 0.4]])).interval is None


def test_interval_of_equal_seeds_is_a_point():
    assert bootstrap_interval(np.full((5, 3), 0.25)) == (0.25, 0.25)


def test_two_seeds_by_hand():
    """Resampling (0, 1) twice gives 0, .5, 1 with probability 1/4, 1/2, 1/4: the 95% interval is all of it."""
    assert bootstrap_interval(np.array([0.0, 1.0])) == (0.0, 1.0)


def test_seeds_are_resampled_within_each_task_independently():
    """With seed effects that cancel inside a row, resampling whole rows would give an interval of width 0."""
    scores = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    low, high = bootstrap_interval(scores, np.mean)
    assert low < 0.3
    assert high > 0.7


def test_interval_of_the_mean_is_the_normal_one_for_many_seeds():
    scores = np.random.default_rng(1).normal(size=400)
    low, high = bootstrap_interval(scores, np.mean)
    half_width = 1.96 * scores.std() / np.sqrt(400)
    assert low == pytest.approx(scores.mean() - half_width, abs=0.01)
    assert high == pytest.approx(scores.mean() + half_width, abs=0.01)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(2)
    truth, covered = 0.5, 0
    for _ in range(200):
        low, high = bootstrap_interval(rng.uniform(size=(10, 4)), n_resamples=500)
        covered += low <= truth <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_interval_is_deterministic_and_ignores_the_order_of_tasks_statistically():
    scores = np.random.default_rng(3).uniform(size=(8, 5))
    assert bootstrap_interval(scores) == bootstrap_interval(scores)
    np.testing.assert_allclose(bootstrap_interval(scores), bootstrap_interval(scores[::-1, ::-1]), atol=0.02)


@pytest.mark.parametrize("scores", [np.zeros((0,)), np.zeros((2, 0)), np.zeros((1, 1, 1)), np.array([0.0, np.nan])])
def test_impossible_scores_are_refused(scores):
    with pytest.raises(ValueError, match=r"^scores "):
        summarise(scores)

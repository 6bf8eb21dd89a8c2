"""Aggregates over seeds with their uncertainty (Agarwal et al. 2021): interquartile mean, bootstrap intervals.

Host side, plain numpy. Scores are [S] or [S, M]: a row a seed, a column a task. SciPy's statistics are imported where
they are used: they take most of a second, which no wrong command line should wait for.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

N_RESAMPLES = 10_000
CONFIDENCE = 0.95
# Fewer seeds give no interval. On normal scores of one task, the interval below covers the true value in 51, 75, 86, 91
# and 93% of 3,000 draws of 2, 3, 4, 5 and 10 seeds. With fewer than 5 that is too far from 95%.
MIN_SEEDS = 5
Statistic = Callable[..., np.ndarray]  # statistic(values, axis=...)


@dataclasses.dataclass(frozen=True)
class Summary:
    """Scores of all seeds and tasks in two numbers, and how sure they are."""

    n_seeds: int
    mean: float
    iqm: float  # mean of the middle half of all seeds x tasks
    interval: tuple[float, float] | None  # `bootstrap_interval` of `iqm`; None below MIN_SEEDS


def summarise(scores: np.ndarray) -> Summary:
    """The summary of `scores`, [S] or [S, M], all of them finite; no interval with fewer than MIN_SEEDS seeds."""
    scores = as_columns(scores)
    return Summary(
        n_seeds=len(scores),
        mean=float(scores.mean()),
        iqm=float(interquartile_mean(scores, axis=None)),
        interval=bootstrap_interval(scores) if len(scores) >= MIN_SEEDS else None,
    )


def interquartile_mean(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Mean of what is left without the lowest and the highest quarter (each rounded down to whole values)."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis=axis)


def bootstrap_interval(
    scores: np.ndarray, statistic: Statistic = interquartile_mean, n_resamples: int = N_RESAMPLES
) -> tuple[float, float] | None:
    """95% percentile interval of the stratified bootstrap of `statistic`, over all seeds x tasks; None with one seed.

    Its ends are the 2.5% and 97.5% quantiles of `statistic` on resampled scores. Seeds are resampled with replacement
    within each task, independently of the other tasks, as in the published protocol (Agarwal et al. 2021) and its
    library, rliable: intervals can be held against published ones. With fewer than MIN_SEEDS seeds it covers the true
    value far too rarely: `summarise` leaves it out. The generator is fixed: the same scores give the same interval.

    Tasks are taken as independent. Where a good seed is good at all tasks, the interval over them is too narrow,
    however many seeds there are. On 13 tasks of normal scores that of 10 seeds covers the true value in 94% of draws
    without a correlation between tasks, in 79% with one of 0.1, in 66% with 0.25 and in 56% with 0.5. Whole seeds,
    resampled with all of their tasks together, would cover it in 89 to 93%.
    """
    from scipy.stats import bootstrap

    scores = as_columns(scores)
    if len(scores) < 2:
        return None

    # SciPy resamples each of its samples by itself. With a task as a sample, that is the stratified bootstrap.
    def pooled(*columns: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.concatenate(columns, axis=axis), axis=axis)

    found = bootstrap(
        tuple(scores.T),
        pooled,
        n_resamples=n_resamples,
        batch=1000,  # all resamples at once would be in memory together
        confidence_level=CONFIDENCE,
        method="percentile",  # as Agarwal et al.; SciPy's own choice, BCa, has no answer where all seeds are equal
        rng=np.random.default_rng(0),
    ).confidence_interval
    return float(found.low), float(found.high)


def as_columns(scores: np.ndarray) -> np.ndarray:
    """`scores` as f64[S, M], checked."""
    scores = np.asarray(scores, np.float64)
    scores = scores[:, None] if scores.ndim == 1 else scores
    if scores.ndim != 2 or scores.size == 0:
        raise ValueError(f"scores have shape {scores.shape}: they must be [seeds] or [seeds, tasks], at least one each")
    if not np.isfinite(scores).all():
        raise ValueError("scores are not all finite: drop the missing ones first")
    return scores

"""Intervals over seeds, for numbers that come many at a time.

With fewer than MIN_SEEDS seeds an interval would cover the true value too seldom (`evaluation.statistics`). The lowest
and the highest seed are shown instead, and every figure says which of the two it shows.
"""

from collections.abc import Callable

import numpy as np

from minimax_lib.evaluation.statistics import CONFIDENCE, MIN_SEEDS

N_RESAMPLES = 2000
INTERVAL, RANGE, NONE = "95% bootstrap interval", "range of the seeds", "one seed"
CHUNK = 500  # columns, or resamples, at a time: bounds the memory
QUANTILES = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


def kind_of_band(n_seeds: int) -> str:
    """What the band of so many seeds shows."""
    return INTERVAL if n_seeds >= MIN_SEEDS else RANGE if n_seeds > 1 else NONE


def mean_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each f64[T], of the mean of seeds `values` [S, T]; NaN with one seed.

    Each column is resampled by the same draws of seeds, so that a curve's band is smooth.
    """
    n_seeds, n_points = values.shape
    if n_seeds < 2:
        return np.full(n_points, np.nan), np.full(n_points, np.nan)
    if n_seeds < MIN_SEEDS:
        return values.min(axis=0), values.max(axis=0)
    shares = _shares(np.random.default_rng(0), n_seeds)
    low, high = zip(*(_quantiles(shares @ part) for part in _parts(values)), strict=True)
    return np.concatenate(low), np.concatenate(high)


def difference_band(values: np.ndarray, base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each f64[T], of the difference of the means of `values` [S, T] and `base` [S', T].

    The two are resampled separately. With fewer than MIN_SEEDS seeds in one, the range of the differences between a
    seed of one and a seed of the other; NaN if both have one seed.
    """
    if len(values) == len(base) == 1:
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    if min(len(values), len(base)) < MIN_SEEDS:
        return values.min(axis=0) - base.max(axis=0), values.max(axis=0) - base.min(axis=0)
    rng = np.random.default_rng(0)
    shares, base_shares = _shares(rng, len(values)), _shares(rng, len(base))
    low, high = zip(
        *(
            _quantiles(shares @ part - base_shares @ base_part)
            for part, base_part in zip(_parts(values), _parts(base), strict=True)
        ),
        strict=True,
    )
    return np.concatenate(low), np.concatenate(high)


def seeds_band(samples: tuple[np.ndarray, ...], statistic: Callable[..., np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of `statistic(*samples)`, whose samples are [S, M]: whole seeds are drawn anew, sample by sample.

    `statistic` takes resamples [R, S, M] and gives [R, ...]. This is the bootstrap of
    `evaluation.statistics.bootstrap_interval`, for statistics of several samples or with several values.
    """
    rng, found = np.random.default_rng(0), []
    for start in range(0, N_RESAMPLES, CHUNK):
        n = min(CHUNK, N_RESAMPLES - start)
        drawn = [sample[rng.integers(len(sample), size=(n, len(sample)))] for sample in samples]
        found.append(statistic(*drawn))
    return _quantiles(np.concatenate(found))


def _shares(rng: np.random.Generator, n: int) -> np.ndarray:
    """f64[R, S], the share of each seed in each resample."""
    draws = rng.integers(n, size=(N_RESAMPLES, n))
    return (draws[:, :, None] == np.arange(n)).mean(axis=1)


def _parts(values: np.ndarray) -> list[np.ndarray]:
    return [values[:, i : i + CHUNK] for i in range(0, values.shape[1], CHUNK)]


def _quantiles(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(found, QUANTILES, axis=0)
    return low, high

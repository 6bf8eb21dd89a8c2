"""Checks of numbers that come from outside: a NaN that a curriculum once has in its state never leaves it."""

from typing import Any

import numpy as np

from minimax_lib.messages import shown
from minimax_lib.portable.encodings import as_arrays

MOST = 2**31 - 1  # of i32
LARGEST = float(np.finfo(np.float32).max)
SEEDS = 2**32  # JAX makes a key of 32 bits: larger seeds would be the same as smaller ones


def checked(
    name: str,
    value: Any,
    shape: tuple[int, ...] | None = None,
    least: float = -np.inf,
    most: float = np.inf,
    whole: bool = False,
) -> np.ndarray:
    """`value` as f32, or i32 if `whole`: finite, from `least` to `most`, and of `shape` or one number for all.

    ValueError in one line that has the name and the first wrong number.
    """
    given = as_numbers(name, value)
    if shape is not None and given.shape not in ((), shape):
        raise ValueError(f"{name} is {list(given.shape)}: it must be {list(shape)}")
    if given.size and not whole:
        # Nearly always all is right, and this says so in a tenth of the time. With a NaN, no comparison holds.
        lowest, highest = given.min(), given.max()
        if max(least, -LARGEST) <= lowest and highest <= min(most, LARGEST):
            return given.astype(np.float32)
    right = np.abs(given) <= (MOST if whole else LARGEST)  # nor NaN
    if right.all():
        kept = given.astype(np.int32 if whole else np.float32)
        right = (kept >= least) & (kept <= most)
        if whole:
            right &= kept == given
        if right.all():
            return kept
    kind = "a whole number" if whole else "a finite number"
    bounds = f" from {least:.12g} to {most:.12g}" if np.isfinite(most) else f", at least {least:.12g}"
    raise ValueError(f"{name} is {given[~right][0]:.12g}: it must be {kind}{bounds if np.isfinite(least) else ''}")


def checked_count(name: str, value: Any) -> int:
    """`value` as an int. ValueError in one line unless it is a whole number, and at least 1."""
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name} is {shown(value)}: it must be a whole number, at least 1")
    if value < 1:
        raise ValueError(f"{name} is {value}: it must be at least 1")
    return int(value)


def checked_seed(seed: Any) -> int:
    """`seed` as an int. ValueError in one line unless it is one of `SEEDS` different ones."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
        raise ValueError(f"seed is {shown(seed)}: it must be a whole number from 0 to {SEEDS - 1}")
    return int(seed)


def checked_rows(name: str, rows: Any, n: int) -> np.ndarray:
    """bool[n], the chosen rows; None: all. ValueError in one line for anything else, such as the numbers of rows."""
    given = np.ones(n, bool) if rows is None else np.asarray(rows)
    if given.shape != (n,) or given.dtype != bool:
        raise ValueError(f"{name} is {given.dtype}{list(given.shape)}: it must be bool[{n}]")
    return given


def checked_rates(rates: Any, known: Any, n: int | None) -> tuple[np.ndarray, np.ndarray]:
    """(f32[n] rates of success, 0 where they are not known; bool[n] known, by default all). ValueError in one line."""
    rates = as_numbers("rates", rates).astype(np.float32)
    known = np.ones(rates.shape, bool) if known is None else np.asarray(known, bool)
    if rates.shape != (n,) or known.shape != rates.shape:
        raise ValueError(f"rates are {list(rates.shape)}, known {list(known.shape)}: both must be [{n}]")
    if not (right := (rates >= 0) & (rates <= 1) | ~known).all():
        raise ValueError(f"a rate is {rates[~right][0]:.6g}, out of range: rates of success are between 0 and 1")
    return np.where(known, rates, np.float32(0)), known


def checked_step(n: int, reward: Any, done: Any, progress: Any, value: Any) -> tuple[Any, np.ndarray, Any, Any]:
    """One step of `n` rows: (f32 rewards, bool[n], f32[K] progress where it is done, f32 values); None stays."""
    done = np.asarray(done, bool)
    if done.shape != (n,):
        raise ValueError(f"done is {list(done.shape)}, and there are tasks of {n} rows: it must be [{n}]")
    if progress is not None:
        progress = np.asarray(progress)
        if progress.shape not in ((), (n,)):
            raise ValueError(f"progress is {list(progress.shape)}: it must be [{n}]")
        progress = checked("progress", np.broadcast_to(progress, (n,))[done], None, 0, 1)
    return checked("reward", reward, (n,)), done, progress, None if value is None else checked("value", value, (n,))


def checked_scores(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The same, where NaN says that there is no score."""
    missing = np.isnan(as_numbers(name, value))
    scores = checked(name, np.where(missing, 0, value), shape)
    return np.where(missing, np.float32(np.nan), scores)


def checked_logits(value: Any) -> np.ndarray:
    """Logits as f32. Those of actions that are masked out may be infinite."""
    logits = as_numbers("logits", value)
    if np.isnan(logits).any():
        raise ValueError("logits is nan: it must be numbers")
    return logits.astype(np.float32)


def checked_tasks(space: Any, task: Any, like: Any) -> Any:
    """Encodings [M, ...] as arrays in the form of `like`. ValueError for an unknown task."""
    task = as_arrays(task, like)
    if isinstance(task, tuple):
        spaces = getattr(space, "spaces", None)
        return task if spaces is None else tuple(checked_tasks(*each) for each in zip(spaces, task, like, strict=True))
    task = np.atleast_1d(task)
    if task.shape[1:] != like.shape[1:]:
        raise ValueError(f"tasks are {list(task.shape)}: they must be {['M', *like.shape[1:]]}".replace("'", ""))
    if space.n is None:
        return checked("task", task) if task.dtype == np.float32 else task
    if task.size and not 0 <= task.min() <= task.max() < space.n:
        wrong = task[(task < 0) | (task >= space.n)][0]
        raise ValueError(f"task {wrong} was reported: tasks are the numbers 0 to {space.n - 1}")
    return task


def as_numbers(name: str, value: Any) -> np.ndarray:
    """`value` as f64. ValueError in one line if it has anything but numbers."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError, RuntimeError):  # text, lists of unequal length, a tensor on a GPU
        raise ValueError(f"{name} is {' '.join(shown(value).split())}: it must be numbers") from None

"""Checks of numbers that come from outside: a NaN that a curriculum once has in its state never leaves it."""

from typing import Any

import numpy as np

from minimax_lib.messages import shown
from minimax_lib.portable.encodings import as_arrays

MOST = 2**31 - 1  # of i32
LARGEST = float(np.finfo(np.float32).max)


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
    given = _as_numbers(name, value)
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


def checked_scores(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The same, where NaN says that there is no score."""
    missing = np.isnan(_as_numbers(name, value))
    scores = checked(name, np.where(missing, 0, value), shape)
    return np.where(missing, np.float32(np.nan), scores)


def checked_logits(value: Any) -> np.ndarray:
    """Logits as f32. Those of actions that are masked out may be infinite."""
    logits = _as_numbers("logits", value)
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


def _as_numbers(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError, RuntimeError):  # text, lists of unequal length, a tensor on a GPU
        raise ValueError(f"{name} is {' '.join(shown(value).split())}: it must be numbers") from None

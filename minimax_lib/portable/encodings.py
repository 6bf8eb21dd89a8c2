"""Arrays of encodings on the host: an array with one row for each task, or a tuple of such arrays (a product)."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def blank(like: Any, n: int) -> Any:
    """`n` rows of zeros in the form of `like`, whose first axis is left out."""
    if isinstance(like, tuple):
        return tuple(blank(part, n) for part in like)
    return np.zeros((n, *like.shape[1:]), like.dtype)


def rows_of(encodings: Any, rows: Any) -> Any:
    """These rows: a slice, a mask or numbers."""
    if isinstance(encodings, tuple):
        return tuple(rows_of(part, rows) for part in encodings)
    return encodings[rows]


def write(encodings: Any, rows: Any, values: Any) -> None:
    """Changes these rows in place."""
    if isinstance(encodings, tuple):
        for part, value in zip(encodings, values, strict=True):
            write(part, rows, value)
    else:
        encodings[rows] = values


def joined(parts: list[Any]) -> Any:
    """One after another."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], tuple):
        return tuple(joined(list(each)) for each in zip(*parts, strict=True))
    return np.concatenate(parts)


def stacked(steps: list[Any]) -> Any:
    """[T, ...] of T equal forms."""
    if isinstance(steps[0], tuple):
        return tuple(stacked(list(each)) for each in zip(*steps, strict=True))
    return np.stack(steps)


def copied(encodings: Any) -> Any:
    """A copy."""
    return tuple(copied(part) for part in encodings) if isinstance(encodings, tuple) else encodings.copy()


def n_rows(encodings: Any) -> int:
    """The number of rows."""
    return n_rows(encodings[0]) if isinstance(encodings, tuple) else len(encodings)


def messages(encodings: Any) -> list[Any]:
    """Each row as it is sent to an environment: a number of Python, an array, or a tuple of these."""
    if isinstance(encodings, tuple):
        return list(zip(*(messages(part) for part in encodings), strict=True))
    # Numbers of Python are a tenth of the bytes and of the time of NumPy's, in a message to another process.
    return encodings.tolist() if encodings.ndim == 1 else list(encodings)


def gathered(rows: Sequence[Any], like: Any) -> Any:
    """The encodings of `messages`, one after another."""
    if isinstance(like, tuple):
        return tuple(gathered([row[i] for row in rows], part) for i, part in enumerate(like))
    return as_arrays(rows, like)


def as_arrays(encodings: Any, like: Any) -> Any:
    """Encodings [..., *] of any kind as arrays, in the form of `like` [1, ...]. ValueError for names and fractions."""
    if isinstance(like, tuple):
        if not isinstance(encodings, tuple | list) or len(encodings) != len(like):
            raise ValueError(f"tasks are a {type(encodings).__name__}: they must be a tuple of {len(like)} arrays")
        return tuple(as_arrays(*both) for both in zip(encodings, like, strict=True))
    try:
        found = np.asarray(encodings)
    except ValueError:
        found = np.asarray("tasks of unequal length")
    if found.dtype.kind in "USO":
        (name,) = found.ravel()[:1].tolist() or [encodings]
        raise ValueError(f"a task is {name!r}: give the numbers that were drawn (space.encode has that of a name)")
    if found.dtype.kind == "f" and np.issubdtype(like.dtype, np.integer) and not (found == np.floor(found)).all():
        raise ValueError(f"a task is {found[found != np.floor(found)][0]}: tasks are whole numbers")
    return found.astype(like.dtype, copy=False)

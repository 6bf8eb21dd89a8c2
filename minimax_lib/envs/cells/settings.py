"""Checks of settings, and what an agent sees in a single state."""

import functools
from typing import Any

import jax
import numpy as np

MOST_CELLS = 4096  # of a side: each word of a line of the grid (`lines.packed_lines`) is compiled separately


def check_int(name: str, value: object, least: int, most: int | None = None) -> None:
    """ValueError if the setting is not a whole number of at least `least` (and at most `most`)."""
    # In Python, True is an int too.
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: it must be a whole number of at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{name}={value}: it must be at most {most}")


def check_side(name: str, value: object, least: int) -> None:
    """ValueError if the setting is not a number of rows, columns or cells in a line, `least` to `MOST_CELLS`."""
    check_int(name, value, least, MOST_CELLS)


def check_bool(name: str, value: object) -> None:
    """ValueError if the setting is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: it must be True or False")


def check_view_size(value: object) -> None:
    """ValueError if the setting is not a side of a view: odd, and from 3 to 31."""
    check_int("view_size", value, 3)
    assert isinstance(value, int)
    if value % 2 == 0:
        raise ValueError(f"view_size={value} is even: it must be odd, such as {value + 1}")
    if value > 31:  # a row of the view is stored as the bits of one word
        raise ValueError(f"view_size={value}: it must be at most 31")


def seen_image(env: Any, state: Any) -> np.ndarray:
    """u8[v, v, 3], the image that the agent sees in `state`."""
    return np.asarray(_observed(env, state)["image"])


# For films: one by one, the operations take a hundred times as long as the compiled program.
@functools.partial(jax.jit, static_argnums=0)
def _observed(env: Any, state: Any) -> dict[str, jax.Array]:
    return env.observe(state)

"""Recordings of the reference engine of Neural MMO, 2.1.2: see `tests/data/nmmo`."""

import functools
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data" / "nmmo"


@functools.cache
def recorded(name: str, text: bool = False) -> Any:
    """The arrays of a recording, or its text."""
    return (FOLDER / name).read_text() if text else np.load(FOLDER / name)

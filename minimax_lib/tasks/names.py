"""Tasks by name, as people write them in files."""

import re
from collections.abc import Mapping, Sequence

from minimax_lib.registry import unknown_name

NUMBER = re.compile(r"[0-9]{1,10}")


def numbers_by_name(names: Sequence[str]) -> dict[str, int]:
    """The number of each task. ValueError if two tasks have one name."""
    numbers = {name: i for i, name in enumerate(names)}
    for i, name in enumerate(names):
        if numbers[name] != i:
            raise ValueError(f"tasks {i} and {numbers[name]} are both called {name!r}: each needs its own name")
    return numbers


def number_of(task: str, numbers: Mapping[str, int], source: str) -> int:
    """The number of a task that `source` calls by its name, or by its number. ValueError if there is none."""
    if task in numbers:
        return numbers[task]
    if NUMBER.fullmatch(task) and int(task) < len(numbers):
        return int(task)
    raise ValueError(f"{source}: {unknown_name('task', task, numbers)}")

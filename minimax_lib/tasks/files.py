"""Lists of tasks, as they are written in flags and files."""

import re
from collections.abc import Sequence

from minimax_lib.files import UnreadableFile, read_json
from minimax_lib.tasks.names import number_of, numbers_by_name

RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


def read_tasks(setting: str, text: str, n_tasks: int) -> tuple[int, ...]:
    """The numbers below `n_tasks` that "5,20-29" stands for. ValueError that names `setting` if it stands for none."""
    tasks: list[int] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{setting} has {text!r}: it must be task numbers and ranges of them, such as 5,20-29")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{setting} has {part.strip()!r}: the range must not end before it begins")
        if last >= n_tasks:  # before a range of thousands of millions fills the memory
            raise ValueError(f"{setting} has {part.strip()!r}: tasks are the numbers 0 to {n_tasks - 1}")
        tasks += range(first, last + 1)
    return tuple(tasks)


def read_strata(setting: str, path: str, names: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The lists of tasks in a JSON file, by their numbers or `names`. ValueError in one line if it has none."""
    if not path:
        raise ValueError(f"{setting} is empty: it must be a JSON file with a list of lists of tasks")
    try:
        lists = read_json(path)
    except UnreadableFile as error:
        raise ValueError(f"{setting}: {error}") from None
    are_lists = isinstance(lists, list) and all(isinstance(stratum, list) for stratum in lists)
    if not are_lists or not all(type(task) in (int, str) for stratum in lists for task in stratum):
        raise ValueError(f"{setting}: {path} must be a list of lists of tasks, such as [[0, 1], [2]]")
    numbers, source = numbers_by_name(names), f"{setting}: {path}"
    return tuple(
        tuple(task if isinstance(task, int) else number_of(task, numbers, source) for task in stratum)
        for stratum in lists
    )

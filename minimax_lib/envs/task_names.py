"""What the names of held-out tasks say. Needs no JAX: commands that only read tables ask it."""

import re
from collections.abc import Iterable

TRAINING_DISTRIBUTION = "TrainingDistribution"  # fresh levels of the environment's own `sample_level`
LIST = re.compile(r"TrainingList(\d+)(?:-(\d+))?")  # see `training_list`


def is_list(name: str) -> bool:
    """Whether a task is on the levels of a list."""
    return LIST.fullmatch(name) is not None


def is_of_training(name: str) -> bool:
    """Whether a task is on levels of the training: on fresh ones, or on those of a list."""
    return name == TRAINING_DISTRIBUTION or is_list(name)


def without_agents_tasks(names: Iterable[str]) -> list[str]:
    """The held-out tasks among `names`. Where agents have tasks, a table has rows for those too: HELD_OUT/TASK."""
    known = dict.fromkeys(names)
    return [name for name in known if not any(name[:i] in known for i, c in enumerate(name) if c == "/")]

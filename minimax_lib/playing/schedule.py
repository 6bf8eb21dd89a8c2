"""Schedules: how the rollouts of a batch of levels follow each other."""

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Restarted:
    """Every batch begins with a reset. Its levels are played for some rollouts; an update follows each of them."""

    n_rollouts: int = 1
    """Rollouts of a batch, for episodes longer than a rollout. Each goes on where the one before ended."""
    levels_per_row: int = 1
    """Levels that a row plays in turn."""
    n_evals: int = 1
    """Rows of each level, each in its own episode."""

    continues: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class Flowing:
    """Episodes go on in the next batch, which is one rollout. Only for levels that are always fresh, or from queues."""

    continues: ClassVar[bool] = True
    n_rollouts: ClassVar[int] = 1
    levels_per_row: ClassVar[int] = 1
    n_evals: ClassVar[int] = 1


Schedule = Restarted | Flowing

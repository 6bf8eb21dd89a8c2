"""How the score of an attempt is made of its steps."""

import dataclasses
from typing import get_args

from minimax_lib.registry import unknown_name
from minimax_lib.tasks import Results, Steps, Unfinished, results_of
from minimax_lib.tasks.attempts import Tail


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptScoring:
    """How the score of an attempt is made of its steps. Settings of curricula that score attempts derive from it."""

    tail: Tail = "stitch"
    """How to score an attempt that the end of a rollout cuts. stitch: over all of its steps, once it has ended.
    write: each part as a separate attempt (level-replay's code). drop: over the part in which it ends."""
    max_score_coef: float = 0.0
    """Share of the largest value of the quantity in an attempt's score; the rest is the mean over its steps."""

    def __post_init__(self) -> None:
        if self.tail not in get_args(Tail):
            raise unknown_name("runner.tail", self.tail, get_args(Tail))
        if not 0 <= self.max_score_coef <= 1:
            raise ValueError(f"runner.max_score_coef is {self.max_score_coef}: it must be between 0 and 1")
        getattr(super(), "__post_init__", lambda: None)()  # of the other settings

    @property
    def scoring(self) -> "AttemptScoring":
        """These two settings alone."""
        return AttemptScoring(tail=self.tail, max_score_coef=self.max_score_coef)

    def results(self, steps: Steps, before: Unfinished) -> tuple[Results, Unfinished]:
        """See `results_of`."""
        return results_of(steps, before, self.tail, self.max_score_coef)

"""Attempts of B rows, put together from single steps or from rollouts, for a `Host`."""

from typing import Any

import jax
import numpy as np

from minimax_lib.portable.books import Books, RolloutSteps
from minimax_lib.portable.encodings import rows_of
from minimax_lib.portable.host_state import filled, flat
from minimax_lib.portable.scoring import OpenAttempts, PlayedSteps, Scoring, attempt_scores

STEPS = 128  # of a rollout that is made of single steps with values


class Rollouts:
    """Scores of attempts that go on from rollout to rollout."""

    def __init__(self, scoring: Scoring, device: Any):
        self.scoring, self._device = scoring, device
        self._tally: OpenAttempts | None = None  # of the rows of the rollout before

    def scores(self, task: Any, x: PlayedSteps) -> tuple[Any, np.ndarray]:
        """(tasks [M, ...], f32[M] their scores), by the step in which they ended, then by row."""
        check_rollout(self.scoring, x)
        n = x.reward.shape[1]
        if self._tally is None or len(self._tally.total) != n:
            self._tally = OpenAttempts.none(n)
        mean, scored, self._tally = attempt_scores(self.scoring, *jax.device_put((x, self._tally), self._device))
        ended = np.nonzero(np.asarray(scored))
        return rows_of(task, ended), np.asarray(mean)[ended]

    def arrays(self) -> dict[str, np.ndarray]:
        """What later scores depend on."""
        return {} if self._tally is None else flat("tally", self._tally)

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """What `arrays` has given."""
        known = arrays.get("tally.total")
        self._tally = None if known is None else filled("tally", OpenAttempts.none(len(known)), arrays)


def check_rollout(scoring: Scoring, x: PlayedSteps) -> None:
    """ValueError in one line where a rollout is not [T, B]."""
    shape = x.reward.shape
    wanted = {"reward": (x.reward, shape), "value": (x.value, shape), "done": (x.done, shape)}
    wanted |= {"counts": (x.counts, shape), "last_value": (x.last_value, shape[1:])}
    for name, (array, fits) in wanted.items():
        if array.shape != fits or len(shape) != 2:
            raise ValueError(f"{name} is {list(array.shape)} and reward {list(shape)}: all are [T, B], last_value [B]")
    if scoring.needs_logits and x.logits is None:
        raise ValueError(f"the score {scoring.score!r} needs `logits`: give them too")


class StepByStep:
    """Attempts that are told of step by step."""

    def __init__(self, n: int):
        self.books, self.record = Books(n), RolloutSteps()

    def add(self, task: Any, reward: np.ndarray, done: np.ndarray, value: Any) -> tuple[Any, ...] | None:
        """One step. Where there is a whole rollout of values: (task, reward, value, done, last_value)."""
        if len(reward) != len(self.books.length):
            raise ValueError(f"report_steps is told of {len(reward)} rows, and before of {len(self.books.length)}")
        rollout = None
        if value is not None:
            value = np.asarray(value, np.float32)
            if len(self.record.steps) == STEPS:
                tasks, dones, rewards, values = self.record.take(STEPS)
                rollout = (tasks, rewards, values, dones, value)
            self.record.add(task, done, reward, value)
        self.books.add(reward)
        return rollout

    def arrays(self) -> dict[str, np.ndarray]:
        """What later results depend on."""
        steps = {f"{i:04d}": step for i, step in enumerate(self.record.steps)}
        return flat("steps", steps) | flat("books", vars(self.books))

    @staticmethod
    def load(arrays: dict[str, np.ndarray], encoding: Any) -> "StepByStep | None":
        """What `arrays` has given, of tasks in the form of `encoding`."""
        known = arrays.get("books['length']")
        if known is None:
            return None
        steps, n = StepByStep(len(known)), len(known)
        vars(steps.books).update(filled("books", vars(steps.books), arrays))
        task = jax.tree.map(lambda x: np.zeros((n, *x.shape[1:]), x.dtype), encoding)
        like = (task, np.zeros(n, bool), np.zeros(n, np.float32), np.zeros(n, np.float32))
        places = sorted({name[7:11] for name in arrays if name.startswith("steps['")})
        steps.record.steps = [filled(f"steps['{place}']", like, arrays) for place in places]
        return steps

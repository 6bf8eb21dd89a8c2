"""Scores of attempts that come in pieces, from environments in many processes."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from minimax_lib.portable.host_programs import cpu
from minimax_lib.portable.numbers import checked
from minimax_lib.portable.scoring import OpenAttempts, PlayedSteps, Scoring, attempt_scores

MOST_OPEN = 4096  # attempts that are kept in mind: one whose environment has failed never ends


class Fragment(NamedTuple):
    """T steps of one attempt, in the order in which they were taken."""

    attempt: str  # a name that no other attempt has
    task: Any  # its encoding
    reward: Any  # [T], undiscounted
    value: Any  # [T + 1], of the observations before the steps and of the one after them
    terminated: bool  # the attempt ended with the last step
    truncated: bool  # it ended there by a time limit


class Fragments:
    """The attempts under way, of which some fragments have come."""

    def __init__(self, scoring: Scoring):
        self.scoring = scoring
        self._open: dict[str, OpenAttempts] = {}  # the longest known first

    def scores(self, fragments: Iterable[Fragment]) -> tuple[list[Any], list[float]]:
        """(tasks, their scores) of the attempts that ended. Fragments of one attempt come in their order."""
        if self.scoring.needs_logits:
            raise ValueError(f"the score {self.scoring.score!r} needs logits, and fragments have none: choose another")
        found = [(one.task, *self._scored(Fragment(*one))) for one in fragments]
        ended = [(task, score) for task, score, is_scored in found if is_scored]
        return [task for task, _ in ended], [score for _, score in ended]

    def _scored(self, one: Fragment) -> tuple[float, bool]:
        """(the score of the attempt up to here, whether it is one)."""
        t = len(one.reward)
        reward = checked("reward", one.reward, (t,)).reshape(t).copy()
        value = checked("value", one.value, (t + 1,)).reshape(t + 1)
        if not t:
            return 0.0, False
        if one.truncated:  # what would have followed is worth its value
            reward[-1] += np.float32(self.scoring.gamma) * value[-1]
        size = 1 << (t - 1).bit_length()  # few lengths, so that few programs are compiled
        done, counts = np.zeros(size, bool), np.zeros(size, bool)
        done[-1], counts[size - t :] = one.terminated or one.truncated, True
        # The room is before the steps: what comes first has no part in later advantages.
        steps = [np.pad(x, (size - t, 0)) for x in (reward, value[:-1])]
        parts: dict[str, Any] = {"reward": steps[0], "value": steps[1], "done": done, "counts": counts}
        last: Any = value[-1:]
        x = PlayedSteps(**{name: part[:, None] for name, part in parts.items()}, last_value=last, logits=None)
        before = self._open.pop(one.attempt, None) or OpenAttempts.none(1, np)
        score, is_scored, after = jax.device_get(attempt_scores(self.scoring, *jax.device_put((x, before), cpu())))
        if not done[-1]:
            self._open[one.attempt] = after
            while len(self._open) > MOST_OPEN:
                del self._open[next(iter(self._open))]
        return float(score[-1, 0]), bool(is_scored[-1, 0])

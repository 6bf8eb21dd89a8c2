"""The attempts of B rows: everything that is counted of an attempt, from its beginning to its end."""

from typing import Any

import jax
import numpy as np

from minimax_lib.portable.encodings import copied, rows_of, stacked
from minimax_lib.portable.numbers import checked
from minimax_lib.portable.scoring import OpenAttempts, PlayedSteps, Scoring, attempt_scores

MOST_STEPS = 16384  # that are kept for a rollout that is never reported


class AttemptLedger:
    """What B rows have reached in the attempts under way. An attempt ends once: by `end`, or by `give_up`.

    Returns and lengths are told when an attempt ends. Scores are told later, with the values of a whole rollout. For
    them, the steps since the last rollout are kept, and the sums over those steps of an attempt that are told already.
    """

    def __init__(self, n: int):
        self.n = n
        self.returns, self.length, self.episode_return = np.zeros(n), np.zeros(n, np.int64), np.zeros(n)
        self.is_open = np.zeros(n, bool)  # an attempt is under way
        self._steps: list[tuple[Any, ...]] = []  # task, whether it ended, whether it counts, and other arrays [B]
        self._sums = OpenAttempts.none(n, np)
        self._summed = np.zeros(n, bool)  # the attempt that is in the sums still goes on

    def begin(self, rows: np.ndarray) -> None:
        """Attempts begin on these rows (bool[B]). Those under way are given up."""
        self.give_up(rows)
        self.is_open |= rows

    def step(self, reward: Any, counts: Any = True) -> np.ndarray:
        """One step of every row. bool[B], where it belongs to an attempt.

        `counts` is False where it only opened an episode.
        """
        counts = self.is_open & counts
        reward = checked("reward", np.where(counts, reward, 0), (self.n,))
        self.returns += reward
        self.episode_return += reward
        self.length += counts
        return counts

    def keep(self, task: Any, ended: Any, counts: Any, *others: Any) -> None:
        """The last step, for scores. `ended`: an attempt ended with it; `counts`: it belongs to one. All are copied."""
        ended = np.asarray(ended, bool) & self.is_open
        self._steps.append((copied(task), ended, np.array(counts, bool), *(np.array(other) for other in others)))
        self._summed = self._summed & ~ended
        if len(self._steps) > 2 * MOST_STEPS:
            self._forget(MOST_STEPS)

    def end(self, rows: np.ndarray, episode: Any = True) -> dict[str, Any]:
        """What `Host.report` is told of the attempts of `rows` (bool[B]), which end. `episode`: their episodes too."""
        told = {"returns": self.returns[rows], "length": self.length[rows], "episode": episode}
        told |= {"episode_return": self.episode_return[rows]}
        self.returns[rows], self.length[rows] = 0, 0
        self.episode_return[rows] = np.where(episode, 0, told["episode_return"])
        self.is_open[rows] = False
        return told

    def give_up(self, rows: np.ndarray) -> None:
        """The attempts under way on these rows end with the last step. They are not reported, and have no score."""
        rows = rows & self.is_open
        self.returns[rows], self.length[rows], self.episode_return[rows] = 0, 0, 0
        self.is_open[rows] = False
        self._forget_sums(rows & self._summed)
        own = rows
        for _, ended, counts, *_ in reversed(self._steps):
            own = own & ~ended  # back to the step after the attempt before, which may be the last step
            if not own.any():
                break
            counts[own] = False
        if self._steps:
            self._steps[-1][1][rows] = True

    @property
    def n_kept(self) -> int:
        """Steps since the last rollout."""
        return len(self._steps)

    def take(self, n: int) -> tuple[Any, ...]:
        """The last `n` steps, [n, B] each. All are forgotten. ValueError if there are fewer."""
        if n > len(self._steps):
            raise ValueError(f"the rollout has {n} steps, but only {len(self._steps)} were taken since the last report")
        self._forget(len(self._steps) - n)
        kept = tuple(stacked(list(each)) for each in zip(*self._steps, strict=True))
        self._steps.clear()
        return kept

    def scores(self, scoring: Scoring, task: Any, x: PlayedSteps, device: Any) -> tuple[Any, np.ndarray]:
        """(tasks [M, ...], f32[M] their scores) of a rollout, by the step in which they ended, then by row."""
        check_rollout(scoring, task, x)
        n = x.reward.shape[1]
        if len(self._sums.total) != n:
            self._sums = OpenAttempts.none(n, np)
        mean, scored, after = attempt_scores(scoring, *jax.device_put((x, self._sums), device))
        self._sums = jax.tree.map(np.array, after)  # NumPy's own can be changed in place
        self._summed = np.ones(self.n, bool)
        self._steps.clear()
        ended = np.nonzero(np.asarray(scored))
        return rows_of(task, ended), np.asarray(mean)[ended]

    def _forget(self, n: int) -> None:
        """The first `n` steps, which will not be reported."""
        if n:
            ended = np.any([step[1] for step in self._steps[:n]], axis=0)
            self._forget_sums(ended)
            del self._steps[:n]

    def _forget_sums(self, rows: np.ndarray) -> None:
        """The attempts that these rows were on at the last rollout get no score of it."""
        if len(self._sums.total) == self.n:
            empty = OpenAttempts.none(self.n, np)
            self._sums = jax.tree.map(lambda x, none: np.where(rows, none, x), self._sums, empty)
        self._summed = self._summed & ~rows


def check_rollout(scoring: Scoring, task: Any, x: PlayedSteps) -> None:
    """ValueError in one line where a rollout is not [T, B]."""
    shape = x.reward.shape
    wanted = {"reward": (x.reward, shape), "value": (x.value, shape), "done": (x.done, shape)}
    wanted |= {"counts": (x.counts, shape), "last_value": (x.last_value, shape[1:])}
    for name, (array, fits) in wanted.items():
        if array.shape != fits or len(shape) != 2:
            raise ValueError(f"{name} is {list(array.shape)} and reward {list(shape)}: all are [T, B], last_value [B]")
    if not shape[0]:
        raise ValueError(f"reward is {list(shape)}: a rollout has at least one step")
    for part in jax.tree.leaves(task):
        if part.shape[:2] != shape:
            raise ValueError(f"task is {list(part.shape)} and reward {list(shape)}: it is [T, B], as they are")
    if scoring.needs_logits and x.logits is None:
        raise ValueError(f"the score {scoring.score!r} needs `logits`: give them too")
    if scoring.needs_logits and x.logits is not None and (x.logits.ndim != 3 or x.logits.shape[:2] != shape):
        raise ValueError(f"logits is {list(x.logits.shape)}: it must be [{shape[0]}, {shape[1]}, n], n actions each")

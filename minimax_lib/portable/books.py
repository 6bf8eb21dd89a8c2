"""What is counted of the attempts of B rows, in NumPy, step by step."""

from typing import Any

import numpy as np

from minimax_lib.portable.encodings import copied, stacked

MOST_STEPS = 16384  # that are kept for a rollout which nobody reports


class Books:
    """The return and the length of each row's attempt and episode so far."""

    def __init__(self, n: int):
        self.returns, self.length = np.zeros(n), np.zeros(n, np.int64)
        self.episode_return = np.zeros(n)

    def add(self, reward: Any, counts: Any = 1) -> None:
        """One step of every row. `counts` (bool[B]) is False where it only opened an episode, with the reward 0."""
        self.returns += reward
        self.episode_return += reward
        self.length += counts

    def ended(self, rows: Any, episode: Any = True) -> dict[str, Any]:
        """What `Host.report` is told of the attempts of `rows`, that have ended. They begin again."""
        told = {"returns": self.returns[rows], "length": self.length[rows], "episode": episode}
        told |= {"episode_return": self.episode_return[rows]}
        self.returns[rows], self.length[rows] = 0, 0
        self.episode_return[rows] = np.where(episode, 0, told["episode_return"])
        return told

    def clear(self, rows: Any) -> None:
        """The attempts of these rows are given up."""
        self.returns[rows], self.length[rows], self.episode_return[rows] = 0, 0, 0


class RolloutSteps:
    """The steps since the last report of a rollout."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, ...]] = []

    def add(self, task: Any, ended: Any, *others: Any) -> None:
        """One step: the rows' tasks, where attempts ended with it, and other arrays [B]. All are copied."""
        self.steps.append((copied(task), *(np.array(other) for other in (ended, *others))))
        if len(self.steps) > 2 * MOST_STEPS:
            del self.steps[:MOST_STEPS]

    def cut(self, rows: np.ndarray) -> None:
        """The attempts of these rows have ended with the last step."""
        if self.steps:
            self.steps[-1][1][rows] = True

    def take(self, n: int) -> tuple[Any, ...]:
        """The last `n` steps, [n, B] each. All are forgotten. ValueError if there are fewer."""
        if n > len(self.steps):
            raise ValueError(f"the rollout has {n} steps, but only {len(self.steps)} were taken since the last report")
        kept = tuple(stacked(list(each)) for each in zip(*self.steps[len(self.steps) - n :], strict=True))
        self.steps.clear()
        return kept

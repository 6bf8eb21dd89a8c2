"""Questions for a language model as tasks: each is answered several times, and the answers are graded."""

import dataclasses
from typing import Any

import numpy as np

from minimax_lib.portable.numbers import checked


def as_groups(task: np.ndarray, rewards: Any) -> tuple[np.ndarray, np.ndarray]:
    """(tasks [M], rewards f32[M, G] from 0 to 1). One task may have rewards [G]. ValueError in one line."""
    rewards = checked("rewards", rewards, None, 0, 1)
    if rewards.ndim == 1 and len(task) == 1:
        rewards = rewards[None]
    if rewards.ndim != 2 or len(rewards) != len(task) or not rewards.shape[1]:
        raise ValueError(f"rewards are {list(rewards.shape)}: they must be [{len(task)}, G], a row for each task")
    return task, rewards


def most_mixed(rewards: Any, n: int) -> np.ndarray:
    """i64[n], the rows of `rewards` [M, G] whose variance is highest, in the order in which they stand.

    Where only `n` rows or more are mixed, all of these are. Of equal ones, the first. ValueError if there are fewer
    than `n` rows.
    """
    rewards = np.asarray(rewards, np.float64)
    if rewards.ndim != 2 or not 0 <= n <= len(rewards):
        raise ValueError(f"n is {n}: it must be from 0 to the number of groups, {len(rewards)}")
    # Grades such as .1 have no exact mean: the variance of equal ones must be 0 all the same.
    variance = np.where(np.ptp(rewards, axis=1) > 0, rewards.var(axis=1), 0.0)
    return np.sort(np.argsort(-variance, kind="stable")[:n])


@dataclasses.dataclass(frozen=True)
class Oversampled:
    """A `Host` of which `k` times as many tasks are asked as are needed: see `oversample`."""

    host: Any
    k: int

    def __post_init__(self) -> None:
        checked("k", self.k, (), 1, whole=True)

    def draw(self, n: int) -> np.ndarray:
        """i32[k n], the candidates for a batch of `n` tasks."""
        return self.host.draw(self.k * n)

    def record_group(self, task: Any, rewards: Any) -> np.ndarray:
        """Tells the host of all the answers, `rewards` [k n, G]. i64[n], the rows to train on."""
        task, rewards = as_groups(np.atleast_1d(task), rewards)
        if len(task) % self.k:
            raise ValueError(f"there are {len(task)} groups: there must be {self.k} times as many as are trained on")
        self.host.record_group(task, rewards)
        return most_mixed(rewards, len(task) // self.k)


def oversample(host: Any, k: int) -> Oversampled:
    """Each batch is the part 1 / `k` of its candidates whose answers are most mixed (LILO, Foster et al. 2025, alg. 1).

    All candidates are answered. Those with the highest variance of the rewards are trained on. Groups that are all
    right or all wrong come last: they would give no gradient.
    """
    return Oversampled(host, k)

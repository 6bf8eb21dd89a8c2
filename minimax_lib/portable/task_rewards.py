"""Rewards divided by the spread of the returns on their own task, so that no task is louder than the others."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorWrapper

from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host_state import Saved, flat, sealed
from minimax_lib.portable.numbers import checked, checked_count, checked_rows

MOMENTS = ("count", "mean", "variance")
FEWEST = 1e-4  # numbers that a task begins with, so that nothing is divided by 0


class TaskScales:
    """Running moments of the discounted return of each task (Engstrom et al. 2020, section 3, for each task apart).

    In every row, g <- gamma g + r, and g = 0 after an episode's end. After each step, the g of the rows that are on a
    task are merged into the moments of this task, and the rewards on it are divided by sqrt(variance + 1e-8), and then
    cut off at +-`clip`.
    """

    def __init__(self, n_tasks: int, n_rows: int, gamma: float = 0.99, clip: float = 10.0) -> None:
        n_tasks, n_rows = checked_count("n_tasks", n_tasks), checked_count("n_rows", n_rows)
        checked("gamma", gamma, (), 0, 1)
        checked("clip", clip, (), 0)
        self.gamma, self.clip = gamma, clip
        self.count, self.mean, self.variance = np.full(n_tasks, FEWEST), np.zeros(n_tasks), np.ones(n_tasks)
        self._returns = np.zeros(n_rows)

    def scaled(self, task: np.ndarray, reward: np.ndarray, ended: np.ndarray, counts: Any = True) -> np.ndarray:
        """f32[B], the rewards of one step of B rows on `task`. `counts` is False where it only opened an episode."""
        counts = np.broadcast_to(counts, ended.shape)
        reward = checked("reward", reward, ended.shape).astype(float)
        self._returns = np.where(counts, self.gamma * self._returns + reward, 0.0)
        own, place = np.unique(np.asarray(task)[counts], return_inverse=True)
        if len(own):
            self._merge(own, place, self._returns[counts])
        self._returns[np.asarray(ended, bool)] = 0.0
        scale = np.sqrt(self.variance[np.asarray(task)] + 1e-8)
        return np.clip(reward / scale, -self.clip, self.clip).astype(np.float32)

    def begin(self, rows: np.ndarray) -> None:
        """These rows (bool[B]) begin episodes, whatever they were in the middle of."""
        self._returns[rows] = 0

    def grow(self, n_tasks: int) -> None:
        """The list has `n_tasks` tasks now. Nothing is known of the new ones."""
        more = n_tasks - len(self.count)
        if more > 0:
            self.count = np.append(self.count, np.full(more, FEWEST))
            self.mean, self.variance = np.append(self.mean, np.zeros(more)), np.append(self.variance, np.ones(more))

    def state_dict(self) -> dict[str, np.ndarray]:
        """The moments, as NumPy arrays by name. Episodes under way are no part of them."""
        moments = {name: getattr(self, name) for name in MOMENTS}
        return sealed(self._settings(), flat("scales", moments) | flat("n", {"tasks": np.array(len(self.count))}))

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`, also from that of a shorter list. Every row begins an episode.

        ValueError in one line if the settings are others, or the state is damaged. Then nothing has changed.
        """
        saved, n = Saved(arrays, self._settings()), len(self.count)
        found = saved.take("scales", dict.fromkeys(MOMENTS, np.zeros(saved.count("n['tasks']", n))))
        saved.done()
        self.count, self.mean, self.variance = (np.array(found[name]) for name in MOMENTS)
        self.grow(n)
        self._returns[:] = 0

    def _settings(self) -> dict[str, str]:
        return {"gamma": repr(self.gamma), "clip": repr(self.clip)}

    def _merge(self, own: np.ndarray, place: np.ndarray, values: np.ndarray) -> None:
        more = np.bincount(place)
        mean = np.bincount(place, values) / more
        squares = np.bincount(place, (values - mean[place]) ** 2)
        count, step = self.count[own], mean - self.mean[own]
        total = count + more
        squares += self.variance[own] * count + step**2 * count * more / total
        self.count[own], self.mean[own], self.variance[own] = (
            total,
            self.mean[own] + step * more / total,
            squares / total,
        )


class TaskRewards(VectorWrapper):
    """`envs`, a `TaskVectorEnv` or `TaskResets`, with rewards by the scale of each task (`TaskScales`).

    The host is told of the rewards as they are. Give `report_rollout` no `reward`, so that scores are of these too. In
    an evaluation, rewards pass as they are, and do not move the scales.
    """

    def __init__(self, envs: Any, gamma: float = 0.99, clip: float = 10.0) -> None:
        super().__init__(envs)
        n = envs.host.space.n
        if n is None:
            raise ValueError(f"the tasks of {type(envs.host.space).__name__} cannot be listed: they have no scales")
        self.scales = TaskScales(n, self.num_envs, gamma, clip)
        self._opens = np.zeros(self.num_envs, bool)
        self._spends_a_step = envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        """As `envs.reset`."""
        rows = checked_rows("reset_mask", (given.get("options") or {}).get("reset_mask"), self.num_envs)
        told = self.env.reset(**given)
        self._opens &= ~rows  # the others may still wait for the step that opens their next episode
        self.scales.begin(rows)
        return told

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As `envs.step`, with scaled rewards."""
        tasks = np.array(self.env.tasks)  # type: ignore[attr-defined]
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = terminated | truncated
        host = self.env.rows.host  # type: ignore[attr-defined]
        if not isinstance(host, EvaluationHost):
            self.scales.grow(host.space.n)
            reward = self.scales.scaled(tasks, reward, done, ~self._opens)
        self._opens = done if self._spends_a_step else self._opens
        return obs, reward, terminated, truncated, infos

    def state_dict(self) -> dict[str, np.ndarray]:
        """See `TaskScales.state_dict`. That of the host is saved apart."""
        return self.scales.state_dict()

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """See `TaskScales.load_state_dict`. Call `reset` after it."""
        self.scales.load_state_dict(arrays)

    def evaluating(self, tasks: Any = None) -> contextlib.AbstractContextManager[None]:
        """See `TaskVectorEnv.evaluating`."""
        return self.env.evaluating(tasks)  # type: ignore[attr-defined]

    def report_rollout(self, value: Any, last_value: Any, logits: Any = None) -> Any:
        """See `TaskVectorEnv.report_rollout`."""
        return self.env.report_rollout(value, last_value, None, logits)  # type: ignore[attr-defined]

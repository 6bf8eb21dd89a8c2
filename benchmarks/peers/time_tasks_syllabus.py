"""Syllabus's curricula in the same loop. task_overhead.py runs it, in an environment with the PyPI package syllabus-rl.

With PYTHONPATH set to a clone of its repository, that runs in the place of the release. `steps/plr` is its PLR with
updates of every step from the environments. It asks its own network for values; a function that gives zeros
stands for that network here, so the network costs nothing. `central/plr` is its other PLR, which the training loop
tells of each step: what its script for Procgen does. It replays always (`replay_prob=1`): once all tasks are seen, the
release fails at the first draw that is not a replay.
"""

import argparse
import functools
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import task_loop
import torch
from syllabus.core import GymnasiumSyncWrapper, TaskWrapper, make_multiprocessing_curriculum
from syllabus.curricula import (
    CentralPrioritizedLevelReplay,
    DomainRandomization,
    OnlineLearningProgress,
    PrioritizedLevelReplay,
)
from syllabus.task_space import DiscreteTaskSpace

SPACE = DiscreteTaskSpace(task_loop.N_TASKS)
SAMPLER = {"strategy": "value_l1", "replay_prob": 1.0, "temperature": 0.1, "staleness_coef": 0.1}


class Tasks(TaskWrapper):
    """A task is a seed."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.task_space = SPACE
        self.task = 0
        self._return = 0.0

    def reset(self, new_task: Any = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._return = 0.0
        return super().reset(new_task=new_task, **kwargs)

    def change_task(self, new_task: Any) -> None:
        self.task = int(new_task)
        if hasattr(self.env.unwrapped, "seed"):
            self.env.unwrapped.seed(self.task, self.task)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        self._return += reward
        return obs, reward, terminated, truncated, info

    def _task_completion(self, obs: Any, rew: Any, term: bool, trunc: bool, info: dict[str, Any]) -> float:
        return min(max(self._return / 1000, 0.0), 1.0) if term or trunc else 0.0


class Synced:
    """With tasks of a curriculum in a thread, through queues."""

    def __init__(self, name: str, args: argparse.Namespace):
        self.curriculum = make_multiprocessing_curriculum(curriculum(name, args))
        components = self.curriculum.components

        def make() -> gymnasium.Env:
            return GymnasiumSyncWrapper(Tasks(task_loop.make_env(args)), SPACE, components, buffer_size=2)

        self.envs = task_loop.vectorised(args, [make] * args.n_envs)
        self._central = name == "central/plr"
        self._values = torch.zeros(args.n_envs, 1)
        self._tasks: Any = None

    def stepped(self, told: tuple[Any, ...]) -> None:
        if not self.curriculum.update_thread.is_alive():
            raise SystemExit("Syllabus's thread has ended; what it said stands above")
        if not self._central:
            return
        _, reward, terminated, truncated, infos = told
        update = {"value": self._values, "next_value": self._values, "rew": reward, "dones": terminated | truncated}
        self.curriculum.curriculum.update(update | {"tasks": infos["task"].tolist()})

    def rollout(self) -> None:
        return

    def settled(self) -> bool:
        return self.curriculum.components.update_queue.empty()


def curriculum(name: str, args: argparse.Namespace) -> Any:
    """Syllabus's own object."""
    if name == "episodes/uniform":
        return DomainRandomization(SPACE)
    if name == "episodes/learning_progress":
        return OnlineLearningProgress(SPACE, update_interval=1000, uniform_prob=0.25)
    shared = {"num_steps": task_loop.ROLLOUT, "num_processes": args.n_envs, "task_sampler_kwargs_dict": dict(SAMPLER)}
    if name == "central/plr":
        return CentralPrioritizedLevelReplay(SPACE, **shared)
    zeros = SimpleNamespace(get_value=lambda obs, lstm_states, dones: (torch.zeros(len(obs), 1), None, {}))
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (27,))
    return PrioritizedLevelReplay(SPACE, seen, evaluator=zeros, **shared)


NAMES = ("episodes/uniform", "episodes/learning_progress", "steps/plr", "central/plr")

if __name__ == "__main__":
    torch.set_num_threads(1)
    made = {name: functools.partial(Synced, name) for name in NAMES}
    task_loop.main({"plain": task_loop.Plain} | made, __doc__)

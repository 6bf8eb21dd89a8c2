"""Task curricula of this package in a loop over Gymnasium environments. task_overhead.py runs it."""

import argparse
import functools
from typing import Any

import gymnasium
import numpy as np
import task_loop

from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Scaled
from minimax_lib.portable.task_receiver import TaskReceiver, as_option, as_seed
from minimax_lib.portable.task_vector import TaskVectorEnv
from minimax_lib.tasks import LearningProgress, ListedPLR, Online, Preference, TaskCurriculum, Uniform
from minimax_lib.tasks.spaces import Discrete

SPACE = Discrete(task_loop.N_TASKS)
PLR = ListedPLR(task_loop.N_TASKS, Preference(transform="rank", temperature=0.1, staleness=0.1))


class Seeded(gymnasium.Wrapper):
    """NetHack, whose `reset` takes no notice of its seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.unwrapped.seed(seed, seed)
        return self.env.reset()


def receiver(args: argparse.Namespace, index: int) -> gymnasium.Env:
    env = task_loop.make_env(args)
    if args.env == "nle":
        return TaskReceiver(Seeded(env), index, SPACE, as_seed)
    return TaskReceiver(env, index, SPACE, as_option)


class Hosted:
    """With tasks of a `Host`. Where scores are read, every step is told of, with its rollout."""

    def __init__(self, core: TaskCurriculum, args: argparse.Namespace):
        makers = [functools.partial(receiver, args, index) for index in range(args.n_envs)]
        envs = task_loop.vectorised(args, makers)  # before JAX is at work: its threads should not be copied
        self.envs = TaskVectorEnv(envs, Host(core, SPACE, seed=0), Scaled(1 / 1000))
        self._values = np.random.default_rng(0).random((task_loop.ROLLOUT, args.n_envs), np.float32)

    def stepped(self, told: tuple[Any, ...]) -> None:
        return

    def rollout(self) -> None:
        self.envs.report_rollout(self._values, self._values[0])

    def settled(self) -> bool:
        return True


PROGRAMS = {
    "plain": task_loop.Plain,
    "episodes/uniform": functools.partial(Hosted, Uniform(task_loop.N_TASKS)),
    "episodes/learning progress": functools.partial(
        Hosted, Online(LearningProgress(task_loop.N_TASKS), every=1000, uniform=0.25)
    ),
    "steps/plr": functools.partial(Hosted, PLR),
}

if __name__ == "__main__":
    task_loop.main({name.replace(" ", "_"): make for name, make in PROGRAMS.items()}, __doc__)

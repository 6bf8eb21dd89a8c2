"""How often each task is solved, tried out with anybody's policy: for curricula that read rates."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.host import EVALUATION_STEPS, Host
from minimax_lib.portable.joint_host import JointHost
from minimax_lib.tasks.core import episodes_needed

# (obs, memory, first) -> (actions, memory). `memory` is None at the first step, and then what the policy returned.
# `first` (bool[B]): the observation opens an episode. This is `model.predict` of Stable-Baselines3.
Policy = Callable[[Any, Any, np.ndarray], tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Rates:
    """What an evaluation found. Arrays are [N], and 0 where a task was not tried."""

    rates: np.ndarray  # f32, the share of attempts that solved the task
    progress: np.ndarray  # f32, the mean progress
    returns: np.ndarray  # f32, the mean return
    lengths: np.ndarray  # f32, the mean length
    known: np.ndarray  # bool, the task was tried
    env_steps: int  # all steps that were taken, also those of rows that waited for the last attempts


class Examiner(EvaluationHost):
    """Gives every attempt of a list once, and after them the same again, which does not count.

    An attempt is known by its number among the draws. Short attempts that were not asked for would otherwise count in
    the place of long ones.
    """

    def __init__(self, space: Any, attempts: np.ndarray):
        super().__init__(space, attempts)
        self.n_attempts = len(attempts)
        self.told = np.full((5, self.n_attempts), np.nan)  # progress, return, length, terminated, is_default

    @property
    def is_over(self) -> bool:
        return not np.isnan(self.told[0]).any()

    def report(self, task: Any, progress: Any = None, *others: Any, **named: Any) -> None:
        super().report(task, progress)
        number = named["number"]
        counts = number < self.n_attempts
        names = ("returns", "length", "terminated", "is_default")
        told = np.stack([np.asarray(progress), *(named[name] for name in names)])
        self.told[:, number[counts]] = told[:, counts]


def evaluate_tasks(
    policy: Policy,
    make_envs: Callable[[Any], VectorEnv],
    host: Host,
    tasks: Any = None,
    n_episodes: int | None = None,
    seed: int = 0,
) -> Rates:
    """Plays `n_episodes` attempts on each of `tasks` (all), and tells `host` the rates if its curriculum reads rates.

    `make_envs(host)` gives vector environments whose adaptor takes its tasks from the host that it is given, such as
    `lambda host: TaskVectorEnv(SyncVectorEnv(makers), host)`. They are closed afterwards. All attempts count, however
    long they take, so episodes need an end. By default there are as many of each task as the curriculum asks for.
    ValueError for fewer, for an unknown task, and where tasks cannot be listed. A warning if the progress by default
    seems to be upside down.
    """
    if isinstance(host, JointHost):
        raise ValueError(
            "host is a JointHost: give evaluate_tasks its `tasks`, and let make_envs(host) use "
            "JointHost(host, opponents.evaluation())"
        )
    if host.space.n is None:
        raise ValueError(f"the tasks of {type(host.space).__name__} cannot be listed: they have no rates")
    least = max(episodes_needed(host.core), 1)
    n_episodes = least if n_episodes is None else n_episodes
    if n_episodes < least:
        raise ValueError(f"n_episodes is {n_episodes}: {type(host.core).__name__} needs at least {least} of each task")
    chosen = np.unique(np.arange(host.space.n) if tasks is None else np.asarray(tasks))
    exam = Examiner(host.space, np.tile(chosen, n_episodes))
    envs = make_envs(exam)
    try:
        env_steps = _play(policy, envs, exam, seed)
    finally:
        envs.close()
    progress, returns, lengths, terminated, is_default = exam.told.reshape(5, n_episodes, -1)
    warn_of_default_progress(progress, returns, terminated > 0, is_default > 0)
    known = np.zeros(host.space.n, bool)
    known[chosen] = True

    def everywhere(values: np.ndarray) -> np.ndarray:
        whole = np.zeros(len(known), np.float32)
        whole[chosen] = values.mean(axis=0)
        return whole

    means = {"rates": progress >= 1, "progress": progress, "returns": returns, "lengths": lengths}
    found = Rates(**{name: everywhere(x) for name, x in means.items()}, known=known, env_steps=env_steps)
    host.n_told[EVALUATION_STEPS] += env_steps
    if episodes_needed(host.core):
        host.evaluated(found.rates, known)
    return found


def warn_of_default_progress(
    progress: np.ndarray, returns: np.ndarray, terminated: np.ndarray, is_default: np.ndarray
) -> None:
    """A warning if attempts that a time limit has cut did better than those that count as solved. All are [K, N]."""
    solved, cut = is_default & (progress >= 1), is_default & ~terminated
    if solved.any() and cut.any() and returns[cut].mean() > returns[solved].mean():
        warnings.warn(
            f"attempts that a time limit has cut have a mean return of {returns[cut].mean():.4g} and count as "
            f"unsolved, and those that count as solved have {returns[solved].mean():.4g}: if lasting long is the task, "
            "give the adaptor a progress, such as Scaled(1 / 500)",
            stacklevel=3,
        )


def _play(policy: Policy, envs: VectorEnv, exam: Examiner, seed: int) -> int:
    """Steps until all attempts have ended. Returns the number of steps."""
    mode = AutoresetMode(envs.metadata["autoreset_mode"])
    obs, _ = envs.reset(seed=seed)
    if exam.attempts is None:
        raise ValueError("make_envs did not use the host that it was given: build its adaptor round that one")
    memory, env_steps = None, 0
    first, over = np.ones(envs.num_envs, bool), np.zeros(envs.num_envs, bool)
    while not exam.is_over:
        actions, memory = policy(obs, memory, first)
        obs, _, terminated, truncated, _ = envs.step(actions)
        done = terminated | truncated
        # In the mode NextStep, the step after an end opens the next episode, and is none of the environment.
        env_steps += int((~over).sum())
        first, over = (over, done) if mode is AutoresetMode.NEXT_STEP else (done, over)
        if mode is AutoresetMode.DISABLED and done.any() and not exam.is_over:
            obs, _ = envs.reset(options={"reset_mask": done})
    return env_steps

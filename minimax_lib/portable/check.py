"""A check of what a task space and an environment make of each other."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import jax
import numpy as np

from minimax_lib.tasks.spaces import TaskSpace


def check_tasks(
    env: gymnasium.Env,
    space: TaskSpace,
    apply: Callable[[Any], Mapping[str, Any]],
    n_tasks: int = 8,
    n_steps: int = 32,
) -> None:
    """ValueError in one line if different tasks of `space` make no difference to `env`.

    `apply(task)` gives the arguments of `reset`, as in `TaskReceiver`. The same actions are taken on up to `n_tasks`
    different tasks, and what is seen and paid is compared, step by step. The seed of `reset` is always the same, unless
    the task is the seed.
    """
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(n_steps)]
    tasks = _different(space, n_tasks)
    told = [dict(apply(task)) for task in tasks]
    first, *others = [_played(env, {"seed": 0} | arguments, actions) for arguments in told]
    if others and all(len(other) == len(first) and all(map(np.array_equal, first, other)) for other in others):
        raise ValueError(
            f"{len(tasks)} tasks bring the same observations and rewards in {n_steps} steps: "
            f"the environment takes no notice of reset({_words(told[-1])})"
        )


def _different(space: TaskSpace, n: int) -> list[Any]:
    """Up to `n` different tasks, drawn at random: all of them where there are few."""
    encodings = jax.device_get(space.sample(jax.random.key(0), 16 * n))
    rows = [jax.tree.map(lambda x, i=i: x[i], encodings) for i in range(16 * n)]
    return [space.decode(row) for row in list({str(row): row for row in rows}.values())[:n]]


def _played(env: gymnasium.Env, arguments: Mapping[str, Any], actions: list[Any]) -> list[np.ndarray]:
    """All that one episode, or its beginning, shows and pays."""
    obs, _ = env.reset(**arguments)
    found = [np.asarray(leaf) for leaf in jax.tree.leaves(obs)]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        found += [np.asarray(leaf) for leaf in (*jax.tree.leaves(obs), reward, terminated, truncated)]
        if terminated or truncated:
            break
    return found


def _words(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())

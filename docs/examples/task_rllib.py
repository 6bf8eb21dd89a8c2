"""A task curriculum in RLlib: CartPole, whose pole starts from a range that grows when the agent has mastered it.

    pip install -e ".[ray]" torch
    python docs/examples/task_rllib.py

The lines that a task curriculum adds to such a script are marked with `# TASKS`. A task is a range [low, high] from
which all four numbers of the first state are drawn.

One run with two workers on two cores of an AMD EPYC: the range had grown to its full size after ten iterations (20,000
steps), and the mean return was 200 of 200 after twelve.
"""

import argparse
from typing import Any

import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune import register_env

from minimax_lib.portable.progress import Scaled  # TASKS
from minimax_lib.portable.task_ray import RemoteTaskEnv, task_server  # TASKS
from minimax_lib.tasks import ExpandingBox  # TASKS
from minimax_lib.tasks.spaces import Box  # TASKS

RANGE = ExpandingBox(low=-0.2, high=0.2, steps=4, threshold=0.5, required=10)  # TASKS
SPACE = Box((-0.2, -0.2), (0.2, 0.2))  # TASKS


def as_bounds(task: np.ndarray) -> dict[str, Any]:  # TASKS
    """CartPole takes the range of its first states as options of `reset`."""
    return {"options": {"low": float(task[0]), "high": float(task[1])}}


def make_env(config: Any) -> gymnasium.Env:
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    return RemoteTaskEnv(env, config["server"], SPACE, as_bounds, Scaled(1 / 200))  # TASKS


def main(n_iterations: int = 20, n_workers: int = 2) -> dict[str, float]:
    ray.init(num_cpus=n_workers + 1, include_dashboard=False, log_to_driver=False)
    server = task_server(RANGE, SPACE, seed=0)  # TASKS
    register_env("tasks", make_env)
    config = (
        PPOConfig()
        .environment("tasks", env_config={"server": server})  # TASKS: the server travels to the workers
        .env_runners(num_env_runners=n_workers, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=2000, minibatch_size=250, num_epochs=5, lr=1e-3)
    )
    algorithm = config.build_algo()
    for i in range(n_iterations):
        result = algorithm.train()["env_runners"]
        range_ = ray.get(server.call.remote("metrics"))  # TASKS
        print(f"{i}: mean return {result.get('episode_return_mean', float('nan')):.0f}, {range_}")
    told = ray.get(server.told.remote())
    algorithm.stop()
    ray.shutdown()
    return told | range_


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    print(main(parser.parse_args().iterations))

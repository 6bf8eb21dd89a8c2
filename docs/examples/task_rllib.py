"""A task curriculum in RLlib: CartPole, whose pole starts from a range that grows when the agent has mastered it.

    pip install -e ".[ray]" torch
    python docs/examples/task_rllib.py --picture rllib.png

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


def main(n_iterations: int = 20, n_workers: int = 2, picture: str | None = None) -> dict[str, float]:
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
    seen = []
    for i in range(n_iterations):
        result = algorithm.train()["env_runners"]
        range_ = ray.get(server.call.remote("metrics"))  # TASKS
        seen.append((range_["tasks/range"], result.get("episode_return_mean", float("nan")) / 200))
        print(f"{i}: mean return {result.get('episode_return_mean', float('nan')):.0f}, {range_}")
    told = ray.get(server.told.remote())
    if picture:
        draw(seen, picture)
    algorithm.stop()
    ray.shutdown()
    return told | range_


def draw(seen: list[tuple[float, float]], path: str) -> None:
    """A picture of how far the curriculum has opened the range, and of the returns."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(seen) + 1), np.array(seen), label=["share of the range of starts", "mean return, of 200"])
    axes.set(xlabel="iteration (2,000 steps)", ylim=(0, 1.05))
    axes.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--picture")
    given = parser.parse_args()
    print(main(given.iterations, picture=given.picture))

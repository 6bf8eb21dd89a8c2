"""A task curriculum in a loop over a parallel environment of PettingZoo: the pistons that carry a ball to the left.

    pip install -e ".[pettingzoo]" "pettingzoo[butterfly]"
    python docs/examples/task_pettingzoo.py --core tscl

The lines that a task curriculum adds to such a loop are marked with `# TASKS`. A task is one of eight seeds, and so the
place where the ball begins. All pistons share three numbers: how likely they go down, stay, and go up. REINFORCE learns
them. That shows the loop at work; it is not enough to play well.
"""

import argparse
from typing import Any

import numpy as np

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.progress import Scaled  # TASKS
from minimax_lib.portable.task_pettingzoo import TaskParallelEnv  # TASKS
from minimax_lib.tasks.registry import TASK_CURRICULA  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS

SPACE = Discrete(8)  # TASKS


def main(core: str = "tscl", n_episodes: int = 20, max_cycles: int = 40, n_pistons: int = 6) -> Host:
    from pettingzoo.butterfly import pistonball_v6

    env: Any = pistonball_v6.parallel_env(n_pistons=n_pistons, continuous=False, max_cycles=max_cycles)
    host = Host(TASK_CURRICULA[core]().build(SPACE.n), SPACE, seed=0)  # TASKS
    env = TaskParallelEnv(env, host, progress=Scaled(0.01))  # TASKS: a return of 100 is a ball at the wall
    rng, logits, mean_return = np.random.default_rng(0), np.zeros(3), 0.0
    for episode in range(n_episodes):
        env.reset()  # TASKS: on the next task
        total, gradient, count = 0.0, np.zeros(3), 0
        while env.agents:
            p = np.exp(logits) / np.exp(logits).sum()
            actions = {agent: int(rng.choice(3, p=p)) for agent in env.agents}
            gradient += sum(np.eye(3)[action] - p for action in actions.values())
            count += len(actions)
            _, rewards, *_ = env.step(actions)
            total += float(np.mean(list(rewards.values())))
        logits += 0.05 * (total - mean_return) * gradient / count
        mean_return += (total - mean_return) / (episode + 1)
    env.close()
    print(f"mean return {mean_return:.1f}; {host.n_drawn} tasks drawn, {host.n_told['results']} results")
    print(f"shares of the tasks: {host.weights()}")
    return host


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="tscl", choices=TASK_CURRICULA.names())
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    main(core=given.core, n_episodes=given.episodes)

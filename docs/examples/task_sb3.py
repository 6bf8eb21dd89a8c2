"""A task curriculum in a script of Stable-Baselines3: PPO on levels of the real MiniGrid.

    pip install -e ".[envs,sb3]"
    python docs/examples/task_sb3.py --core plr

The lines that a task curriculum adds to such a script are marked with `# TASKS`. A task is one of 150 seeds of the
environment.
"""

import argparse
import functools

import gymnasium
import minigrid
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

from minimax_lib.portable.host import Host  # TASKS
from minimax_lib.portable.task_receiver import TaskReceiver, as_seed  # TASKS
from minimax_lib.portable.task_sb3 import TaskCallback, TaskVecEnv  # TASKS
from minimax_lib.tasks.registry import TASK_CURRICULA  # TASKS
from minimax_lib.tasks.spaces import Discrete  # TASKS

SPACE = Discrete(150)  # TASKS


def make_env(name: str, index: int) -> gymnasium.Env:
    env = gymnasium.make(name)
    env = gymnasium.wrappers.FlattenObservation(minigrid.wrappers.ImgObsWrapper(env))
    return TaskReceiver(env, index, SPACE, as_seed)  # TASKS: as the last of its wrappers


def main(
    name: str = "MiniGrid-Empty-Random-6x6-v0", core: str = "plr", n_steps: int = 50_000, n_envs: int = 16
) -> Host:
    envs = DummyVecEnv([functools.partial(make_env, name, index) for index in range(n_envs)])  # or SubprocVecEnv
    host = Host(TASK_CURRICULA[core]().build(SPACE.n), SPACE, seed=0)  # TASKS
    tasks = TaskVecEnv(envs, host)  # TASKS
    model = PPO("MlpPolicy", VecMonitor(tasks), n_steps=64, batch_size=256, n_epochs=4, seed=0, device="cpu", verbose=1)
    model.learn(n_steps, callback=TaskCallback(tasks))  # TASKS: the callback, for curricula that read scores
    print(f"{host.n_drawn} tasks drawn, {host.n_told['results']} results; {host.metrics()}")
    return host


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--core", default="plr", choices=TASK_CURRICULA.names())
    parser.add_argument("--steps", type=int, default=50_000)
    given = parser.parse_args()
    main(core=given.core, n_steps=given.steps)

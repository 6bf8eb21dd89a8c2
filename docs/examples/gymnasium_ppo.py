"""AMaze trained by Stable-Baselines3 through Gymnasium: one compiled batch of mazes, and their PPO in PyTorch.

    pip install stable-baselines3
    python docs/examples/gymnasium_ppo.py

One run on two cores of an AMD EPYC (stable-baselines3 2.9.2, torch 2.15, gymnasium 1.4.0), 200,000 steps, measured on
500 mazes that were never trained on, with sampled actions:

                    before   after
    mean return       0.09    0.75
    solved             16%     87%

It took 3.5 minutes of processor time.
"""

import time
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

import minimax_lib
from minimax_lib.portable.export import gymnasium_vector_env


class Mazes(VecEnv):
    """A vector environment of Gymnasium (in the mode SameStep) as one of Stable-Baselines3."""

    def __init__(self, envs: Any):
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        obs, _ = self.envs.reset(seed=self._seeds[0])
        self._reset_seeds()
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, infos = self.envs.step(self.actions)
        each: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated):
            # A maze that was cut off counts the value of its last observation; a solved one does not.
            each[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
            each[i]["terminal_observation"] = infos["final_obs"][i]
            each[i]["solved"] = bool(infos["final_info"]["solved"][i])
        return obs, rewards.astype(np.float32), terminated | truncated, each

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.envs, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("all mazes are one compiled batch")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("all mazes are one compiled batch")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def mazes(n: int) -> Mazes:
    """`n` random mazes of 7 x 7 cells with 12 walls."""
    env = minimax_lib.make_env("AMaze", height=7, width=7, n_walls=12, max_steps=100)
    return Mazes(gymnasium_vector_env(env, n))


def evaluated(model: PPO, n_episodes: int) -> tuple[float, float]:
    """(mean return, solved rate) of the first episode on each of so many mazes that were never trained on."""
    envs = mazes(n_episodes)
    envs.seed(10_000)
    obs, playing = envs.reset(), np.ones(n_episodes, bool)
    returns, solved = np.zeros(n_episodes), np.zeros(n_episodes, bool)
    while playing.any():
        obs, rewards, dones, infos = envs.step(model.predict(obs)[0])
        returns += rewards * playing
        solved |= playing & [info.get("solved", False) for info in infos]
        playing &= ~dones
    return float(returns.mean()), float(solved.mean())


def main(n_steps: int = 200_000, n_envs: int = 64, n_episodes: int = 500) -> tuple[tuple[float, float], ...]:
    """(mean return, solved rate) before and after the training."""
    model = PPO(
        "MultiInputPolicy",
        VecMonitor(mazes(n_envs)),
        learning_rate=1e-3,
        n_steps=64,
        batch_size=1024,
        n_epochs=4,
        gamma=0.99,
        ent_coef=0.01,
        seed=0,
        device="cpu",
    )
    before = evaluated(model, n_episodes)
    began = time.perf_counter()
    model.learn(n_steps)
    seconds = time.perf_counter() - began
    after = evaluated(model, n_episodes)
    for name, (mean_return, solved) in (("before", before), ("after", after)):
        print(f"{name}: mean return {mean_return:.2f}, {solved:.0%} solved")
    print(f"{n_steps:,} steps in {seconds:.0f} s")
    return before, after


if __name__ == "__main__":
    main()

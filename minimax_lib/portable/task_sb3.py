"""The trainer's side for Stable-Baselines3."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from minimax_lib.portable.agents import Agents
from minimax_lib.portable.forks import explained
from minimax_lib.portable.opponents import OpponentHost
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.row_tasks import AnyHost, RowTasks, evaluating
from minimax_lib.portable.task_receiver import HOLDS, TASK, check_reserved
from minimax_lib.portable.task_vector import Progress


class TaskVecEnv(VecEnvWrapper):
    """`venv`, each environment of which is a `TaskReceiver`, with tasks from `host`. The trainer sees plain actions.

    It stands directly around the DummyVecEnv or the SubprocVecEnv. Their environments begin the next episode at once,
    so a task is chosen when the attempt before it begins. Progress is as in `TaskVectorEnv`.
    """

    def __init__(
        self,
        venv: VecEnv,
        host: AnyHost,
        progress: Progress | None = None,
        within_episodes: bool = False,
    ):
        if not isinstance(venv.action_space, spaces.Tuple):
            raise ValueError("the environments take no tasks: wrap each of them in TaskReceiver first")
        if isinstance(venv, VecEnvWrapper):
            raise ValueError(
                f"TaskVecEnv is around {type(venv).__name__}: it must stand directly around the DummyVecEnv or the "
                f"SubprocVecEnv, and {type(venv).__name__} around it"
            )
        super().__init__(venv, action_space=venv.action_space[0])
        self.host, self.progress, self._within_episodes = host, progress or Solved(), within_episodes
        self.rows = RowTasks(host, venv.num_envs, "ahead")

    @property
    def tasks(self) -> Any:
        """The encodings of the tasks that the next actions are for."""
        return self.rows.task

    def reset(self) -> Any:
        """Begins attempts on new tasks, on all rows."""
        tasks = self.rows.reset(np.ones(self.num_envs, bool))
        own = [dict(options or {}) for options in self.venv._options]
        for options in own:
            check_reserved(options, (TASK, HOLDS), "the options of reset")
        self.venv.set_options([options | {TASK: task, HOLDS: False} for options, task in zip(own, tasks, strict=True)])
        with explained():
            obs = self.venv.reset()
        self._check(np.ones(self.num_envs, bool), self.venv.reset_infos)
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self.venv.step_async(list(zip(actions, self.rows.sent(), strict=True)))  # type: ignore[arg-type]

    def step_wait(self) -> Any:
        with explained():
            obs, reward, done, infos = self.venv.step_wait()
        ended = done
        if self._within_episodes:
            ended = done | np.array([bool(info.get("attempt_ended")) for info in infos])
        self.rows.step(reward, ended, True)
        if ended.any():
            self.rows.report(ended, done, done & ~cut(infos, done), self.progress, progress_of(infos, ended))
            self._check(done, self.venv.reset_infos)
        return obs, reward, done, infos

    def report_rollout(self, value: Any, last_value: Any, reward: Any = None, logits: Any = None) -> Any:
        """See `TaskVectorEnv.report_rollout`."""
        return self.rows.report_rollout(value, last_value, reward, logits)

    def evaluating(self, tasks: Any = None) -> contextlib.AbstractContextManager[None]:
        """See `TaskVectorEnv.evaluating`: `with envs.evaluating(): evaluate_policy(model, envs)`.

        An environment that only evaluates, as that of an EvalCallback, is `TaskVecEnv(venv, host.evaluation())`.
        """
        return evaluating(self, tasks)

    def _check(self, rows: np.ndarray, infos: Sequence[dict[str, Any]]) -> None:
        if rows.any():
            self.rows.check_all_said(infos[int(np.flatnonzero(rows)[0])], TASK)
            taken = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(rows).tolist():
                taken[i] = infos[i].get(TASK)
            self.rows.check(taken, rows)


class TaskCallback(BaseCallback):
    """Reports the scores of every rollout of an on-policy algorithm (PPO, A2C) to the host of `envs`.

    Their values and advantages are the algorithm's own. It is needed only for curricula that read scores.
    """

    def __init__(self, envs: TaskVecEnv):
        super().__init__()
        self.envs = envs

    def _init_callback(self) -> None:
        name = type(self.model).__name__
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise ValueError(
                f"{name} has no rollouts: TaskCallback is for on-policy algorithms (PPO, A2C); tell the host of scores "
                "by report_scores, or choose a curriculum that reads none"
            )
        inner: Any = self.model.get_env()
        while isinstance(inner, VecEnvWrapper) and inner is not self.envs:
            inner = inner.venv
        if inner is not self.envs:
            raise ValueError(
                f"TaskCallback has other environments than {name} trains on: give both the same TaskVecEnv"
            )

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.locals["rollout_buffer"]
        # The buffer's rewards have the value of the last observation in them where a time limit has cut an episode.
        self.envs.report_rollout(buffer.values, self.locals["values"].cpu().numpy().reshape(-1), buffer.rewards)


class OpponentCallback(BaseCallback):
    """A copy of the trained policy joins `opponents` after every `every` rollouts of an algorithm.

    `agent_of(model)` gives what is kept: by default `model.policy`. The first copy joins by `opponents.add_agent`
    before `learn`, because the environments begin before any callback is called. An opponent that is the student as it
    is now is the one after the last rollout.
    """

    def __init__(self, opponents: OpponentHost, every: int, agent_of: Callable[[Any], Any] | None = None):
        super().__init__()
        if every < 1:
            raise ValueError(f"every is {every}: it must be at least 1")
        self.opponents, self.every, self._agent_of = opponents, every, agent_of or policy_of
        self.n_rollouts = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        # The update that follows a rollout is made before the next one begins.
        if self.n_rollouts and self.n_rollouts % self.every == 0:
            self.opponents.add_agent(self._agent_of(self.model))
        elif self.opponents.core.live_share > 0:
            self.opponents.update_student(self._agent_of(self.model))
        self.n_rollouts += 1


def policy_of(model: Any) -> Any:
    """What acts in a model of Stable-Baselines3."""
    return model.policy


def policy_agents(policy_class: type[BasePolicy], folder: str | Path | None = None) -> Agents:
    """Keeps policies as Stable-Baselines3 saves them, in memory or as files. PPO's "MlpPolicy" is `ActorCriticPolicy`.

    A policy cannot be copied as it is: after an update, it holds tensors that have a gradient.
    """
    return Agents(folder, save_policy, policy_class.load)


def save_policy(policy: BasePolicy, file: Any) -> None:
    policy.save(file)


def acting(policy: Any) -> Callable[[Any], Any]:
    """For `OneSeat`: a function from an observation to an action of a policy of Stable-Baselines3, sampled."""
    return lambda obs: policy.predict(obs, deterministic=False)[0]


def cut(infos: Sequence[dict[str, Any]], done: np.ndarray) -> np.ndarray:
    """bool[B], where a time limit has ended the episode."""
    truncated = np.zeros(len(done), bool)
    for i in np.flatnonzero(done).tolist():
        truncated[i] = infos[i].get("TimeLimit.truncated", False)
    return truncated


def progress_of(infos: Sequence[dict[str, Any]], rows: np.ndarray) -> dict[str, np.ndarray]:
    """The entry `progress` of the infos of `rows`, and where it is."""
    found = {"progress": np.zeros(len(rows), np.float32), "_progress": np.zeros(len(rows), bool)}
    for i in np.flatnonzero(rows).tolist():
        if "progress" in infos[i]:
            found["progress"][i], found["_progress"][i] = infos[i]["progress"], True
    return found

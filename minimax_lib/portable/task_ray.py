"""Environments in many processes and on many machines, whose tasks one Ray actor chooses (RLlib, or a loop on Ray).

server = task_server(core, space, seed=0, file="tasks.npz")
env = RemoteTaskEnv(env, server, space)       in each worker; `server` travels in RLlib's env_config
"""

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray

from minimax_lib.portable.encodings import messages
from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_receiver import as_seed
from minimax_lib.portable.task_vector import Progress

PATIENCE = 1.0  # seconds that an environment waits for a task for which it has asked an episode ago


class TaskServer:
    """What the actor is: a `Host`, which saves itself to `file` after every `save_every` results.

    If the actor is lost, Ray starts it again, and it goes on from the file. Calls that were under way are made again.
    """

    def __init__(self, core: Any, space: Any, seed: int, scoring: Scoring, file: str | None, save_every: int):
        self.host = Host(core, space, seed, scoring)
        self._file, self._save_every, self._unsaved = file, save_every, 0
        if file is not None and Path(file).exists():
            with np.load(file) as arrays:
                self.host.load_state_dict(arrays)

    def draw(self) -> Any:
        """The encoding of the next task."""
        return messages(self.host.draw(1))[0]

    def report(self, task: Any, progress: float, returns: float, length: int) -> None:
        """One attempt has ended, and its episode."""
        self.host.report([task], [progress], [returns], [length])
        self._unsaved += 1
        if self._file is not None and self._unsaved >= self._save_every:
            self.save(self._file)
            self._unsaved = 0

    def call(self, name: str, *arguments: Any) -> Any:
        """What a method of the `Host` returns: `evaluated`, `report_scores`, `weights`, `metrics`, `state_dict`."""
        return getattr(self.host, name)(*arguments)

    def told(self) -> dict[str, int]:
        """How much was drawn and told."""
        return {"drawn": self.host.n_drawn, **self.host.n_told}

    def save(self, file: str) -> None:
        """The state of the host, whole or not at all."""
        partial = f"{file}.partial.npz"
        np.savez(partial, **self.host.state_dict())  # type: ignore[arg-type]
        os.replace(partial, file)


def task_server(
    core: Any,
    space: Any = None,
    seed: int = 0,
    scoring: Scoring | None = None,
    file: str | None = None,
    save_every: int = 100,
) -> Any:
    """The handle of a `TaskServer`. Without a `file`, a lost actor begins anew."""
    settings: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    settings |= {"runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu"}}}  # the trainer's GPU is not for it
    actor = ray.remote(TaskServer).options(**settings)
    return actor.remote(core, space, seed, scoring or Scoring(), file, save_every)


class RemoteTaskEnv(gymnasium.Wrapper):
    """`env`, which asks `server` for the task of an episode when the one before begins, and reports when it ends.

    Nothing waits for an answer. If the next task has not come after `patience` seconds, because the actor is lost, the
    last one is played again, and a warning says so. `apply` is as in `TaskReceiver`, progress as in `TaskVectorEnv`.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        server: Any,
        space: Any,
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        progress: Progress | None = None,
        patience: float = PATIENCE,
    ):
        super().__init__(env)
        self.server, self.space, self.apply = server, space, apply
        self.progress, self.patience = progress or Solved(), patience
        self.encoding: Any = None  # of the attempt under way
        self._future: Any = None  # of the next one
        self._return, self._length = 0.0, 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode on the next task. An attempt under way is given up."""
        self.encoding = self._next()
        self._return, self._length = 0.0, 0
        arguments = dict(self.apply(self.space.decode(self.encoding)))
        given = dict(options or {}) | dict(arguments.pop("options", {}))
        return self.env.reset(**({"seed": seed, "options": given or None} | arguments))

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As `env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._return, self._length = self._return + float(reward), self._length + 1
        if terminated or truncated:
            reached = self.progress(np.array([self._return]), np.array([bool(terminated)]))[0]
            progress = float(info.get("progress", reached))
            # Calls of one caller arrive in their order, so no answer is needed.
            self.server.report.remote(self.encoding, progress, self._return, self._length)
        return obs, reward, terminated, truncated, info

    def _next(self) -> Any:
        if self._future is None:
            encoding = ray.get(self.server.draw.remote())  # the first: there is nothing to play instead
        else:
            ready, _ = ray.wait([self._future], timeout=self.patience)
            if not ready:
                warnings.warn(f"the task server does not answer: task {self.encoding} is played again", stacklevel=3)
                return self.encoding
            encoding = ray.get(self._future)
        self._future = self.server.draw.remote()
        return encoding

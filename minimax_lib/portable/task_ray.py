"""Environments in many processes and on many machines, whose tasks one Ray actor chooses (RLlib, or a loop on Ray).

server = task_server(core, space, seed=0, file="tasks.npz")
env = RemoteTaskEnv(env, server, space)       in each worker; `server` travels in RLlib's env_config
"""

import os
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray

from minimax_lib.portable.encodings import gathered, messages
from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_receiver import as_seed
from minimax_lib.portable.task_vector import Progress

CALLER = "caller/"  # before the names of callers, in the file
MOST_CALLS = 256  # of one caller that may be under way
PATIENCE = 1.0  # seconds that an environment waits for a task for which it has asked an episode ago


class CallsSeen:
    """Which calls of a caller have come: the last ones, since those made again may come in another order."""

    def __init__(self, numbers: Iterable[int] = (0,)):
        self.numbers = set(numbers)

    def add(self, number: int) -> bool:
        """Whether it is a new one."""
        if number in self.numbers or number < min(self.numbers):
            return False
        self.numbers.add(number)
        if len(self.numbers) > MOST_CALLS:
            self.numbers.remove(min(self.numbers))
        return True


class TaskServer:
    """What the actor is: a `Host`, which saves itself to `file` after every `save_every` results.

    If the actor is lost, Ray starts it again, and it goes on from the file. Calls that were under way are made again,
    and results that are in the file already are not counted twice.
    """

    def __init__(self, core: Any, space: Any, seed: int, scoring: Scoring, file: str | None, save_every: int):
        self.host = Host(core, space, seed, scoring)
        self._file, self._save_every, self._unsaved = file, save_every, 0
        self._calls: dict[str, CallsSeen] = {}  # by caller
        if file is not None and Path(file).exists():
            with np.load(file) as arrays:
                self.host.load_state_dict({name: arrays[name] for name in arrays if not name.startswith(CALLER)})
                callers = [name for name in arrays if name.startswith(CALLER)]
                self._calls = {name.removeprefix(CALLER): CallsSeen(arrays[name].tolist()) for name in callers}

    def exchange(self, caller: str, number: int, results: list[tuple[Any, float, float, int]], n: int) -> list[Any]:
        """The encodings of the next `n` tasks, after these attempts: (task, progress, return, length) each.

        `number` counts the calls of the caller, from 1.
        """
        is_new = self._calls.setdefault(caller, CallsSeen()).add(number)
        if results and is_new:
            tasks, *numbers = zip(*results, strict=True)
            self.host.report(gathered(tasks, self.host.reads.encoding), *numbers)
            self._unsaved += len(results)
        drawn = messages(self.host.draw(n)) if n else []
        if self._file is not None and self._unsaved >= self._save_every:
            self.save(self._file)
            self._unsaved = 0
        return drawn

    def call(self, name: str, *arguments: Any) -> Any:
        """What a method of the `Host` returns: `evaluated`, `report_scores`, `weights`, `metrics`, `state_dict`."""
        return getattr(self.host, name)(*arguments)

    def told(self) -> dict[str, int]:
        """How much was drawn and told."""
        return {"drawn": self.host.n_drawn, **self.host.n_told}

    def save(self, file: str) -> None:
        """The state of the host, whole or not at all."""
        partial = f"{file}.partial.npz"
        calls = {f"{CALLER}{name}": np.array(sorted(seen.numbers)) for name, seen in self._calls.items()}
        np.savez(partial, **self.host.state_dict(), **calls)  # type: ignore[arg-type]
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


class TaskLine:
    """What the environments of one process share: tasks that have come from `server`, and results that go to it.

    One call brings as many tasks as it takes results. Ray's price is that of a call, whatever is in it: so they are
    made for half of the environments at once. A task is chosen about one episode before it is played.
    """

    def __init__(self, server: Any):
        self.server = server
        self._name, self._n_calls = uuid.uuid4().hex, 0
        self._envs: weakref.WeakSet[Any] = weakref.WeakSet()  # some are dropped and never closed
        self._tasks: deque[Any] = deque()
        self._results: list[tuple[Any, float, float, int]] = []
        self._calls: deque[tuple[Any, int]] = deque()  # under way, and how many tasks each will bring

    @property
    def _block(self) -> int:
        return max(1, len(self._envs) // 2)

    def join(self, env: Any) -> None:
        """One environment more."""
        self._envs.add(env)

    def take(self, patience: float | None) -> Any:
        """The next task, or none if it does not come within `patience` seconds; without them, it waits for ever."""
        if not self._tasks:
            if not self._calls:
                self._exchange(len(self._envs) + self._block)
            future, _ = self._calls[0]
            if patience is not None and not ray.wait([future], timeout=patience)[0]:
                return None
            self._calls.popleft()
            self._tasks.extend(ray.get(future))
        return self._tasks.popleft()

    def ended(self, task: Any, progress: float, returns: float, length: int) -> None:
        """An attempt has ended, and its row is about to take a task."""
        self._results.append((task, progress, returns, length))
        if len(self._results) >= self._block:
            ahead = len(self._tasks) + sum(n for _, n in self._calls)
            self._exchange(max(0, self._block + 1 - ahead))

    def leave(self, env: Any) -> None:
        """One environment less. Its results should not wait for the others."""
        self._envs.discard(env)
        if self._results:
            self._exchange(0)

    def _exchange(self, n: int) -> None:
        self._n_calls += 1
        # Calls of one caller arrive in their order.
        future = self.server.exchange.remote(self._name, self._n_calls, self._results, n)
        self._results = []
        if n:
            self._calls.append((future, n))


LINES: weakref.WeakValueDictionary[Any, TaskLine] = weakref.WeakValueDictionary()  # of this process, by server


class RemoteTaskEnv(gymnasium.Wrapper):
    """`env` on the tasks of `server`, to which it reports. The environments of one process share their calls.

    Nothing waits for an answer. If the next task has not come after `patience` seconds, because the actor is lost, the
    last one is played again, and a warning says so. `apply` is as in `TaskReceiver`, progress as in `TaskVectorEnv`.
    `close` sends the results that still wait.
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
        self._line = LINES.setdefault(server, TaskLine(server))
        self._line.join(self)
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
            self._line.ended(self.encoding, progress, self._return, self._length)
        return obs, reward, terminated, truncated, info

    def close(self) -> None:
        self._line.leave(self)
        super().close()

    def _next(self) -> Any:
        # At the first episode there is nothing to play instead.
        task = self._line.take(None if self.encoding is None else self.patience)
        if task is None:
            warnings.warn(f"the task server does not answer: task {self.encoding} is played again", stacklevel=3)
            return self.encoding
        return task

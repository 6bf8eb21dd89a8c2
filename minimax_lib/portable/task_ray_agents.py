"""Parallel environments of PettingZoo in many processes, whose tasks Ray actors choose.

env = RemoteParallelEnv(env, server, space, as_option)          in each worker
env = ParallelPettingZooEnv(env)                                RLlib's own: the same as a MultiAgentEnv
"""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from minimax_lib.portable.encodings import gathered, messages
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.task_pettingzoo import TaskParallelEnv
from minimax_lib.portable.task_ray import LINES, PATIENCE, TaskLine, config_of_rllib
from minimax_lib.portable.task_receiver import as_seed
from minimax_lib.portable.task_vector import Progress


class RemoteHost:
    """Stands for the `Host` of `server` in the process of an environment. All of a process share their calls.

    If tasks do not come within `patience` seconds, the last ones are played again, and a warning says so.
    """

    reads_scores = False

    def __init__(self, server: Any, space: Any, patience: float = PATIENCE):
        self.space, self.patience = space, patience
        self.n_tasks = 1  # that are played at once
        self.encoding = EvaluationHost(space).encoding
        self.attempts: Any = None
        self._line = LINES.setdefault(server, TaskLine(server))
        self._line.join(self)
        self._last: list[Any] = []

    def draw(self, n: int) -> Any:
        """The encodings [n, ...] of the next tasks."""
        self.n_tasks = n
        taken = [self._line.take(self.patience if len(self._last) == n else None) for _ in range(n)]
        for i, task in enumerate(taken):
            if task is None:
                warnings.warn(f"the task server does not answer: task {self._last[i]} is played again", stacklevel=4)
                taken[i] = self._last[i]
        self._last = taken
        return gathered(taken, self.encoding)

    def decode(self, tasks: Any) -> list[Any]:
        """What an environment takes, of encodings [n, ...]."""
        return [self.space.decode(task) for task in messages(tasks)]

    def report(self, task: Any, progress: Any, returns: Any, length: Any, **told: Any) -> None:
        """These attempts [M] have ended."""
        for one in zip(messages(task), progress, returns, length, strict=True):
            self._line.ended(one[0], float(one[1]), float(one[2]), int(one[3]))

    def evaluation(self, tasks: Any = None, seed: int = 0) -> EvaluationHost:
        """As `Host.evaluation`."""
        return EvaluationHost(self.space, tasks, seed)

    def throw_away(self, n_calls: int) -> None:
        """Another environment of the process has failed. What is reported here has been sent already."""

    def close(self) -> None:
        """The results that still wait are sent."""
        self._line.leave(self)


class RemoteParallelEnv(TaskParallelEnv):
    """`env` on the tasks of `server`, to which it reports: a `TaskParallelEnv` for the workers of Ray.

    With `per_agent`, each agent has a task. A dict of servers by agent, and one of spaces, gives each agent a
    curriculum of its own. With `evaluates`, the tasks are those of an `EvaluationHost`, and no server is told anything;
    by default, it is True in the evaluation workers of RLlib. `close` sends the results that still wait.
    """

    def __init__(
        self,
        env: Any,
        server: Any,
        space: Any,
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        per_agent: bool = False,
        progress: Progress | None = None,
        evaluates: bool | None = None,
    ):
        self.env = env  # `config_of_rllib` asks this wrapper for an attribute, and it asks `env`
        if evaluates is None:
            rllib = config_of_rllib()
            evaluates = rllib is not None and rllib.in_evaluation
        servers, spaces = (x if isinstance(x, Mapping) else {None: x} for x in (server, space))
        if servers.keys() != spaces.keys():
            raise ValueError(f"server is given for {list(servers)}, space for {list(spaces)}: they must agree")
        hosts: dict[Any, Any] = {
            agent: EvaluationHost(spaces[agent]) if evaluates else RemoteHost(own, spaces[agent])
            for agent, own in servers.items()
        }
        self._remote = [host for host in hosts.values() if isinstance(host, RemoteHost)]
        super().__init__(env, hosts if isinstance(server, Mapping) else hosts[None], apply, per_agent, progress)

    def close(self) -> None:
        for host in self._remote:
            host.close()
        super().close()

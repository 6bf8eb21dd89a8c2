"""Parallel environments of PettingZoo, whose tasks a `Host` chooses at every reset."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pettingzoo.utils import BaseParallelWrapper

from minimax_lib.portable.books import Books
from minimax_lib.portable.encodings import rows_of
from minimax_lib.portable.host import Host
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.task_receiver import as_seed
from minimax_lib.portable.task_vector import Progress


class TaskParallelEnv(BaseParallelWrapper):
    """`env` with one task for all agents, or with `per_agent`, one for each. The user's own loop resets it.

    `apply(task)` gives the arguments of `env.reset`; with `per_agent`, the task is a dict of tasks by agent. An attempt
    ends when no agent is left, or with `per_agent`, at the agent's own end. Of one task for all, the return and the
    progress are the means over the agents. Progress is `infos[agent]["progress"]` in an agent's last step where the
    environment has it, or else `progress(returns, terminated)`.
    """

    def __init__(
        self,
        env: Any,
        host: Host,
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        per_agent: bool = False,
        progress: Progress | None = None,
    ):
        super().__init__(env)
        self.host, self.apply, self.per_agent = host, apply, per_agent
        self.progress = progress or Solved()
        self._numbers = {agent: i for i, agent in enumerate(env.possible_agents)}
        self._books = Books(len(self._numbers))
        self._tasks: Any = None  # encodings, of all agents or one for all
        self._reached = np.zeros(len(self._numbers), np.float32)
        self._totals, self._length = np.zeros(len(self._numbers)), 0
        self.n_begun = self.n_ended = 0  # attempts

    @property
    def tasks(self) -> dict[Any, Any]:
        """The encoding of each agent's task."""
        return {agent: rows_of(self._tasks, i if self.per_agent else 0) for agent, i in self._numbers.items()}

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """Begins an episode on new tasks; an episode under way is given up."""
        n = len(self._numbers) if self.per_agent else 1
        self._tasks = self.host.draw(n)
        self.n_begun += n
        self._books.clear(slice(None))
        self._reached[:] = 0
        self._totals[:], self._length = 0, 0
        decoded = self.host.decode(self._tasks)
        task = dict(zip(self._numbers, decoded, strict=True)) if self.per_agent else decoded[0]
        arguments = dict(self.apply(task))
        given = dict(options or {}) | dict(arguments.pop("options", {}))
        return self.env.reset(**({"seed": seed, "options": given or None} | arguments))

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """As `env.step`, after which the attempts have been reported that have ended."""
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        n = len(self._numbers)
        reward, plays, ended, done = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        has, given = np.zeros(n, bool), np.zeros(n, np.float32)
        for agent, i in self._numbers.items():
            if agent in rewards:  # an agent that is dead has left the dicts
                reward[i], plays[i] = rewards[agent], True
                ended[i], done[i] = terminated[agent] or truncated[agent], terminated[agent]
                has[i] = "progress" in infos[agent]
                given[i] = infos[agent].get("progress", 0)
        self._books.add(reward, plays)
        self._length += 1
        if ended.any():
            self._end(ended, done, has, given)
        return obs, rewards, terminated, truncated, infos

    def _end(self, ended: np.ndarray, terminated: np.ndarray, has: np.ndarray, given: np.ndarray) -> None:
        """The agents `ended` (bool[A]) play no more."""
        told = self._books.ended(ended)
        reached = np.where(has[ended], given[ended], self.progress(told["returns"], terminated[ended]))
        if self.per_agent:
            self.n_ended += int(ended.sum())
            self.host.report(rows_of(self._tasks, ended), reached, **told)
            return
        self._reached[ended], self._totals[ended] = reached, told["returns"]
        if not self.env.agents:
            self.n_ended += 1
            mean = np.array([self._totals.mean()])
            self.host.report(self._tasks, [self._reached.mean()], mean, [self._length], episode_return=mean)

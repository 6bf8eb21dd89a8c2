"""Parallel environments of PettingZoo, whose tasks a `Host` chooses at every reset."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from pettingzoo import AECEnv
from pettingzoo.utils import BaseParallelWrapper

from minimax_lib.portable.attempts import AttemptLedger
from minimax_lib.portable.encodings import joined, n_rows, rows_of
from minimax_lib.portable.host import Host
from minimax_lib.portable.numbers import checked
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.row_tasks import AnyHost
from minimax_lib.portable.task_receiver import as_seed, reset_arguments
from minimax_lib.portable.task_vector import Progress


class TaskParallelEnv(BaseParallelWrapper):
    """`env` with one task for all agents, or with `per_agent`, one for each. The user's own loop resets it.

    A dict of hosts by agent gives each agent a curriculum of its own, and so a task of its own.

    `apply(task)` gives the arguments of `env.reset`; with `per_agent`, the task is a dict of tasks by agent. With
    `per_agent`, an attempt ends at the agent's own end. Otherwise it ends when all agents that have played are at their
    ends, and its return and its progress are the means over these agents. Progress is `infos[agent]["progress"]` in an
    agent's last step where the environment has it, or else `progress(returns, terminated)`. What an agent is given
    after its end does not count.
    """

    def __init__(
        self,
        env: Any,
        host: AnyHost | Mapping[Any, AnyHost],
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        per_agent: bool = False,
        progress: Progress | None = None,
    ):
        check_parallel(env)
        super().__init__(env)
        self.host, self.apply, self.per_agent = host, apply, per_agent or isinstance(host, Mapping)
        self.progress = progress or Solved()
        self._numbers = {agent: i for i, agent in enumerate(env.possible_agents)}
        n = len(self._numbers)
        self._attempts = AttemptLedger(n)  # one for each agent
        if not isinstance(host, Mapping):
            host.attempts = self._attempts
        elif host.keys() != self._numbers.keys():
            raise ValueError(f"hosts are given for {list(host)}: there must be one for each of {list(self._numbers)}")
        self._tasks: Any = None  # encodings [1, ...] of each agent, or of one task for all
        self._plays = np.zeros(n, bool)  # has been part of the episode
        self._reached, self._totals, self._length = np.zeros(n, np.float32), np.zeros(n), 0
        self.n_begun = self.n_ended = 0  # attempts

    @property
    def tasks(self) -> dict[Any, Any]:
        """The encoding of each agent's task."""
        return {agent: rows_of(self._tasks[i if self.per_agent else 0], 0) for agent, i in self._numbers.items()}

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Any]:
        """Begins an episode on new tasks; an episode under way is given up."""
        self._give_up()
        self._tasks, decoded = self._draw()
        task = dict(zip(self._numbers, decoded, strict=True)) if self.per_agent else decoded[0]
        given = self.env.reset(**reset_arguments(seed, options, self.apply(task)))
        self.n_begun += len(decoded)
        self._attempts.begin(np.ones(len(self._numbers), bool))
        self._plays = np.array([agent in self.env.agents for agent in self._numbers])
        return given

    def step(self, actions: Mapping[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """As `env.step`, after which the attempts have been reported that have ended."""
        if self._tasks is None:
            raise RuntimeError("the agents have no task: call reset before the first step, and after an evaluation")
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        if unknown := sorted(str(agent) for agent in rewards.keys() - self._numbers.keys()):
            raise ValueError(f"the agents {unknown} play, and possible_agents has only {list(self._numbers)}")
        n, is_open = len(self._numbers), self._attempts.is_open
        reward, plays, ended, done = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        has, given = np.zeros(n, bool), np.zeros(n, np.float32)
        for agent, i in self._numbers.items():
            # An agent that is dead has left the dicts, or stays in them.
            if agent in rewards and is_open[i]:
                reward[i], plays[i] = rewards[agent], True
                done[i] = terminated.get(agent, False)
                ended[i] = done[i] or truncated.get(agent, False)
                info = infos.get(agent) or {}
                has[i], given[i] = "progress" in info, info.get("progress", 0)
        if not self.env.agents:  # the episode is over, whatever the flags say
            ended = ended | (self._plays | plays) & is_open
        self._attempts.step(reward, plays)
        self._plays |= plays
        self._length += bool(is_open.any())
        if ended.any():
            self._end(ended, done, has, given)
        return obs, rewards, terminated, truncated, infos

    @contextlib.contextmanager
    def evaluating(self, tasks: Any = None) -> Iterator[None]:
        """See `TaskVectorEnv.evaluating`. Of several hosts, `tasks` may be a dict by agent."""
        training = self.host, self._attempts, self.n_begun, self.n_ended
        evaluation = evaluation_of(self.host, tasks)
        self._give_up()
        self.host, self._attempts = evaluation, AttemptLedger(len(self._numbers))
        try:
            yield
        finally:
            self._give_up()
            self.host, self._attempts, self.n_begun, self.n_ended = training

    def _draw(self) -> tuple[list[Any], list[Any]]:
        """(encodings [1, ...], tasks) of each agent, or of one task for all."""
        if isinstance(self.host, Mapping):
            drawn = [self.host[agent].draw(1) for agent in self._numbers]
            hosts = [self.host[agent] for agent in self._numbers]
            return drawn, [host.decode(task)[0] for host, task in zip(hosts, drawn, strict=True)]
        together = self.host.draw(len(self._numbers) if self.per_agent else 1)
        drawn = [rows_of(together, slice(i, i + 1)) for i in range(n_rows(together))]
        return drawn, self.host.decode(together)

    def _give_up(self) -> None:
        for agent, host in self.host.items() if isinstance(self.host, Mapping) else ():
            # An attempt that has ended may wait for its score still: the values of its last steps come later.
            if isinstance(host, Host) and self._attempts.is_open[self._numbers[agent]]:
                host.give_up()
        self._attempts.give_up(np.ones(len(self._numbers), bool))
        self._tasks = None
        self._reached[:], self._totals[:], self._length = 0, 0, 0

    def _end(self, ended: np.ndarray, terminated: np.ndarray, has: np.ndarray, given: np.ndarray) -> None:
        """The agents `ended` (bool[A]) play no more."""
        told = self._attempts.end(ended)
        reached = np.where(has[ended], given[ended], self.progress(told["returns"], terminated[ended]))
        if self.per_agent:
            self.n_ended += int(ended.sum())
            self._report(np.flatnonzero(ended), reached, told)
            return
        self._reached[ended], self._totals[ended] = checked("progress", reached, None, 0, 1), told["returns"]
        if not (self._plays & self._attempts.is_open).any():
            self._attempts.give_up(~self._plays)  # they have never played
            self.n_ended += 1
            reached, mean = self._reached[self._plays].mean(), self._totals[self._plays].mean()
            host: Any = self.host
            host.report(self._tasks[0], [reached], [mean], [self._length], episode_return=[mean])

    def _report(self, rows: np.ndarray, reached: np.ndarray, told: dict[str, Any]) -> None:
        """The attempts of these agents (i32[M]) have ended, each of which has its own task."""
        if not isinstance(self.host, Mapping):
            self.host.report(joined([self._tasks[i] for i in rows]), reached, **told)
            return
        agents = list(self._numbers)
        for place, i in enumerate(rows):
            own = {name: x[place : place + 1] if np.ndim(x) else x for name, x in told.items()}
            self.host[agents[i]].report(self._tasks[i], reached[place : place + 1], **own)


def evaluation_of(host: Any, tasks: Any) -> Any:
    """What takes the place of a host, or of a dict of hosts by agent, during an evaluation."""
    if not isinstance(host, Mapping):
        return host.evaluation(tasks)
    chosen = tasks if isinstance(tasks, Mapping) else dict.fromkeys(host, tasks)
    return {agent: own.evaluation(chosen.get(agent)) for agent, own in host.items()}


def check_parallel(env: Any) -> None:
    """ValueError in one line if `env` is not a parallel environment whose agents are known."""
    name = type(env).__name__
    if isinstance(env, AECEnv):
        raise ValueError(
            f"{name} is an AEC environment, whose agents take turns: TaskParallelEnv takes a parallel one, as "
            "pettingzoo.utils.conversions.aec_to_parallel gives"
        )
    if not getattr(env, "possible_agents", None):
        raise ValueError(f"{name} has no possible_agents: give it the list of all agents that may ever play")

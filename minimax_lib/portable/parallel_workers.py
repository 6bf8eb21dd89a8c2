"""Parallel environments of PettingZoo in processes of their own, whose tasks a `Host` in this process chooses.

envs = ParallelWorkers([make_env] * 8, host)
given = envs.reset()                                (observations, infos) of each environment
told = envs.step(actions)                           what each environment's `step` returns
envs.reset([not agents for agents in envs.agents])  the next tasks, where an episode is over
"""

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper

from minimax_lib.portable.encodings import n_rows, rows_of
from minimax_lib.portable.forks import explained
from minimax_lib.portable.numbers import checked_rows
from minimax_lib.portable.row_tasks import AnyHost
from minimax_lib.portable.task_pettingzoo import TaskParallelEnv, evaluation_of
from minimax_lib.portable.task_receiver import as_seed
from minimax_lib.portable.task_vector import Progress

PATIENCE = 5.0  # seconds that a process has to end


class Relay:
    """Stands for a host in the process of an environment: tasks have come with a message, results leave with one."""

    reads_scores = False

    def __init__(self, space: Any):
        self.space = space
        self.tasks: Any = None
        self.results: list[tuple[Any, dict[str, Any]]] = []
        self.attempts: Any = None

    def draw(self, n: int) -> Any:
        return self.tasks

    def decode(self, tasks: Any) -> list[Any]:
        return [self.space.decode(rows_of(tasks, i)) for i in range(n_rows(tasks))]

    def report(self, task: Any, progress: Any, returns: Any, length: Any, **told: Any) -> None:
        self.results.append((task, {"progress": progress, "returns": returns, "length": length} | told))

    def taken(self) -> list[tuple[Any, dict[str, Any]]]:
        """The results since the last message."""
        results, self.results = self.results, []
        return results


class ParallelWorkers:
    """Parallel environments, a process each. Tasks and results travel with the messages, so nothing waits for them.

    `makers` give the environments. `host`, `apply`, `per_agent` and `progress` are those of `TaskParallelEnv`: one task
    for all agents of an environment, one for each, or with a dict of hosts, a curriculum for each. Tasks are drawn and
    results are reported in the order of the environments: the same seed gives the same tasks, however fast each one is.
    `context` is that of `multiprocessing`; environments that use JAX need "forkserver".
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Any]],
        host: AnyHost | Mapping[Any, AnyHost],
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        per_agent: bool = False,
        progress: Progress | None = None,
        context: str | None = None,
    ):
        if not makers:
            raise ValueError("makers is empty: give at least one function that makes an environment")
        self.host, self._is_closed = host, False
        spaces = {agent: own.space for agent, own in host.items()} if isinstance(host, Mapping) else host.space
        started = multiprocessing.get_context(context)
        self._pipes, self._processes = [], []
        for maker in makers:
            ours, theirs = started.Pipe()
            parts: Any = maker, spaces, apply, per_agent, progress
            given = CloudpickleWrapper(parts)
            process = started.Process(target=serve, args=(theirs, given), daemon=True)  # type: ignore[attr-defined]
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self.possible_agents: list[list[Any]] = [self._answer(i) for i in range(len(makers))]
        self._per_row = [len(agents) if per_agent else 1 for agents in self.possible_agents]
        self.agents: list[list[Any]] = [[] for _ in makers]  # that play, by environment
        self.tasks: list[dict[Any, Any]] = [{} for _ in makers]  # the encoding of each agent's task
        self._has_task = np.zeros(len(makers), bool)

    @property
    def num_envs(self) -> int:
        return len(self._pipes)

    def reset(self, rows: Any = None, seed: int | None = None) -> list[Any]:
        """(observations, infos) of the environments `rows` (bool[B]; all), on new tasks; None for the others.

        With a `seed`, environment i is given seed + i, unless the task is its seed.
        """
        chosen = np.flatnonzero(checked_rows("rows", rows, self.num_envs)).tolist()
        given: list[Any] = [None] * self.num_envs
        asked = {i: ("reset", (self._draw(i), None if seed is None else seed + i)) for i in chosen}
        for i, answer in self._answers(asked).items():
            given[i], self.agents[i], self.tasks[i] = answer
            self._has_task[i] = True
        return given

    def step(self, actions: Sequence[Mapping[Any, Any] | None]) -> list[Any]:
        """What `step` returns of each environment, for the actions of its agents. None where the actions are None."""
        if len(actions) != self.num_envs:
            raise ValueError(f"actions has {len(actions)} entries: it must have one for each of {self.num_envs}")
        told: list[Any] = [None] * self.num_envs
        chosen = [i for i, own in enumerate(actions) if own is not None]
        if missing := [i for i in chosen if not self._has_task[i]]:
            raise RuntimeError(f"environments {missing} have no task: call reset before, and after an evaluation")
        answers = self._answers({i: ("step", dict(actions[i] or {})) for i in chosen})
        for i, answer in answers.items():
            told[i], self.agents[i], _ = answer
        for _, _, results in answers.values():
            for agent, (task, numbers) in results:
                host: Any = self.host[agent] if isinstance(self.host, Mapping) else self.host
                host.report(task, **numbers)
        return told

    @contextlib.contextmanager
    def evaluating(self, tasks: Any = None) -> Iterator[None]:
        """See `TaskVectorEnv.evaluating`: begin with `reset`, and call it once more before the training goes on."""
        training = self.host
        self.host = evaluation_of(self.host, tasks)
        self._has_task[:] = False
        try:
            yield
        finally:
            self.host = training
            self._has_task[:] = False

    def close(self) -> None:
        """Ends the processes."""
        self._is_closed = True
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(("close", None))
        for process in self._processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.terminate()

    def _draw(self, i: int) -> Any:
        if isinstance(self.host, Mapping):
            return {agent: host.draw(1) for agent, host in self.host.items()}
        return self.host.draw(self._per_row[i])

    def _answers(self, asked: Mapping[int, tuple[str, Any]]) -> dict[int, Any]:
        """The answers of these environments. If not all can be read, as after Ctrl-C, the processes end.

        An answer that stayed in a pipe would be taken for that of the next call.
        """
        if self._is_closed:
            raise RuntimeError("the processes of the environments have ended: make a new ParallelWorkers")
        try:
            for i, message in asked.items():
                self._pipes[i].send(message)
            return {i: self._answer(i) for i in asked}
        except BaseException:
            self.close()
            raise

    def _answer(self, i: int) -> Any:
        with explained():
            kind, answer = self._pipes[i].recv()
        if kind == "failed":
            self.close()
            raise RuntimeError(f"environment {i} has failed:\n{answer}")
        return answer


def serve(pipe: Any, given: CloudpickleWrapper) -> None:
    """The process of an environment."""
    env: Any = None
    try:
        parts: Any = given.fn
        maker, spaces, apply, per_agent, progress = parts
        relays = {a: Relay(s) for a, s in spaces.items()} if isinstance(spaces, Mapping) else {None: Relay(spaces)}
        host: Any = relays if isinstance(spaces, Mapping) else relays[None]
        env = TaskParallelEnv(maker(), host, apply, per_agent, progress)
        pipe.send(("done", list(env.possible_agents)))
        while True:
            kind, value = pipe.recv()
            if kind == "close":
                break
            answer = _reset(env, relays, value) if kind == "reset" else _step(env, relays, value)
            pipe.send(("done", answer))
    except (EOFError, KeyboardInterrupt):  # the trainer has ended
        pass
    except Exception:
        pipe.send(("failed", traceback.format_exc()))
    finally:
        if env is not None:
            env.close()


def _reset(env: TaskParallelEnv, relays: dict[Any, Relay], value: tuple[Any, int | None]) -> tuple[Any, ...]:
    tasks, seed = value
    for agent, relay in relays.items():
        relay.tasks = tasks if agent is None else tasks[agent]
    given = env.reset(seed=seed)
    return given, list(env.agents), env.tasks


def _step(env: TaskParallelEnv, relays: dict[Any, Relay], actions: dict[Any, Any]) -> tuple[Any, ...]:
    told = env.step(actions)
    results = [(agent, result) for agent, relay in relays.items() for result in relay.taken()]
    return told, list(env.agents), results

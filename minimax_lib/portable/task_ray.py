"""Environments in many processes and on many machines, whose tasks one Ray actor chooses (RLlib, or a loop on Ray).

server = task_server(core, space, seed=0, file="tasks.npz")
env = RemoteTaskEnv(env, server, space)       in each worker; `server` travels in RLlib's env_config
"""

import contextlib
import io
import sys
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray

from minimax_lib.files import UnreadableFile, read_arrays
from minimax_lib.portable.attempts import AttemptLedger
from minimax_lib.portable.encodings import gathered, messages
from minimax_lib.portable.evaluation import EvaluationHost
from minimax_lib.portable.fragments import Fragment, Fragments
from minimax_lib.portable.joint_host import new_host
from minimax_lib.portable.numbers import checked
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.scoring import Scoring
from minimax_lib.portable.task_receiver import (
    END,
    TASK,
    TERMINATED,
    TRUNCATED,
    as_seed,
    check_reserved,
    reset_arguments,
)
from minimax_lib.portable.task_vector import Progress
from minimax_lib.store.files import write_atomically

ATTEMPT = "curriculum_attempt"  # entry of info: a name that no other attempt has
CALLER = "caller/"  # before the names of callers, in the file
MOST_CALLS = 256  # of one caller that may be under way
ONE = np.ones(1, bool)  # all rows of one environment
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
    """The actor: a host (`new_host` says which). It saves itself to `file` after `save_every` results.

    If the actor is lost, Ray starts it again, and it goes on from the file. Calls that were under way are made again,
    and results that are in the file already are not counted twice.
    """

    def __init__(self, core: Any, space: Any, seed: int, scoring: Scoring, file: str | None, save_every: int):
        self.host: Any = new_host(core, space, seed, scoring)
        self._fragments = Fragments(scoring)
        self._file, self._save_every, self._unsaved = file, save_every, 0
        self._calls: dict[str, CallsSeen] = {}  # by caller
        if file is not None and not Path(file).absolute().parent.is_dir():
            raise ValueError(f"file is {file}: its folder does not exist")
        if file is not None and Path(file).exists():
            self._load(file)

    def _load(self, file: str) -> None:
        """Goes on from the file. ValueError in one line if it is damaged, or of another curriculum."""
        try:
            arrays = read_arrays(file)
        except UnreadableFile as error:
            raise ValueError(
                f"{file} cannot be read ({error.why}): it is damaged or unfinished; delete it to begin anew, or give "
                "another file"
            ) from None
        calls = {name.removeprefix(CALLER): arrays.pop(name) for name in list(arrays) if name.startswith(CALLER)}
        for caller, numbers in calls.items():
            if numbers.ndim != 1 or numbers.dtype.kind != "i" or not numbers.size:
                raise ValueError(f"{file}: {CALLER}{caller} is {numbers.dtype}{list(numbers.shape)}: it must be i64[K]")
        try:
            self.host.load_state_dict(arrays)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        self._calls = {caller: CallsSeen(numbers.tolist()) for caller, numbers in calls.items()}

    def exchange(self, caller: str, number: int, results: list[tuple[Any, float, float, int]], n: int) -> list[Any]:
        """The encodings of the next `n` tasks, after these attempts: (task, progress, return, length) each.

        `number` counts the calls of the caller, from 1.
        """
        is_new = self._calls.setdefault(caller, CallsSeen()).add(number)
        if results and is_new:
            tasks, *numbers = zip(*results, strict=True)
            self.host.report(gathered(tasks, self.host.encoding), *numbers)
            self._unsaved += len(results)
        drawn = messages(self.host.draw(n)) if n else []
        if self._file is not None and self._unsaved >= self._save_every:
            self.save(self._file)
            self._unsaved = 0
        return drawn

    def report_fragments(self, fragments: list[Fragment]) -> None:
        """Steps of attempts, from a learner that has their values. A score is made where an attempt ends."""
        if self.host.reads_scores:
            tasks, scores = self._fragments.scores(fragments)
            if tasks:
                self.host.report_scores(gathered(tasks, self.host.encoding), scores)

    def call(self, name: str, *arguments: Any) -> Any:
        """What a method of the `Host` returns: `evaluated`, `report_scores`, `weights`, `metrics`, `state_dict`."""
        return getattr(self.host, name)(*arguments)

    def told(self) -> dict[str, int]:
        """How much was drawn and told."""
        return {"drawn": self.host.n_drawn, **self.host.n_told}

    def save(self, file: str) -> None:
        """The state of the host, whole or not at all."""
        content = io.BytesIO()
        calls = {f"{CALLER}{name}": np.array(sorted(seen.numbers)) for name, seen in self._calls.items()}
        np.savez(content, **self.host.state_dict(), **calls)  # type: ignore[arg-type]
        write_atomically(Path(file), content.getvalue())


def task_server(
    core: Any,
    space: Any = None,
    seed: int = 0,
    scoring: Scoring | None = None,
    file: str | None = None,
    save_every: int = 100,
) -> Any:
    """The handle of a `TaskServer`. Without a `file`, a lost actor begins anew.

    `core` is a curriculum of tasks, one of opponents (`space` is then their `Agents`), or a pair of both (`space` is
    then a `Product` of both, with the names "task" and "opponent").
    """
    settings: dict[str, Any] = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
    settings |= {"runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu"}}}  # the trainer's GPU is not for it
    actor = ray.remote(TaskServer).options(**settings)
    return actor.remote(core, space, seed, scoring or Scoring(), file, save_every)


class TaskLine:
    """The part that the environments of one process share: tasks that came from `server`, and results that go to it.

    One call brings as many tasks as it takes results. Ray's price is that of a call, whatever is in it: so they are
    made for half of the environments at once. A task is chosen about one episode before it is played.
    """

    def __init__(self, server: Any):
        self.server = server
        self._name, self._n_calls = uuid.uuid4().hex, 0
        # Some are dropped and never closed. Each plays `n_tasks` at once.
        self._envs: weakref.WeakSet[Any] = weakref.WeakSet()
        self._tasks: deque[Any] = deque()
        self._results: list[tuple[Any, float, float, int]] = []
        self._calls: deque[tuple[Any, int]] = deque()  # under way, and how many tasks each will bring

    @property
    def _n_rows(self) -> int:
        return sum(env.n_tasks for env in self._envs)

    @property
    def _block(self) -> int:
        return max(1, self._n_rows // 2)

    def join(self, env: Any) -> None:
        """An environment joins."""
        self._envs.add(env)

    def take(self, patience: float | None) -> Any:
        """The next task, or none if it does not come within `patience` seconds; without them, it waits for ever."""
        if not self._tasks:
            if not self._calls:
                self._exchange(self._n_rows + self._block)
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

    def failed(self, n_calls: int) -> None:
        """An environment has failed in its call number `n_calls`."""
        for env in self._envs:
            env.throw_away(n_calls)

    def leave(self, env: Any) -> None:
        """An environment leaves. Its results should not wait for the others."""
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

    With `evaluates`, its tasks are those of an `EvaluationHost`, and the server is told nothing. By default, it is True
    in the evaluation workers of RLlib. The infos say which task is played, for `TaskScores`. In RLlib, a result waits
    for the next call of its environment: if another environment of the worker fails in the same step, RLlib throws this
    step away, and the result with it.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        server: Any,
        space: Any,
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        progress: Progress | None = None,
        patience: float = PATIENCE,
        evaluates: bool | None = None,
    ):
        super().__init__(env)
        self.n_tasks = 1  # that are played at once
        self.server, self.space, self.apply = server, space, apply
        self.progress, self.patience = progress or Solved(), patience
        self.encoding: Any = None  # of the attempt under way
        rllib = config_of_rllib()
        if evaluates is None:
            evaluates = rllib is not None and rllib.in_evaluation
        self._evaluation = EvaluationHost(space) if evaluates else None
        self._line = LINES.setdefault(server, TaskLine(server))
        if not evaluates:
            self._line.join(self)
        self._attempt = AttemptLedger(1)
        self._waits_for_next_call = rllib is not None
        self._result: tuple[Any, float, float, int] | None = None  # that is not sent yet
        self._n_calls = self._ended_in = self._n_attempts = 0
        self._name = uuid.uuid4().hex

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode on the next task. An attempt under way is given up."""
        self._send_result()
        self._attempt.give_up(ONE)
        self.encoding = self._next()
        arguments = reset_arguments(seed, options, self.apply(self.space.decode(self.encoding)))
        obs, info = self._called(lambda: self.env.reset(**arguments))
        self._attempt.begin(ONE)
        self._n_attempts += 1
        return obs, self._told(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As `env.step`. What comes after the end of an attempt does not count."""
        self._send_result()
        obs, reward, terminated, truncated, info = self._called(lambda: self.env.step(action))
        self._attempt.step(float(reward))
        if (terminated or truncated) and self._attempt.is_open[0]:
            told = self._attempt.end(ONE)
            reached = self.progress(told["returns"], np.array([bool(terminated)]))[0]
            progress = float(checked("progress", info.get("progress", reached), (), 0, 1))
            self._result = self.encoding, progress, float(told["returns"][0]), int(told["length"][0])
            self._ended_in = self._n_calls
            if not self._waits_for_next_call:
                self._send_result()
            info = dict(info) | {END: TERMINATED if terminated else TRUNCATED}
        return obs, reward, terminated, truncated, self._told(info)

    @contextlib.contextmanager
    def evaluating(self, tasks: Any = None) -> Iterator[None]:
        """Within it, the tasks are those of an `EvaluationHost`, and the server gets no results.

        The attempt under way is given up, so call `reset` at the beginning, and once more before the training goes on.
        """
        training, evaluation = self._evaluation, EvaluationHost(self.space, tasks)
        self._send_result()
        self._attempt.give_up(ONE)
        self._evaluation = evaluation
        try:
            yield
        finally:
            self._attempt.give_up(ONE)
            self._evaluation, self._result = training, None

    def close(self) -> None:
        self._send_result()
        self._line.leave(self)
        super().close()

    def throw_away(self, n_calls: int) -> None:
        """Another environment failed in its call number `n_calls`. What ended here in the same call does not count."""
        if self._ended_in == n_calls:
            self._result = None

    def _called(self, function: Callable[[], Any]) -> Any:
        self._n_calls += 1
        try:
            return function()
        except Exception:
            if self._evaluation is None:
                self._line.failed(self._n_calls)
            raise

    def _told(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Infos that say what is played: a learner sees only the infos, and perhaps of the middle of an episode."""
        check_reserved(info, (TASK, ATTEMPT), "infos")
        if self._evaluation is not None:
            return dict(info)
        return dict(info) | {TASK: self.encoding, ATTEMPT: f"{self._name}/{self._n_attempts}"}

    def _send_result(self) -> None:
        result, self._result = self._result, None
        if result is not None and self._evaluation is None:
            self._line.ended(*result)

    def _next(self) -> Any:
        if self._evaluation is not None:
            return messages(self._evaluation.draw(1))[0]
        # At the first episode there is nothing to play instead.
        task = self._line.take(None if self.encoding is None else self.patience)
        if task is None:
            warnings.warn(f"the task server does not answer: task {self.encoding} is played again", stacklevel=3)
            return self.encoding
        return task


def config_of_rllib() -> Any:
    """The configuration of the worker of RLlib that makes the environment; none outside of RLlib.

    RLlib does not tell an environment that it evaluates. So this looks for the worker among the callers.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        config = getattr(frame.f_locals.get("self"), "config", None)
        if isinstance(getattr(config, "in_evaluation", None), bool):
            return config
        frame = frame.f_back
    return None

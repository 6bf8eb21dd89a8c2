"""The environment's side: one Gymnasium environment that takes its tasks from its actions."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minimax_lib.opponents.bank import LIVE
from minimax_lib.portable.numbers import MOST
from minimax_lib.tasks.spaces import Product

TASK, END = "curriculum_task", "curriculum_end"  # entries of info: the task that an episode begins with; how it ended
TASKS, HOLDS = "curriculum_tasks", "curriculum_holds"  # entries of the options of reset
TERMINATED, TRUNCATED = 1, 2


def as_seed(task: Any) -> dict[str, Any]:
    """The arguments of `reset` where a task is a seed."""
    return {"seed": int(task)}


def as_option(task: Any) -> dict[str, Any]:
    """The arguments of `reset` where a task is `options["task"]`."""
    return {"options": {"task": task}}


class TaskReceiver(gymnasium.Wrapper):
    """`env` with tasks: the outermost wrapper of each of the environments of a vector environment.

    `index` is the environment's number in it; the adaptor gives these numbers itself to the environments of Gymnasium
    and of Stable-Baselines3, so there it may be None. An action is (action, encoding of a task, or none); tasks are
    taken in the order in which they came. `apply(task)` gives the arguments of `env.reset` (`as_seed`, `as_option`).
    Where an episode holds several attempts, `info["attempt_ended"]` says that one has ended, and `change(env, task)`
    puts the next task in its place: it returns the observation that follows, or none to keep the one there is. With
    `show`, the encoding is the entry "task" of the observation; a table f32[N, E] is shown instead of a task's number.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        index: int | None,
        space: Any,
        apply: Callable[[Any], Mapping[str, Any]] = as_seed,
        change: Callable[[Any, Any], Any] | None = None,
        show: bool | np.ndarray = False,
    ):
        super().__init__(env)
        self.index, self.space, self.apply, self.change = index, space, apply, change
        self.encodings = encoding_space(space)
        message = Message(self.encodings) if isinstance(self.encodings, spaces.Tuple) else self.encodings
        self.action_space = spaces.Tuple((env.action_space, message))
        self._table = None if isinstance(show, bool) else np.asarray(show, np.float32)
        self._shows = self._table is not None or bool(show)
        if self._shows:
            parts = beside(env.observation_space)
            if "task" in parts:
                raise ValueError(
                    "show puts the task into the observation as 'task', and the environment has an entry 'task' of its "
                    "own: rename it, or leave out show"
                )
            self.observation_space = spaces.Dict(parts | {"task": self._shown_space()})
        self._passes = not self._shows and change is None  # steps in the middle of an episode are handed on
        self._tasks: deque[Any] = deque()  # that have come and are not taken
        self._holds = False  # an episode's end is told of in info, and the next action opens the next episode
        self._over = False
        self._is_open = False  # an episode is under way
        self.encoding: Any = None  # of the attempt under way

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode on the next task. The adaptor's options have the first one of every environment."""
        options = dict(options or {})
        if HOLDS in options:
            self._holds, self._over = options.pop(HOLDS), False
            self._tasks.clear()
            self._tasks.append(options.pop(TASK) if TASK in options else self._own_of(options.pop(TASKS)))
        elif self._is_open:
            raise RuntimeError(
                "an environment was reset in the middle of an attempt. Either something has called its reset, such as "
                "env_method or call: call that of TaskVectorEnv or TaskVecEnv. Or a wrapper around TaskReceiver has "
                "ended the episode, such as TimeLimit: make TaskReceiver the last wrapper of each environment"
            )
        if not self._tasks:
            raise ValueError("reset without a task: wrap the vector environment in TaskVectorEnv, or in TaskVecEnv")
        return self._begin(seed, options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As `env.step`."""
        own, encoding = action
        if encoding is not None:
            self._tasks.append(encoding)
        if self._over:
            self._over = False
            obs, info = self._begin(None, {})
            return obs, 0.0, False, False, info
        told = self.env.step(own)
        obs, reward, terminated, truncated, info = told
        if "progress" in info:
            info = with_progress(info)
            told = obs, reward, terminated, truncated, info
        ended = terminated or truncated
        if self._passes and not ended:  # most steps: what a curriculum costs is what stands above
            return told
        self._is_open = not ended
        if self._shows:  # asked here and not inside: most steps then make no call of ours
            obs = self._with_task(obs)  # of the attempt that this step belongs to, if it is its last
        if not ended and self.change is not None and info.get("attempt_ended"):
            self.encoding = self._tasks.popleft()
            changed = self.change(self.env, self.space.decode(self.encoding))
            obs = self._with_task(changed if changed is not None else self._plain(obs))
            info = dict(info) | {TASK: self.encoding}
        if ended and self._holds:
            check_reserved(info, (END,), "infos")
            self._over = True
            how = TERMINATED * bool(terminated) + TRUNCATED * bool(truncated)
            return obs, reward, False, False, dict(info) | {END: how}
        return obs, reward, terminated, truncated, info

    def _begin(self, seed: int | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._is_open, self.encoding = False, self._tasks.popleft()
        arguments = self.apply(self.space.decode(self.encoding))
        obs, info = self.env.reset(**reset_arguments(seed, options, arguments))
        self._is_open = True
        check_reserved(info, (TASK,), "infos")
        info = with_progress(info) if "progress" in info else info
        return self._with_task(obs), dict(info) | {TASK: self.encoding}

    def _own_of(self, tasks: Any) -> Any:
        if self.index is None:
            raise ValueError("index is None, and this vector environment numbers no rows: give TaskReceiver its row")
        return tasks[self.index]

    def _with_task(self, obs: Any) -> Any:
        if not self._shows:
            return obs
        shown = self.encoding if self._table is None else self._table[self.encoding]
        return beside(obs) | {"task": shown}

    def _plain(self, obs: Any) -> Any:
        """Without the task."""
        if not self._shows:
            return obs
        rest = {name: part for name, part in obs.items() if name != "task"}
        return rest if isinstance(self.env.observation_space, spaces.Dict) else rest["observation"]

    def _shown_space(self) -> spaces.Space:
        if self._table is None:
            return self.encodings
        if self._table.ndim != 2 or len(self._table) != self.space.n:
            raise ValueError(f"show is {list(self._table.shape)}: a table needs a row for each of {self.space.n} tasks")
        return spaces.Box(-np.inf, np.inf, self._table.shape[1:], np.float32)


def reset_arguments(seed: int | None, options: Mapping[str, Any] | None, of_task: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `env.reset`: the trainer's, and those in which the task is. ValueError for an option twice."""
    if not isinstance(of_task, Mapping):
        raise ValueError(f"apply gave {of_task!r}: it must give the arguments of reset, such as {{'seed': 3}}")
    options, own = dict(options or {}), dict(of_task)
    chosen = dict(own.pop("options", None) or {})
    check_reserved(options, chosen, "the options of reset")
    return {"seed": seed, "options": options | chosen or None} | own


def check_reserved(given: Mapping[str, Any], reserved: Iterable[str], where: str) -> None:
    """ValueError for a name that the task curriculum needs for itself."""
    for name in reserved:
        if name in given:
            raise ValueError(f"{where}: {name!r} is given already, and the task curriculum gives it: leave it out")


def with_progress(info: Mapping[str, Any]) -> dict[str, Any]:
    """The info with its progress as a float, on every step that has one.

    Gymnasium makes an array in the type of the first row that has the entry: beside a row with the int 0, 0.5 became 0.
    """
    try:
        return {**info, "progress": float(info["progress"])}
    except (TypeError, ValueError):
        raise ValueError(f"progress is {info['progress']!r}: it must be a finite number from 0 to 1") from None


def beside(obs: Any) -> dict[str, Any]:
    """An observation, or a space of them, as a dict that has room for the task."""
    if isinstance(obs, spaces.Dict):
        return dict(obs.spaces)
    return dict(obs) if isinstance(obs, dict) else {"observation": obs}


class Message(spaces.Space):
    """The encodings of a product as part of an action.

    A vector environment takes the messages of its rows one by one. It would take a `Tuple` of Gymnasium apart, where a
    row may have none.
    """

    def __init__(self, encodings: spaces.Tuple):
        super().__init__()
        self.encodings = encodings

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return self.encodings.sample()

    def contains(self, x: Any) -> bool:
        return self.encodings.contains(x)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Message) and self.encodings == other.encodings


def encoding_space(space: Any) -> spaces.Space:
    """The encodings of a task space, as a space of Gymnasium."""
    if space.n is not None:
        return spaces.Discrete(space.n)
    if isinstance(space, Product):
        return spaces.Tuple([encoding_space(part) for part in space.spaces])
    if space.shape == ():  # numbers without an end: the serials of opponents, LIVE among them
        return spaces.Discrete(MOST, start=LIVE)
    return spaces.Box(np.asarray(space.low, np.float32), np.asarray(space.high, np.float32), dtype=np.float32)

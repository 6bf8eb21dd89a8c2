"""The trainer's side: Gymnasium vector environments whose tasks a `Host` chooses."""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space, iterate
from jax.tree import leaves as tree_leaves

from minimax_lib.portable import encodings
from minimax_lib.portable.forks import explained
from minimax_lib.portable.numbers import checked_rows
from minimax_lib.portable.progress import Solved
from minimax_lib.portable.row_tasks import AnyHost, RowTasks, evaluating
from minimax_lib.portable.task_receiver import (
    END,
    HOLDS,
    TASK,
    TASKS,
    TERMINATED,
    TRUNCATED,
    check_reserved,
    reset_arguments,
)

ENOUGH = 4  # different tasks whose equal observations are no accident
Progress = Callable[[np.ndarray, np.ndarray], np.ndarray]


class TaskVectorEnv(VectorWrapper):
    """`envs`, each of which is a `TaskReceiver`, with tasks from `host`. The trainer sees plain actions.

    Tasks travel with the actions. Their results are counted here: an attempt's progress is `info["progress"]`
    where the environment has it, or else `progress(returns, terminated)`. In the mode SameStep, a task is chosen when
    the attempt before it begins. In the other modes, it is chosen when that attempt has ended. With `within_episodes`,
    episodes hold several attempts (`TaskReceiver.change`), and every task is chosen one attempt ahead.
    """

    def __init__(
        self,
        envs: VectorEnv,
        host: AnyHost,
        progress: Progress | None = None,
        within_episodes: bool = False,
    ):
        super().__init__(envs)
        if not isinstance(envs.single_action_space, spaces.Tuple):
            raise ValueError("the environments take no tasks: wrap each of them in TaskReceiver first")
        self.single_action_space = envs.single_action_space[0]
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.host, self.progress = host, progress or Solved()
        self.mode = AutoresetMode(envs.metadata["autoreset_mode"])
        if self.mode is AutoresetMode.NEXT_STEP and isinstance(envs, VectorWrapper):
            name = type(envs).__name__
            raise ValueError(
                f"TaskVectorEnv is around {name}, which would see no episode end in the mode NextStep: put {name} "
                "around TaskVectorEnv"
            )
        chosen: dict[Any, Any] = {AutoresetMode.SAME_STEP: "ahead", AutoresetMode.NEXT_STEP: "at_end"}
        self.rows = RowTasks(host, self.num_envs, "ahead" if within_episodes else chosen.get(self.mode, "at_reset"))
        self._within_episodes = within_episodes
        self._opens = np.zeros(self.num_envs, bool)  # the next step opens an episode
        self._compares = True  # at the first reset
        if isinstance(envs.unwrapped, AsyncVectorEnv | SyncVectorEnv):  # neither tells its environments their rows
            envs.unwrapped.set_attr("index", list(range(self.num_envs)))

    @property
    def tasks(self) -> Any:
        """The encodings of the tasks that the next actions are for."""
        return self.rows.task

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins attempts on new tasks: on all rows, or on those of `options["reset_mask"]`."""
        options = dict(options or {})
        mask = checked_rows("reset_mask", options.get("reset_mask"), self.num_envs)
        if "reset_mask" in options:
            options["reset_mask"] = mask.copy()
        check_reserved(options, (TASKS, HOLDS), "the options of reset")
        options |= {TASKS: self.rows.reset(mask), HOLDS: self.mode is AutoresetMode.NEXT_STEP}
        self._opens &= ~mask
        with explained():
            obs, infos = self.env.reset(seed=seed, options=options)
        self.rows.check_all_said(infos, TASK)
        self.rows.check(infos.get(TASK), infos.get(f"_{TASK}"))
        if self._compares:
            self._compares = False
            warn_of_equal_tasks(obs, self.rows.task)
        return obs, infos

    def evaluating(self, tasks: Any = None) -> contextlib.AbstractContextManager[None]:
        """`with envs.evaluating():` its episodes are not part of the training. The host gives no task and gets nothing.

        The tasks are those of an `EvaluationHost`. Attempts under way are given up, so call `reset` at the beginning,
        and once more before the training goes on.
        """
        return evaluating(self, tasks)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As `envs.step`, after which the results have been reported."""
        with explained():
            obs, reward, terminated, truncated, infos = self.env.step((actions, self.rows.sent()))
        counts = ~self._opens
        if self.mode is AutoresetMode.NEXT_STEP:
            # The receivers keep the ends of episodes to themselves, so that each can wait for its next task.
            how = infos.pop(END, np.zeros(self.num_envs, int))
            infos.pop(f"_{END}", None)
            terminated, truncated = how & TERMINATED > 0, how & TRUNCATED > 0
        done = terminated | truncated
        ended = done | flagged(infos, "attempt_ended") & counts if self._within_episodes else done
        self.rows.step(reward, ended, counts)
        self._opens = done if self.mode is AutoresetMode.NEXT_STEP else self._opens
        if ended.any():
            told = infos.get("final_info", {}) if self.mode is AutoresetMode.SAME_STEP else infos
            self.rows.report(ended, done, terminated, self.progress, merged(told, infos, done))
        self.rows.check(infos.get(TASK), infos.get(f"_{TASK}"))
        return obs, reward, terminated, truncated, infos

    def report_rollout(self, value: Any, last_value: Any, reward: Any = None, logits: Any = None) -> Any:
        """Scores of the last T steps: `value` [T, B] of the observations before them, `last_value` [B] after them.

        `reward` [T, B] is what the trainer has made of the rewards, if it has changed them. Returns bool[T, B], the
        steps to learn from, if the curriculum leaves some out (`RobustPLR`), and otherwise None.
        """
        return self.rows.report_rollout(value, last_value, reward, logits)


class TaskResets(VectorWrapper):
    """Vector environments that are one object, as those in C or JAX, with tasks from `host`.

    `envs` is in the mode Disabled, and takes its tasks at a reset: `options(tasks)` gives the options that stand beside
    `reset_mask`, for the encodings of all rows. The trainer sees the mode SameStep: an episode that has ended is
    followed by the next in the same step. Every task is chosen when the attempt before it has ended.
    """

    def __init__(
        self,
        envs: VectorEnv,
        host: AnyHost,
        options: Callable[[Any], Mapping[str, Any]],
        progress: Progress | None = None,
    ):
        super().__init__(envs)
        mode = AutoresetMode(envs.metadata["autoreset_mode"])
        if mode is not AutoresetMode.DISABLED:
            raise ValueError(f"the autoreset_mode of the environments is {mode.value}: it must be Disabled")
        self.metadata = dict(envs.metadata) | {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.host, self.progress, self._options = host, progress or Solved(), options
        self.rows = RowTasks(host, self.num_envs, "at_end")

    @property
    def tasks(self) -> Any:
        """The encodings of the tasks that the next actions are for."""
        return self.rows.task

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins attempts on new tasks, on all rows."""
        options = dict(options or {})
        check_reserved(options, ("reset_mask",), "the options of reset")
        self.rows.reset(np.ones(self.num_envs, bool))
        return self.env.reset(**reset_arguments(seed, options, {"options": self._of_tasks()}))

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As `envs.step`, and then the rows that have ended go on with new tasks."""
        self.rows.sent()
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        done = terminated | truncated
        self.rows.step(reward, done, True)
        if not done.any():
            return obs, reward, terminated, truncated, infos
        self.rows.report(done, done, terminated, self.progress, infos)
        # An environment that writes into its own buffers erases them at the reset.
        reward, terminated, truncated = np.array(reward), np.array(terminated), np.array(truncated)
        infos = infos_copied(infos)
        last = np.full(self.num_envs, None, dtype=object)
        for i, row in enumerate(iterate(self.env.observation_space, obs)):
            last[i] = copied(row) if done[i] else None
        final = {"final_obs": last, "_final_obs": done, "final_info": infos, "_final_info": done}
        obs, fresh = self.env.reset(options={"reset_mask": done.copy()} | self._of_tasks())
        return obs, reward, terminated, truncated, infos_of_rows(infos, fresh, done) | final

    def evaluating(self, tasks: Any = None) -> contextlib.AbstractContextManager[None]:
        """See `TaskVectorEnv.evaluating`."""
        return evaluating(self, tasks)

    def _of_tasks(self) -> dict[str, Any]:
        given = dict(self._options(encodings.copied(self.rows.task)))
        check_reserved(given, ("reset_mask",), "options(tasks)")
        return given

    def report_rollout(self, value: Any, last_value: Any, reward: Any = None, logits: Any = None) -> Any:
        """See `TaskVectorEnv.report_rollout`."""
        return self.rows.report_rollout(value, last_value, reward, logits)


def infos_of_rows(infos: Mapping[str, Any], fresh: Mapping[str, Any], done: np.ndarray) -> dict[str, Any]:
    """The infos of B rows, of which those `done` (bool[B]) have been reset: theirs are in `fresh`.

    An entry that only one of the two has is 0 (None, False) on the other rows. An entry that is not of rows is that of
    `fresh`, where it is there.
    """
    both: dict[str, Any] = {}
    for name in {**infos, **fresh}:
        ours, theirs = infos.get(name), fresh.get(name)
        if isinstance(ours, Mapping) or isinstance(theirs, Mapping):
            both[name] = infos_of_rows(ours or {}, theirs or {}, done)
            continue
        rows = [np.asarray(x) for x in (ours, theirs) if x is not None]
        if not all(x.shape[:1] == done.shape for x in rows):
            both[name] = ours if theirs is None else theirs
            continue
        nothing = np.full_like(rows[0], None) if rows[0].dtype == object else np.zeros_like(rows[0])
        ours, theirs = (nothing if x is None else np.asarray(x) for x in (ours, theirs))
        both[name] = np.where(done.reshape(-1, *[1] * (ours.ndim - 1)), theirs, ours)
    return both


def infos_copied(infos: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of infos with copies of their arrays."""
    return {
        name: infos_copied(x) if isinstance(x, Mapping) else x.copy() if isinstance(x, np.ndarray) else x
        for name, x in infos.items()
    }


def warn_of_equal_tasks(obs: Any, tasks: Any) -> None:
    """A warning if rows with many different tasks [B, ...] see the same [B, ...]: the tasks may not reach them."""
    rows = [str(encodings.rows_of(tasks, i)) for i in range(encodings.n_rows(tasks))]
    leaves = [np.asarray(leaf) for leaf in tree_leaves(obs)]
    if len(set(rows)) >= ENOUGH and all((leaf == leaf[:1]).all() for leaf in leaves):
        warnings.warn(
            f"{len(set(rows))} tasks bring the same first observation: does the environment take notice of them? "
            "(minimax_lib.portable.check.check_tasks tries it out)",
            stacklevel=3,
        )


def flagged(infos: Mapping[str, Any], name: str) -> np.ndarray:
    """bool[B], where an entry of the infos is there and true."""
    return np.asarray(infos[name], bool) & infos.get(f"_{name}", True) if name in infos else np.zeros((), bool)


def merged(told: Mapping[str, Any], infos: Mapping[str, Any], done: np.ndarray) -> dict[str, Any]:
    """The progress and the mask of it: of finished episodes from `told`, of attempts within episodes from `infos`."""
    if told is infos:
        return {name: infos[name] for name in ("progress", "_progress") if name in infos}
    found: dict[str, Any] = {"progress": np.zeros(len(done)), "_progress": np.zeros(len(done), bool)}
    for source, rows in ((told, done), (infos, ~done)):
        if "progress" in source:
            has = rows & source.get("_progress", True)
            found["progress"][has] = np.asarray(source["progress"], float)[has]
            found["_progress"] |= has
    return found


def copied(obs: Any) -> Any:
    """A copy of an observation."""
    if isinstance(obs, dict):
        return {name: copied(part) for name, part in obs.items()}
    return tuple(map(copied, obs)) if isinstance(obs, tuple) else np.array(obs)

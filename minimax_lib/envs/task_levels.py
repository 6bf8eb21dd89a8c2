"""Levels that say which task of a list they are, and an observation that shows it."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import EnvState, Level, TimeStep
from minimax_lib.envs.levels import level_of_list, listed_level
from minimax_lib.envs.spaces import Box, Dict, Space
from minimax_lib.envs.wrappers import Wrapped, Wrapper


class TaskLevel(struct.PyTreeNode):
    """A level of the environment inside, and its number."""

    task: jax.Array  # i32[]
    level: Level


class ShownTask(struct.PyTreeNode):
    """The tasks of an episode: the first one, which its level has, and the one that is shown."""

    first: jax.Array  # i32[]
    now: jax.Array  # i32[], another one only in an episode of several attempts


@dataclasses.dataclass(frozen=True)
class WithTask(Wrapper):
    """Shows the agent the number of its level, as the entry "task" of the observation (one-hot, or a row of `shown`).

    The levels are the `n_tasks` first of the environment's fixed list, those that `--runner tasks` draws from. `shown`
    describes each task by E numbers, such as the embedding of a sentence: `n_tasks` tuples of equal length. On held-out
    levels, which have no number, all of them are 0.
    """

    has_own_levels: ClassVar[bool] = True

    n_tasks: int = dataclasses.field()  # no default, although the base class has a member of this name
    shown: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.env.multi_agent:
            name = type(self.env).__name__
            raise ValueError(f"{name} has several agents: WithTask is for one (see `with_tasks`)")
        if self.n_tasks < 1:
            raise ValueError(f"n_tasks={self.n_tasks}: it must be at least 1")
        widths = {len(row) for row in self.shown}
        if self.shown and (len(self.shown) != self.n_tasks or len(widths) != 1 or 0 in widths):
            raise ValueError(
                f"shown has {len(self.shown)} rows of {sorted(widths)} numbers: it must have {self.n_tasks} rows of "
                "equal length"
            )

    @property
    def observation_space(self) -> Space:
        inner = self.env.observation_space
        parts = inner.items if isinstance(inner, Dict) else (("observation", inner),)
        low, high = (min(0.0, *map(min, self.shown)), max(0.0, *map(max, self.shown))) if self.shown else (0.0, 1.0)
        return Dict((*parts, ("task", Box(low, high, (len(self._table()[0]),)))))

    def sample_level(self, key: jax.Array) -> TaskLevel:
        """One of the tasks, uniformly."""
        number = jax.random.randint(key, (), 0, self.n_tasks, jnp.int32)
        return TaskLevel(task=number, level=level_of_list(self.env, number))

    def sample_listed(self, key: jax.Array, number: jax.Array) -> TaskLevel:
        return TaskLevel(task=jnp.asarray(number, jnp.int32), level=listed_level(self.env, key, number))

    def inner_level(self, level: TaskLevel) -> Level:
        return level.level

    def _begun(self, level: TaskLevel, state: EnvState, ts: TimeStep) -> tuple[Wrapped, TimeStep]:
        own = ShownTask(first=level.task, now=level.task)
        return Wrapped(env=state, own=own), ts.replace(obs=self.seen(own, ts.obs))

    def _step_then(self, key: jax.Array, state: Wrapped, action: Any, following: TaskLevel) -> tuple[Wrapped, TimeStep]:
        env, ts = self.env.step_then(key, state.env, action, following.level)
        # The step that ends an attempt shows the next task.
        now = jnp.where(ts.attempt.ended & ~ts.done, following.task, state.own.now)
        own = state.own.replace(now=now)
        return Wrapped(env=env, own=own), ts.replace(obs=self.seen(own, ts.obs))

    def seen(self, own: ShownTask, obs: Any) -> dict[str, Any]:
        parts = obs if isinstance(obs, dict) else {"observation": obs}
        shown = jnp.asarray(self._table())[jnp.maximum(own.now, 0)]
        return parts | {"task": jnp.where(own.now >= 0, shown, 0.0)}

    def unnumbered(self, level: Level) -> TaskLevel:
        return TaskLevel(task=jnp.full((), -1, jnp.int32), level=level)

    def get_level(self, state: Wrapped) -> TaskLevel:
        return TaskLevel(task=state.own.first, level=self.env.get_level(state.env))

    def level_metrics(self, level: TaskLevel) -> dict[str, jax.Array]:
        return self.env.level_metrics(level.level)

    def _table(self) -> np.ndarray:
        """f32[n_tasks, E], what is shown of each task."""
        return np.asarray(self.shown, np.float32) if self.shown else np.eye(self.n_tasks, dtype=np.float32)

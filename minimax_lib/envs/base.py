"""What an environment is: a UPOMDP (Dennis et al. 2020) whose free parameters, the `Level`, go into `reset`."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from flax import struct

from minimax_lib.envs.spaces import Space

Level = Any  # a pytree with fixed shapes: everything that varies between episodes
EnvState = Any  # a pytree: everything that varies within an episode, and the level


class TimeStep(struct.PyTreeNode):
    """What an environment emits. Whether a truncated episode bootstraps is not decided here."""

    obs: Any  # pytree that fits the observation space
    reward: jax.Array  # f32[], for the action that led here; 0 at reset
    terminated: jax.Array  # bool[], the episode reached a terminal state
    truncated: jax.Array  # bool[], the episode reached its time limit; both may hold at once

    @property
    def done(self) -> jax.Array:
        """bool[], the episode ended here."""
        return self.terminated | self.truncated


class Environment(Protocol):
    """One instance of the environment; `BatchEnv` vectorises it.

    Static settings are fields of the (frozen, hashable) dataclass that implements this. All methods are pure
    and jittable. `reset` is the only maker of states and keeps the level in the state *as it came* (the same
    arrays), so that restarting a level moves no map.
    """

    @property
    def max_steps(self) -> int: ...

    @property
    def observation_space(self) -> Space: ...

    @property
    def action_space(self) -> Space: ...

    def sample_level(self, key: jax.Array) -> Level: ...

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]: ...

    def step(self, key: jax.Array, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]: ...

    def get_level(self, state: EnvState) -> Level: ...

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """Named f32[] facts about a level (walls, shortest path); an empty dict where there are none."""
        ...


@runtime_checkable
class Observable(Protocol):
    """An environment whose observation is a function of its state alone, and that says so by this one more method.

    `BatchEnv` then observes once, after the restarts, instead of both the state that ended and the one that follows.
    """

    def observe(self, state: EnvState) -> Any: ...


@runtime_checkable
class Drawable(Protocol):
    """An environment of whose episodes there are pictures; said by this one more method, which runs on the host."""

    def draw_episodes(self, states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """u8[H, W, 3]: the levels of R episodes, each with the way through it, in rows of `columns`.

        `states` [T, R, ...] are those of the episode as long as `running` (bool[T, R]) says so.
        """
        ...


class HeldOut(Protocol):
    """Named held-out tasks that run as one batch: one environment, levels of one shape."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Environment: ...

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...], one draw an episode (fixed tasks repeat the same level)."""
        ...

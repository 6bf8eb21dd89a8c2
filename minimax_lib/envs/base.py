"""What an environment is: a UPOMDP (Dennis et al. 2020) whose free parameters, the `Level`, go into `reset`."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
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
    progress: jax.Array | None = None  # f32[] in [0, 1], how far the task has come; 1 at the episode's end is solved
    facts: dict[str, jax.Array] = struct.field(default_factory=dict)  # f32[] by name, of the episode so far

    @property
    def done(self) -> jax.Array:
        """bool[], the episode ended here."""
        return self.terminated | self.truncated


def opening(obs: Any, progress: Any = None, facts: dict[str, Any] | None = None) -> TimeStep:
    """The time step of a reset: nothing is earned, nothing is over.

    With `progress` and `facts` of the same names as in the steps that follow: a time step never changes its form.
    """
    no = jnp.zeros((), bool)
    return transition(obs, jnp.zeros((), jnp.float32), no, no, progress, facts)


def transition(
    obs: Any,
    reward: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    progress: Any = None,
    facts: dict[str, Any] | None = None,
) -> TimeStep:
    """The time step that follows an action.

    Without `progress`, an episode counts as solved where it terminates with a positive return. Say it wherever that is
    not what "solved" means: with a cost for each step, a reward for survival, a draw, or a task of its own. `facts` are
    whatever else should reach the metrics and tables at an episode's end (achievements, collisions).
    """
    return TimeStep(
        obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
        progress=None if progress is None else jnp.asarray(progress, jnp.float32),
        facts={name: jnp.asarray(fact, jnp.float32) for name, fact in (facts or {}).items()},
    )


def progress_of(ts: TimeStep, episode_return: jax.Array) -> jax.Array:
    """f32[...], the progress of a time step whose episode has returned so much, this reward included."""
    if ts.progress is not None:
        return ts.progress
    return (ts.terminated & (episode_return > 0)).astype(jnp.float32)


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

    def step(self, key: jax.Array, state: EnvState, action: Any) -> tuple[EnvState, TimeStep]:
        """The state and time step after `action`, which fits the action space (a pytree for a Dict of actions)."""
        ...

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
class ResetsInGroups(Protocol):
    """An environment whose resets are expensive, and that says so by this one more setting or property.

    `BatchEnv` then resets only the rows whose episode has ended, so many of them together, and draws their levels there
    too. Without it, all rows are reset in every step, and those that go on drop the result: cheaper where a reset costs
    no more than a step. Levels and episodes are the same either way.
    """

    @property
    def resets_at_once(self) -> int:
        """Rows of a group, 1 or more: about as many as end in a step. More of them waste resets, fewer take turns."""
        ...


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

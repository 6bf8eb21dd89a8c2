"""What an environment is: a UPOMDP (Dennis et al. 2020) whose free parameters, the `Level`, go into `reset`."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.spaces import Space
from minimax_lib.envs.terminal import Scene

Level = Any  # a pytree with fixed shapes: everything that varies between episodes
EnvState = Any  # a pytree: everything that varies within an episode, and the level


class Attempt(struct.PyTreeNode):
    """The attempt at a task that a step belongs to, in an environment whose episodes hold several (`HoldsAttempts`)."""

    progress: jax.Array  # f32[] in [0, 1], how far the task has come; 1 at the attempt's end is solved
    ended: jax.Array  # bool[], it ended with this step: solved, failed, out of time, or the episode ended


class TimeStep(struct.PyTreeNode):
    """What an environment emits. Whether a truncated episode bootstraps is not decided here."""

    obs: Any  # pytree that fits the observation space
    reward: jax.Array  # f32[], for the action that led here; 0 at reset
    terminated: jax.Array  # bool[], the episode reached a terminal state
    truncated: jax.Array  # bool[], the episode reached its time limit; both may hold at once
    progress: jax.Array | None = None  # f32[] in [0, 1], how far the task has come; 1 at the episode's end is solved
    facts: dict[str, jax.Array] = struct.field(default_factory=dict)  # f32[] by name, of the episode so far
    attempt: Attempt | None = None  # None: the episode is the attempt

    @property
    def done(self) -> jax.Array:
        """bool[], the episode ended here."""
        return self.terminated | self.truncated

    @property
    def over(self) -> jax.Array:
        """bool[], the next step is in another episode: the same, where there is one agent."""
        return self.done


def opening(
    obs: Any, progress: Any = None, facts: dict[str, Any] | None = None, attempt: Attempt | None = None
) -> TimeStep:
    """The time step of a reset: no reward, and the episode is not over.

    If `transition` is given `progress`, `facts` or `attempt`, give them here too, with facts of the same names. A time
    step never changes its form.
    """
    no = jnp.zeros((), bool)
    return transition(obs, jnp.zeros((), jnp.float32), no, no, progress, facts, attempt)


def transition(
    obs: Any,
    reward: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    progress: Any = None,
    facts: dict[str, Any] | None = None,
    attempt: Attempt | None = None,
) -> TimeStep:
    """The time step that follows an action.

    Without `progress`, an episode counts as solved where it terminates with a positive return. Give `progress` wherever
    "solved" means something else: with a cost for each step, a reward for survival, a draw, or its own task.
    `facts` are other numbers about the episode (achievements, collisions). Metrics and tables show their last values.
    `attempt` is for an environment whose episodes hold several attempts at tasks (`HoldsAttempts`).
    """
    return TimeStep(
        obs=obs,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
        progress=None if progress is None else jnp.asarray(progress, jnp.float32),
        facts={name: jnp.asarray(fact, jnp.float32) for name, fact in (facts or {}).items()},
        attempt=attempt,
    )


def progress_of(ts: Any, episode_return: jax.Array) -> jax.Array:
    """f32[...], the progress of a time step, of one agent or several. `episode_return` includes its reward."""
    if ts.progress is not None:
        return ts.progress
    return (ts.terminated & (episode_return > 0)).astype(jnp.float32)


class Environment(Protocol):
    """One instance of the environment; `BatchEnv` vectorises it. Derive from this class.

    Static settings are fields of a frozen, hashable dataclass. All methods are pure and jittable. Only `reset` makes
    states, and it keeps the level in the state *as it came*, the same arrays. So restarting a level copies nothing.
    `get_level` and `level_metrics` have defaults, the other members have none.
    Check your own with `envs.conformance.check_environment`.
    """

    @property
    def max_steps(self) -> int:
        """The longest episode, in steps; often a field."""
        ...

    @property
    def observation_space(self) -> Space: ...

    @property
    def action_space(self) -> Space: ...

    def sample_level(self, key: jax.Array) -> Level:
        """A random level of the training distribution."""
        ...

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]:
        """The state and time step (`opening`) in which an episode on `level` begins."""
        ...

    def step(self, key: jax.Array, state: EnvState, action: Any) -> tuple[EnvState, TimeStep]:
        """The state and time step (`transition`) after `action`, which fits the action space (a dict for a Dict)."""
        ...

    def get_level(self, state: EnvState) -> Level:
        """The level that `reset` was given. By default, `state.level`."""
        return state.level

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """Named f32[] facts about a level (walls, shortest path). By default, none."""
        return {}


def sample_levels(env: Environment, key: jax.Array, n: int) -> Level:
    """Random levels [n, ...] of the environment."""
    return jax.vmap(env.sample_level)(jax.random.split(key, n))


@runtime_checkable
class DrawsListed(Protocol):
    """An environment with this one more method: the number of a level in a fixed list says something about it."""

    def sample_listed(self, key: jax.Array, number: jax.Array) -> Level:
        """The random level that is number `number` (i32[]) of a list."""
        ...


@runtime_checkable
class NamesTasks(Protocol):
    """An environment with this one more method: the levels of its fixed list have names, each another one."""

    def task_name(self, number: int) -> str:
        """What level `number` of a list is called in files. It runs on the host."""
        ...


@runtime_checkable
class BoxLevels(Protocol):
    """An environment with these two more members: a level can be made from a point of a box."""

    @property
    def level_box(self) -> Mapping[str, tuple[float, float]]:
        """The lowest and the highest value of each dimension, by its name. Without dimensions, there is no box."""
        ...

    def level_at(self, key: jax.Array, point: jax.Array) -> Level:
        """The level at `point`, f32[D] in the order of the dimensions. The key is for what they leave open."""
        ...


@runtime_checkable
class HoldsAttempts(Protocol):
    """An environment with these two more methods: an episode is a sequence of attempts at tasks.

    A level says which task comes first. Every time step has an `attempt`. When one ends and the episode does not, the
    world stays as it is, and the observation already shows the next task. By `step` alone, that is the same task again.
    """

    def step_then(self, key: jax.Array, state: EnvState, action: Any, following: Level) -> tuple[EnvState, TimeStep]:
        """As `step`. If the attempt ends with it, the next one is at the task of the level `following`."""
        ...

    def single(self) -> Environment:
        """The environment, with levels of the same form, in which an episode is one attempt: for evaluation."""
        ...


@runtime_checkable
class Inherits(Protocol):
    """An environment with this one more method: an episode may take over something of the one before it in its row."""

    def reset_after(self, key: jax.Array, level: Level, ended: EnvState) -> tuple[EnvState, TimeStep]:
        """As `reset`, after an episode whose last state was `ended`. First episodes and evaluations call `reset`."""
        ...


@runtime_checkable
class Observable(Protocol):
    """An environment with this one more method: its observation is a function of its state alone.

    `BatchEnv` then observes once, after the restarts, instead of both the state that ended and the one that follows.
    """

    def observe(self, state: EnvState) -> Any: ...


@runtime_checkable
class ResetsInGroups(Protocol):
    """An environment with this one more setting or property: its resets are expensive.

    `BatchEnv` then resets only the rows whose episode has ended, a group at a time, and draws their levels there too.
    Otherwise all rows are reset in every step, and rows that go on drop the result. That is cheaper where a reset costs
    no more than a step. Levels and episodes are the same either way.
    """

    @property
    def resets_at_once(self) -> int:
        """Rows of a group, 1 or more: about as many as end in a step. More of them waste resets, fewer take turns."""
        ...


@runtime_checkable
class Drawable(Protocol):
    """An environment with this one more method, which draws pictures of episodes. It runs on the host."""

    def draw_episodes(self, states: EnvState, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        """u8[H, W, 3]: a picture of each of R episodes, in rows of `columns`, each with its caption.

        `states` [T, R, ...] belong to the episodes where `running` (bool[T, R]) is set.
        """
        ...


@runtime_checkable
class Animated(Protocol):
    """An environment with this one more method, for moving pictures of episodes. It runs on the host."""

    def draw_state(self, state: EnvState) -> np.ndarray:
        """u8[H, W, 3]: one moment of an episode, and what the agent sees in it. All moments are of one size."""
        ...


@runtime_checkable
class Playable(Protocol):
    """An environment with these more members, for `minimax-play`: a person plays it in a terminal."""

    @property
    def keys(self) -> Mapping[str, Any]:
        """The action of each key: left, right, up, down, or a letter."""
        ...

    def scene(self, state: EnvState) -> Scene:
        """One moment of an episode as text. It runs on the host."""
        ...


@runtime_checkable
class KnowsOptimum(Protocol):
    """An environment with this one more method: it knows how much a level can pay. The score exact_regret needs it."""

    def optimal_return(self, level: Level, gamma: float) -> jax.Array:
        """f32[], the highest discounted return of an episode on `level`, whose first reward counts in full."""
        ...


class HeldOut(Protocol):
    """Named held-out tasks that run as one batch: one environment, levels of one shape."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Environment:
        """What the tasks are played in; mostly the environment of training itself."""
        ...

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...], one draw an episode (fixed tasks repeat the same level)."""
        ...


@runtime_checkable
class DrawsTraining(Protocol):
    """A class of held-out tasks with this one more member: it knows the task "TrainingDistribution" itself.

    A suite needs that only if its `env` plays levels of another shape than the environment of training. For any other
    suite, `make_held_out` adds the task.
    """

    draws_training: ClassVar[bool]

"""What an environment is: a UPOMDP (Dennis et al. 2020) whose free parameters, the `Level`, go into `reset`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.spaces import Space

Level = Any  # a pytree with fixed shapes: everything that varies between episodes
EnvState = Any  # a pytree: everything that varies within an episode, and the level
Ability = Any  # a method that an environment may have, or None


class Attempt(struct.PyTreeNode):
    """The attempt at a task that a step belongs to, in an environment whose episodes hold several (`step_then`)."""

    progress: jax.Array  # f32[] in [0, 1], how far the task has come; 1 at the attempt's end is solved
    ended: jax.Array  # bool[], it ended with this step: solved, failed, out of time, or the episode ended


class TimeStep(struct.PyTreeNode):
    """An environment's answer to a reset or an action. The agent decides whether a truncated episode bootstraps."""

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
    `attempt` is for an environment whose episodes hold several attempts at tasks (`Environment.step_then`).
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


class BaseEnvironment:
    """The members of every environment, of one agent or several: those that it must have, and its abilities.

    An ability is a member that is None where an environment lacks it. To give an environment an ability, write the
    method. To ask for one, write `env.observe is not None`.
    """

    multi_agent: ClassVar[bool] = False
    """It has an axis of agents: see `MultiAgentEnvironment`."""

    # Abilities: levels.
    sample_listed: Ability = None
    """`sample_listed(key, number)` is the random level that is number `number` (i32[]) of a fixed list. None: the
    number says nothing about the level."""
    task_name: Ability = None
    """`task_name(number)` is what level `number` of a fixed list is called in files. All names differ. None: it is
    called by its number. Runs on the host."""
    level_at: Ability = None
    """`level_at(key, point)` is the level at `point`, f32[D], of the box `level_box`. The key is for what the
    dimensions leave open."""
    optimal_return: Ability = None
    """`optimal_return(level, gamma)` is the highest discounted return, f32[], of an episode on `level`, whose first
    reward counts in full. The score exact_regret needs it."""
    with_tasks: Ability = None
    """`with_tasks(level, tasks)` is `level` with these tasks of its agents (i32[G]) in place of its own. For several
    agents, each of which has a task that is a part of the level. A task is a number below `n_tasks`, which such an
    environment also has. The environment knows what it means. `sample_level` gives each agent some task."""
    tasks_of: Ability = None
    """`tasks_of(level)` are the tasks of its agents, i32[G]: then evaluations have results by task."""
    task_kind: Ability = None
    """`task_kind(number)` is the kind of this task, a word: tables have a mean for each. None: all are of one kind.
    Runs on the host."""

    fault_in: Ability = None
    """`fault_in(level)` says in one sentence which rule of levels `level` breaks, and is empty if it breaks none.
    Levels that people hand in are checked with it. Whether a level can be solved is not asked. Runs on the host."""
    levels_in: Ability = None
    """`levels_in(path)` are the names of the held-out tasks that the files of levels at `path` hold. Runs on the
    host."""

    # Abilities: episodes.
    observe: Ability = None
    """`observe(state)` is the observation, where it is a function of the state alone. `BatchEnv` then observes once,
    after the restarts, instead of both the state that ended and the one that follows."""
    resets_at_once: Any = None
    """For expensive resets: `BatchEnv` resets only the rows whose episode has ended, so many at a time, and draws their
    levels there too. Take about as many as end in a step: more of them waste resets, fewer take turns. None: all rows
    are reset in every step, and rows that go on drop the result. That is cheaper where a reset costs no more than a
    step. Levels and episodes are the same either way."""
    reset_after: Ability = None
    """`reset_after(key, level, ended)` is `reset` after an episode of the same row whose last state was `ended`, and
    may take over something of it. First episodes and evaluations call `reset`."""
    step_then: Ability = None
    """`step_then(key, state, action, following)` makes an episode a sequence of attempts at tasks. It is `step`. But if
    the attempt ends with it, the next one is at the task of the level `following`. A level says which task comes first.
    Every time step has an `attempt`. When one ends and the episode does not, the world stays as it is, and the
    observation already shows the next task. By `step` alone, that is the same task again."""
    single: Ability = None
    """`single()` is the environment as evaluations play it, with levels of the same form: an episode is one attempt,
    and what only helps training is off. Needed beside `step_then`."""

    # Abilities: on the host.
    draw_episodes: Ability = None
    """`draw_episodes(states, running, captions, columns)` is a picture u8[H, W, 3] of each of R episodes, in rows of
    `columns`, each with its caption. `states` [T, R, ...] belong to the episodes where `running` (bool[T, R]) holds."""
    legend: ClassVar[str] = ""
    """What the shapes and colours of these pictures mean, in one line. The picture of a run's report has it on top."""
    draw_state: Ability = None
    """`draw_state(state)` is one moment of an episode, u8[H, W, 3], and what the agent sees in it. All moments are of
    one size. For moving pictures."""
    slim: Ability = None
    """`slim(state)` is what pictures need of a state, where that is a small part of it. `draw_episodes`, `draw_state`
    and `scene` then take it too. If it has a member `followed` (i32[]), they show the view of that agent of several.
    Pure."""
    scene: Ability = None
    """`scene(state)` is one moment of an episode as text (`Scene`), so that a person can play it (`minimax-play`). Such
    an environment also has `keys`: the action of each key (left, right, up, down, or a letter)."""
    bot: Ability = None
    """`bot(key, state, seat)` is the action of a written player for the agent `seat` (i32[]) of several. It sees the
    whole game. Pure, and without a memory."""

    @property
    def level_box(self) -> Mapping[str, tuple[float, float]]:
        """The lowest and the highest value of each dimension of a box of levels, by its name. By default, no box."""
        return {}

    @property
    def n_agents(self) -> int:
        """G, the agents that act at once."""
        return 1

    @property
    def max_steps(self) -> int:
        """The longest episode, in steps; often a field."""
        raise NotImplementedError

    @property
    def observation_space(self) -> Space:
        """Of one agent."""
        raise NotImplementedError

    @property
    def action_space(self) -> Space:
        """Of one agent."""
        raise NotImplementedError

    def sample_level(self, key: jax.Array) -> Level:
        """A random level of the training distribution."""
        raise NotImplementedError

    def get_level(self, state: EnvState) -> Level:
        """The level that `reset` was given. By default, `state.level`."""
        return state.level

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        """Named f32[] facts about a level (walls, shortest path). By default, none."""
        return {}


class Environment(BaseEnvironment):
    """One instance of the environment; `BatchEnv` vectorises it. Derive from this class.

    Static settings are fields of a frozen, hashable dataclass. All methods are pure and jittable. Only `reset` makes
    states, and it keeps the level in the state *as it came*, the same arrays. So restarting a level copies nothing.
    It must have `max_steps`, `observation_space`, `action_space`, `sample_level`, `reset` and `step`.
    Check your own with `minimax_lib.testing.envs.check_environment`.
    """

    def reset(self, key: jax.Array, level: Level) -> tuple[EnvState, TimeStep]:
        """The state and time step (`opening`) in which an episode on `level` begins."""
        raise NotImplementedError

    def step(self, key: jax.Array, state: EnvState, action: Any) -> tuple[EnvState, TimeStep]:
        """The state and time step (`transition`) after `action`, which fits the action space (a dict for a Dict)."""
        raise NotImplementedError


def check_derives(cls: type) -> None:
    """ValueError where `cls` is not an environment: it could not say which abilities it has."""
    if not issubclass(cls, BaseEnvironment):
        raise ValueError(
            f"{cls.__name__} must derive from minimax_lib.envs.base.Environment (or multi_agent.MultiAgentEnvironment)"
        )


class Forwarded:
    """An ability of an environment round another one: there, if the inner one has it; None, if not.

    `own` names the method of the outer class that carries it out. Without `own`, the inner member is taken as it is.
    """

    def __init__(self, own: str | None = None, inner: str = "env") -> None:
        self.own, self.inner = own, inner

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, outer: Any, owner: type) -> Any:
        if outer is None:  # asked of the class
            return self
        member = getattr(getattr(outer, self.inner), self.name)
        return member if self.own is None or member is None else getattr(outer, self.own)


def sample_levels(env: Environment, key: jax.Array, n: int) -> Level:
    """Random levels [n, ...] of the environment."""
    return jax.vmap(env.sample_level)(jax.random.split(key, n))


class HeldOut(Protocol):
    """Named held-out tasks that run as one batch: one environment, levels of one shape."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def env(self) -> Environment:
        """The environment in which they are played; mostly that of training itself."""
        ...

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...], one draw for each episode (a fixed one repeats its level)."""
        ...

"""Wrappers: environments that change what another environment emits. Its levels stay as they are."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, EnvState, Forwarded, HeldOut, Level, TimeStep, progress_of
from minimax_lib.envs.cells.settings import check_int
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, MultiDiscrete, Space


class Wrapped(struct.PyTreeNode):
    """The state of a wrapper."""

    env: EnvState  # of the environment inside
    own: Any  # what the wrapper itself remembers; () for nothing


@dataclasses.dataclass(frozen=True)
class Wrapper(Environment):
    """The base of wrappers: an environment round `env`, of one agent or several, that changes nothing.

    A wrapper of your own overrides `opened` and `stepped`, and `seen` if it changes observations. Its levels, their
    mutations, its teacher and its held-out tasks are those of what it wraps. Its abilities are those of `env`.
    """

    env: Environment

    has_own_levels: ClassVar[bool] = False
    """Its levels are others than those of what it wraps. Then they cannot be mutated or designed."""

    observe = Forwarded("_observe")
    draw_episodes = Forwarded("_draw_episodes")
    draw_state = Forwarded("_draw_state")
    slim = Forwarded("_slim")
    legend = Forwarded()  # type: ignore[assignment]
    reset_after = Forwarded("_reset_after")
    step_then = Forwarded("_step_then")
    single = Forwarded("_single")
    resets_at_once = Forwarded()
    sample_listed = Forwarded()
    task_name = Forwarded()
    fault_in = Forwarded("_fault_in")
    levels_in = Forwarded()
    with_tasks = Forwarded()
    tasks_of = Forwarded()
    task_kind = Forwarded()
    n_tasks = Forwarded()
    bot = Forwarded("_bot")
    # The other members of a `MultiAgentEnvironment`. What a wrapper remembers need not be in the order of the agents.
    multi_agent = Forwarded()  # type: ignore[assignment]
    counted = Forwarded()
    team_size = Forwarded()
    zero_sum = False
    relabelled = None

    def __post_init__(self) -> None:
        """Nothing to do: a subclass may call it."""

    level_at = Forwarded()

    def _fault_in(self, level: Level) -> str:
        """What is wrong with a level, where this wrapper has the levels of the environment."""
        return "" if self.has_own_levels else self.env.fault_in(level)

    @property
    def level_box(self) -> Mapping[str, tuple[float, float]]:
        return {} if self.has_own_levels else self.env.level_box

    def opened(self, state: EnvState, ts: TimeStep) -> tuple[Any, TimeStep]:
        """(what the wrapper remembers, the time step) after a reset of `env`, in the same form as after a step."""
        return (), ts

    def stepped(self, own: Any, before: EnvState, state: EnvState, ts: TimeStep) -> tuple[Any, TimeStep]:
        """(what the wrapper remembers, the time step) after a step of `env` from `before` to `state`."""
        return own, ts

    def seen(self, own: Any, obs: Any) -> Any:
        """The observation where `env` emits `obs`; `own` is as `opened` or `stepped` has just left it."""
        return obs

    def unnumbered(self, level: Level) -> Level:
        """A level of a held-out task of `env`, as one of this wrapper."""
        return level

    def around(self, env: Environment) -> Environment:
        """`env`, an environment of held-out tasks, as it is played by agents that were trained in this one."""
        return dataclasses.replace(self, env=env)

    @property
    def n_agents(self) -> int:
        return self.env.n_agents

    @property
    def max_steps(self) -> int:
        return self.env.max_steps

    @property
    def observation_space(self) -> Space:
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        return self.env.action_space

    def sample_level(self, key: jax.Array) -> Level:
        return self.env.sample_level(key)

    def reset(self, key: jax.Array, level: Level) -> tuple[Wrapped, TimeStep]:
        return self._begun(level, *self.env.reset(key, self.inner_level(level)))

    def _reset_after(self, key: jax.Array, level: Level, ended: Wrapped) -> tuple[Wrapped, TimeStep]:
        return self._begun(level, *self.env.reset_after(key, self.inner_level(level), ended.env))

    def inner_level(self, level: Level) -> Level:
        """The level of `env` in one of this wrapper."""
        return level

    def _begun(self, level: Level, state: EnvState, ts: TimeStep) -> tuple[Wrapped, TimeStep]:
        own, opened = self.opened(state, ts)
        return Wrapped(env=state, own=own), opened.replace(obs=self.seen(own, ts.obs))

    def step(self, key: jax.Array, state: Wrapped, action: Any) -> tuple[Wrapped, TimeStep]:
        return self._after(state, *self.env.step(key, state.env, action))

    def _after(self, before: Wrapped, after: EnvState, ts: TimeStep) -> tuple[Wrapped, TimeStep]:
        own, stepped = self.stepped(before.own, before.env, after, ts)
        return Wrapped(env=after, own=own), stepped.replace(obs=self.seen(own, ts.obs))

    def get_level(self, state: Wrapped) -> Level:
        return self.env.get_level(state.env)

    def level_metrics(self, level: Level) -> dict[str, jax.Array]:
        return self.env.level_metrics(level)

    def _step_then(self, key: jax.Array, state: Wrapped, action: Any, following: Level) -> tuple[Wrapped, TimeStep]:
        return self._after(state, *self.env.step_then(key, state.env, action, self.inner_level(following)))

    def _single(self) -> Environment:
        return dataclasses.replace(self, env=self.env.single())

    def _observe(self, state: Wrapped) -> Any:
        return self.seen(state.own, self.env.observe(state.env))

    def _draw_episodes(self, states: Wrapped, running: np.ndarray, captions: Sequence[str], columns: int) -> np.ndarray:
        return self.env.draw_episodes(_inside(states), running, captions, columns)

    def _bot(self, key: jax.Array, state: Wrapped, seat: jax.Array) -> Any:
        return self.env.bot(key, state.env, seat)

    def _draw_state(self, state: Wrapped) -> np.ndarray:
        return self.env.draw_state(_inside(state))

    def _slim(self, state: Wrapped) -> Any:
        return self.env.slim(state.env)


def _inside(state: Any) -> Any:
    """The state of `env`. What `slim` has left of a state is one already."""
    return state.env if isinstance(state, Wrapped) else state


def unwrapped(env: Environment) -> Environment:
    """The environment inside all wrappers."""
    while isinstance(env, Wrapper):
        env = env.env
    return env


def has_own_levels(env: Environment) -> bool:
    """Whether its levels are others than those of the environment inside all wrappers."""
    while isinstance(env, Wrapper):
        if env.has_own_levels:
            return True
        env = env.env
    return False


def unwrapped_state(state: EnvState) -> EnvState:
    """Its state."""
    while isinstance(state, Wrapped):
        state = state.env
    return state


@dataclasses.dataclass(frozen=True)
class WrappedTasks:
    """Held-out tasks (a `HeldOut`), played through a wrapper."""

    wrapper: Wrapper
    tasks: HeldOut

    @property
    def names(self) -> tuple[str, ...]:
        return self.tasks.names

    @property
    def env(self) -> Environment:
        return self.wrapper.around(self.tasks.env)

    def sample(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [len(names), n_episodes, ...]."""
        levels = self.tasks.sample(key, n_episodes)
        return jax.vmap(jax.vmap(self.wrapper.unnumbered))(levels) if self.wrapper.has_own_levels else levels


@dataclasses.dataclass(frozen=True)
class RewardWrapper(Wrapper):
    """The base of wrappers that change rewards: adds `bonus` to every reward, and changes nothing else.

    Progress, and so what "solved" means, stays that of the rewards of `env`. The fact "raw_return" is their return.
    Held-out tasks are played without this wrapper, so that returns there are the tasks' own.
    """

    def bonus(self, before: EnvState, state: EnvState, ts: TimeStep) -> jax.Array:
        """f32[], or of several agents f32[G]: what the step from `before` to `state` earns beside its reward."""
        raise NotImplementedError

    def opened(self, state: EnvState, ts: TimeStep) -> tuple[jax.Array, TimeStep]:
        return self._told(jnp.zeros_like(ts.reward), ts)

    def stepped(self, own: jax.Array, before: EnvState, state: EnvState, ts: Any) -> tuple[jax.Array, Any]:
        raw_return, ts = self._told(own + ts.reward, ts)
        bonus = jnp.asarray(self.bonus(before, state, ts), jnp.float32)
        if self.multi_agent:  # the dead earn nothing
            bonus = jnp.where(ts.playing, bonus, 0.0)
        return raw_return, ts.replace(reward=ts.reward + bonus)

    def around(self, env: Environment) -> Environment:
        return env

    def _told(self, raw_return: jax.Array, ts: TimeStep) -> tuple[jax.Array, TimeStep]:
        # An environment without its own progress is solved by its return, which is about to change. Of several such
        # wrappers, the innermost knows the return that counts, so that its facts stay.
        facts = {"raw_return": raw_return} | ts.facts
        return raw_return, ts.replace(progress=progress_of(ts, raw_return), facts=facts)


@dataclasses.dataclass(frozen=True)
class Potential:
    """Shaping by a potential, which leaves the best policies the best: gamma * phi(s') - phi(s) (Ng et al. 1999).

    `phi` is a function of the state of the environment inside all wrappers, and `gamma` the discount that the agent
    learns with. Where the episode terminates, phi(s') counts as 0. A time limit is no such end: there, the sum is too
    high by gamma^T * phi(s_T). An agent that bootstraps (ppo.bootstrap_truncated) makes up for that.
    """

    phi: Callable[[Any], jax.Array]
    gamma: float

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma={self.gamma}: it must be between 0 and 1, as the agent's discount")

    def __call__(self, before: EnvState, state: EnvState, ts: TimeStep) -> jax.Array:
        """f32[], what is earned by the step from `before` to `state`."""
        ahead = jnp.where(ts.terminated, 0.0, self.phi(unwrapped_state(state)))
        return self.gamma * ahead - self.phi(unwrapped_state(before))


@dataclasses.dataclass(frozen=True)
class RewardShaping(RewardWrapper):
    """Adds to every reward what `shaping` says: a `Potential`, or any function of the time step (f32[]).

    Give it a named function or a frozen dataclass: two environments are equal only if their shapings are.
    """

    shaping: Potential | Callable[[TimeStep], jax.Array]

    def bonus(self, before: EnvState, state: EnvState, ts: TimeStep) -> jax.Array:
        return self.shaping(before, state, ts) if isinstance(self.shaping, Potential) else self.shaping(ts)


@dataclasses.dataclass(frozen=True)
class StepCost(RewardWrapper):
    """Takes `cost` from the reward of every step, the last one too."""

    cost: float

    def __post_init__(self) -> None:
        if not (self.cost >= 0 and math.isfinite(self.cost)):
            raise ValueError(f"cost={self.cost}: it must be at least 0 and finite")

    def bonus(self, before: EnvState, state: EnvState, ts: TimeStep) -> jax.Array:
        return jnp.full((), -self.cost, jnp.float32)


@dataclasses.dataclass(frozen=True)
class TimeLimit(Wrapper):
    """Truncates episodes after `limit` steps, those of held-out tasks too. An earlier end stays as it is.
    Nobody has won a game that is cut here: games (LaserTag, `Against`) say so at their own end. Use their `max_steps`.
    """

    limit: int

    def __post_init__(self) -> None:
        check_int("limit", self.limit, 1)

    @property
    def max_steps(self) -> int:
        return min(self.limit, self.env.max_steps)

    def opened(self, state: EnvState, ts: TimeStep) -> tuple[jax.Array, TimeStep]:
        return jnp.zeros((), jnp.int32), ts

    def stepped(self, own: jax.Array, before: EnvState, state: EnvState, ts: Any) -> tuple[jax.Array, Any]:
        time = own + 1
        late = time >= self.limit
        if ts.attempt is not None:  # an attempt ends with the episode; that of a dead agent has ended before
            cut = ts.playing & late if self.multi_agent else late
            ts = ts.replace(attempt=ts.attempt.replace(ended=ts.attempt.ended | cut))
        if not self.multi_agent:
            return time, ts.replace(truncated=ts.truncated | late)
        return time, ts.replace(truncated=ts.truncated | (ts.playing & ~ts.terminated & late), over=ts.over | late)


@dataclasses.dataclass(frozen=True)
class FrameStack(Wrapper):
    """Shows the last `n` observations, the oldest first, side by side along their last axis (an image's channels).

    An episode opens with `n` copies of the first one. A number (Discrete) becomes a row of numbers (MultiDiscrete), and
    a single float becomes a row of floats. Every part of a Dict is stacked, except for the action mask: only the latest
    mask counts.
    """

    n: int

    def __post_init__(self) -> None:
        check_int("n", self.n, 1)

    @property
    def observation_space(self) -> Space:
        space = self.env.observation_space
        if not isinstance(space, Dict):
            return stacked_space(space, self.n)
        return Dict(
            tuple((name, part if name == ACTION_MASK else stacked_space(part, self.n)) for name, part in space.items)
        )

    def opened(self, state: EnvState, ts: TimeStep) -> tuple[Any, TimeStep]:
        def copies(obs: Any) -> Any:
            return _over_parts(lambda x: jnp.concatenate([jnp.atleast_1d(x)] * self.n, axis=-1), obs)

        return (jax.vmap(copies) if self.multi_agent else copies)(ts.obs), ts

    def stepped(self, own: Any, before: EnvState, state: EnvState, ts: Any) -> tuple[Any, Any]:
        def pushed(obs: Any, frames: Any) -> Any:
            return _over_parts(_pushed, obs, frames)

        if not self.multi_agent:
            return pushed(ts.obs, own), ts
        # A dead agent sees nothing, not even what it saw when it lived.
        sees = ts.over | (ts.playing & ~ts.done)
        frames = jax.vmap(pushed)(ts.obs, own)
        return jax.tree.map(
            lambda x: jnp.where(sees.reshape(-1, *(1,) * (x.ndim - 1)), x, 0).astype(x.dtype), frames
        ), ts

    def seen(self, own: Any, obs: Any) -> Any:
        return own


def stacked_space(space: Space, n: int) -> Space:
    """The space of `n` observations that fit `space`, side by side."""
    if isinstance(space, Dict):
        return Dict(tuple((name, stacked_space(part, n)) for name, part in space.items))
    if isinstance(space, Discrete):
        return MultiDiscrete((space.n,) * n)
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(space.sizes * n)
    *leading, width = space.shape or (1,)
    # Every frame moves by one place in each step. So the stack changes fast, even if single frames do not.
    return Box(space.low, space.high, (*leading, n * width), space.dtype)


def _pushed(obs: jax.Array, frames: jax.Array) -> jax.Array:
    """The frames without the oldest, and with `obs` as the latest."""
    latest = jnp.atleast_1d(obs)
    return jnp.concatenate([frames[..., latest.shape[-1] :], latest], axis=-1)


def _over_parts(f: Callable[..., jax.Array], obs: Any, *others: Any) -> Any:
    """`f` of every array of `obs` and those in its place in `others`; an action mask stays that of `obs`."""
    if not isinstance(obs, dict):
        return jax.tree.map(f, obs, *others)
    return {
        name: part if name == ACTION_MASK else jax.tree.map(f, part, *(other[name] for other in others))
        for name, part in obs.items()
    }

"""One environment with the methods of gymnax 1.x: pure, inside jit, vmap and scan."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnax.environments import spaces
from gymnax.environments.environment import Environment as Gymnax

from minimax_lib.envs.base import Environment, EnvState, Level, progress_of
from minimax_lib.envs.given import is_known
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.spaces import Box, Dict, Discrete, MultiDiscrete, Space, checked_action, within


class GymnaxParams(struct.PyTreeNode):
    """gymnax's parameters."""

    level: Level
    max_steps_in_episode: int  # an earlier time limit than the environment's own, if it is lower


class GymnaxState(struct.PyTreeNode):
    """gymnax's state."""

    time: jax.Array  # i32[], steps
    env: EnvState
    truncated: jax.Array  # bool[], the environment's own time limit was reached
    episode_return: jax.Array  # f32[], undiscounted


class GymnaxEnv(Gymnax):
    """An environment of this package with gymnax's calls: see `export.gymnax_env`.

    `step` is gymnax's own: it resets where an episode ends, and then `info["final_observation"]` is the last
    observation. `info` has `progress`, `solved` and the facts too, and `discount`.
    """

    def __init__(self, env: Environment, sample_level: Callable[[jax.Array], Level] | None = None):
        self.env = env
        self.sample_level = sample_level
        _action_space(env.action_space)  # ValueError for a kind that gymnax does not have, before anything is compiled

    # gymnax compiles `step` and `reset` once for each environment: equal ones share what is compiled.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, GymnaxEnv) and (self.env, self.sample_level) == (other.env, other.sample_level)

    def __hash__(self) -> int:
        return hash((self.env, self.sample_level))

    @property
    def name(self) -> str:
        return type(self.env).__name__

    @property
    def default_params(self) -> GymnaxParams:
        """A random level, always the same one."""
        return GymnaxParams(jax.jit(self.env.sample_level)(jax.random.key(0)), self.env.max_steps)

    def reset(self, key: jax.Array, params: GymnaxParams | None = None) -> tuple[Any, GymnaxState]:
        """gymnax's; outside jit, ValueError where `params` has no level of the environment."""
        if params is not None and self.sample_level is None:
            checked_at_reset(self.env, params.level)
        return super().reset(key, params)

    def step(
        self, key: jax.Array, state: GymnaxState, action: Any, params: GymnaxParams | None = None
    ) -> tuple[Any, ...]:
        """gymnax's; outside jit, ValueError for an action that is none."""
        return super().step(key, state, self._checked(state, action), params)

    def _checked(self, state: GymnaxState, action: Any) -> Any:
        return checked_action(self.env.action_space, action) if is_known((state, action)) else action

    def reset_env(self, key: jax.Array, params: GymnaxParams) -> tuple[Any, GymnaxState]:
        """Opens an episode on the level of `params`, or on a fresh one with `sample_level`."""
        k_level, k_reset = jax.random.split(key)
        level = params.level if self.sample_level is None else self.sample_level(k_level)
        env, ts = self.env.reset(k_reset, level)
        return ts.obs, GymnaxState(jnp.zeros((), jnp.int32), env, ts.truncated, jnp.zeros((), jnp.float32))

    def step_env(
        self, key: jax.Array, state: GymnaxState, action: Any, params: GymnaxParams
    ) -> tuple[Any, GymnaxState, jax.Array, jax.Array, dict[str, Any]]:
        """(observation, state, reward, terminated, info) after a step, without the reset that `step` adds."""
        action = within(self.env.action_space, self._checked(state, action))
        env, ts = self.env.step(key, state.env, action)
        state = GymnaxState(state.time + 1, env, ts.truncated, state.episode_return + ts.reward)
        progress = progress_of(ts, state.episode_return)
        ended = ts.terminated | self.is_truncated(state, params)
        info = {"discount": 1.0 - ts.terminated.astype(jnp.float32), "progress": progress}
        return ts.obs, state, ts.reward, ts.terminated, info | {"solved": ended & (progress >= 1), "facts": ts.facts}

    def is_truncated(self, state: GymnaxState, params: GymnaxParams) -> jax.Array:
        return state.truncated | (state.time >= params.max_steps_in_episode)

    @property
    def num_actions(self) -> int:
        """Of discrete actions, how many; of others, the numbers in one."""
        space = self.env.action_space
        return space.n if isinstance(space, Discrete) else int(np.prod(space.shape)) if isinstance(space, Box) else 0

    def action_space(self, params: GymnaxParams | None = None) -> spaces.Space:
        return _action_space(self.env.action_space)

    def observation_space(self, params: GymnaxParams | None = None) -> spaces.Space:
        return _space(self.env.observation_space)


def _space(space: Space) -> spaces.Space:
    """The space of gymnax. It has no MultiDiscrete: such observations are a Box of integers."""
    match space:
        case Discrete():
            return spaces.Discrete(space.n)
        case MultiDiscrete():
            high = jnp.asarray(space.sizes, jnp.int32) - 1
            return spaces.Box(jnp.zeros_like(high), high, high.shape, jnp.int32)
        case Box():
            return spaces.Box(space.low, space.high, space.shape, jnp.dtype(space.dtype))
        case Dict():
            return spaces.Dict({name: _space(part) for name, part in space.items})


def _action_space(space: Space) -> spaces.Space:
    """The same of actions; ValueError where an agent of gymnax would take integers for real numbers."""
    parts = [part for _, part in space.items] if isinstance(space, Dict) else [space]
    if any(isinstance(part, MultiDiscrete) for part in parts):
        raise ValueError(f"the action space is {space}: gymnax has no MultiDiscrete, choose Discrete, Box or a Dict")
    return _space(space)

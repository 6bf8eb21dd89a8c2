"""Environments with gymnax's interface, as an `Environment`. The level is their parameters, and an episode's start."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.foreign.libraries import with_types_of
from minimax_lib.envs.foreign.parameters import Range, check_names, ranges_of
from minimax_lib.envs.foreign.spaces import fitted, space_of
from minimax_lib.envs.spaces import Box, Space
from minimax_lib.settings import keep_tuple


class FunctionalLevel(struct.PyTreeNode):
    """Everything that varies between episodes."""

    parameters: dict[str, jax.Array]  # f32[] by name, only those that vary
    start: jax.Array  # u32[], the seed of the first state; 0 if every episode draws its own start


class FunctionalState(struct.PyTreeNode):
    """An episode. `level` is the level that `reset` was given, unchanged."""

    level: FunctionalLevel
    theirs: Any  # the library's own state
    episode_return: jax.Array  # f32[], undiscounted


@dataclasses.dataclass(frozen=True)
class Theirs:
    """An environment of another library, with the methods of gymnax 1.0's `Environment`.

    `depend` names the parameters that follow from others. `follow(params)` gives `params` with these computed again.
    """

    env: Any
    params: Any
    depend: tuple[str, ...] = ()
    follow: Any = None


@dataclasses.dataclass(frozen=True)
class Functional(Environment):
    """The base class of such environments. A subclass defines `theirs`, and may define `is_solved`."""

    vary: tuple[str, ...] = ()
    """Parameters that differ from level to level, each drawn uniformly, as in gravity=5:15 length=0.25:1. A single
    number, as in gravity=5, is the value on all levels."""
    fixed_start: bool = False
    """A level also fixes the state in which its episodes start. Otherwise, each episode draws its own."""
    limit: int | None = None
    """Steps after which an episode is cut off. None: the environment's own limit."""

    def __post_init__(self) -> None:
        keep_tuple(self, "vary")
        ranges_of(self.vary)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"env.limit is {self.limit}: it must be at least 1")

    def theirs(self) -> Theirs:
        """The library's environment, the same object at every call. ValueError if there is none."""
        raise NotImplementedError

    def is_solved(self, state: Any, episode_return: jax.Array) -> jax.Array:
        """bool[], whether an episode that ends here was a success. `state` is the library's own."""
        return jnp.zeros((), bool)

    @property
    def max_steps(self) -> int:
        return int(_known(self).params.max_steps_in_episode)

    @property
    def observation_space(self) -> Space:
        return _spaces(self)[0]

    @property
    def action_space(self) -> Space:
        return _spaces(self)[1]

    def sample_level(self, key: jax.Array) -> FunctionalLevel:
        """Parameters uniform in their ranges, and a random start."""
        k_start, k_parameters = jax.random.split(key)
        parameters = {
            # The key depends on the number of the range, so ranges that are added after it do not change its values.
            range_.name: range_.sample(jax.random.fold_in(k_parameters, i))
            for i, range_ in enumerate(self._ranges)
        }
        return FunctionalLevel(parameters=parameters, start=self._start(k_start))

    @property
    def level_box(self) -> dict[str, tuple[float, float]]:
        """The ranges of the parameters that differ from level to level; see `Environment.level_at`."""
        return {range_.name: (range_.low, range_.high) for range_ in self._ranges if range_.low < range_.high}

    def level_at(self, key: jax.Array, point: jax.Array) -> FunctionalLevel:
        """The level whose parameters in `level_box` are those of `point`, with a random start."""
        fixed = {range_.name: jnp.asarray(range_.low, jnp.float32) for range_ in self._ranges}
        parameters = fixed | dict(zip(self.level_box, point, strict=True))
        return FunctionalLevel(parameters=parameters, start=self._start(key))

    def default_level(self, key: jax.Array) -> FunctionalLevel:
        """The level of the environment's own parameters, with a random start."""
        parameters = {r.name: jnp.asarray(self.default_of(r.name), jnp.float32) for r in self._ranges}
        return FunctionalLevel(parameters=parameters, start=self._start(key))

    def default_of(self, parameter: str) -> float:
        """The default value of a parameter in the library."""
        return float(getattr(_known(self).params, parameter))

    def reset(self, key: jax.Array, level: FunctionalLevel) -> tuple[FunctionalState, TimeStep]:
        """The start of an episode on `level`."""
        key = jax.random.key(level.start) if self.fixed_start else key
        obs, theirs = _known(self).env.reset_env(key, self._params(level))
        state = FunctionalState(
            level=level,
            theirs=with_types_of(theirs, _state_types(self)),
            episode_return=jnp.zeros((), jnp.float32),
        )
        return state, opening(fitted(self.observation_space, obs), progress=0.0)

    def step(self, key: jax.Array, state: FunctionalState, action: Any) -> tuple[FunctionalState, TimeStep]:
        """The result of a step of the library's environment, without its automatic reset."""
        env, params = _known(self).env, self._params(state.level)
        obs, theirs, reward, terminated, _ = env.step_env(key, state.theirs, self._within(action, params), params)
        theirs = with_types_of(theirs, _state_types(self))
        episode_return = state.episode_return + jnp.asarray(reward, jnp.float32)
        truncated = env.is_truncated(theirs, params)
        solved = (terminated | truncated) & self.is_solved(theirs, episode_return)
        state = FunctionalState(level=state.level, theirs=theirs, episode_return=episode_return)
        return state, transition(fitted(self.observation_space, obs), reward, terminated, truncated, solved)

    def level_metrics(self, level: FunctionalLevel) -> dict[str, jax.Array]:
        """The parameters that vary."""
        return level.parameters

    @property
    def _ranges(self) -> tuple[Range, ...]:
        return ranges_of(self.vary)

    def _start(self, key: jax.Array) -> jax.Array:
        # 0 if it is not used, so that levels with equal parameters are equal.
        return jax.random.bits(key) if self.fixed_start else jnp.zeros((), jnp.uint32)

    def _params(self, level: FunctionalLevel) -> Any:
        theirs = _known(self)
        # As in the library, parameters that do not vary stay Python numbers. So the results are the same to the bit.
        params = theirs.params.replace(**level.parameters)
        return theirs.follow(params) if theirs.follow and level.parameters else params

    def _within(self, action: Any, params: Any) -> Any:
        """`action`, clipped to the bounds that its entries have with these parameters."""
        if not isinstance(self.action_space, Box):
            return action
        bounds = _known(self).env.action_space(params)
        return jnp.clip(action, bounds.low, bounds.high)


@functools.cache
def _known(env: Functional) -> Theirs:
    """The library's environment, with the limit of `env`. ValueError if it lacks a parameter that `env` varies."""
    # Libraries make arrays here. If something is being traced at the first call, they would be tracers.
    with jax.ensure_compile_time_eval():
        theirs = env.theirs()
        if env.limit is not None:
            # In the library's own type, since some environments select between it and another number.
            limit = type(theirs.params.max_steps_in_episode)(env.limit)
            theirs = dataclasses.replace(theirs, params=theirs.params.replace(max_steps_in_episode=limit))
        check_names(ranges_of(env.vary), theirs.params, theirs.depend)
        return theirs


@functools.cache
def _spaces(env: Functional) -> tuple[Space, Space]:
    """(observation space, action space): each holds for the default parameters and for both ends of the ranges."""
    theirs, ranges = _known(env), ranges_of(env.vary)
    ends = [{r.name: r.low for r in ranges}, {r.name: r.high for r in ranges}]
    with jax.ensure_compile_time_eval():
        all_params = [theirs.params, *(theirs.params.replace(**end) for end in ends)]
        observations = space_of([theirs.env.observation_space(params) for params in all_params])
        return observations, space_of([theirs.env.action_space(params) for params in all_params])


@functools.cache
def _state_types(env: Functional) -> Any:
    """Shapes and dtypes of the library's state after a step. At a reset, some entries are Python numbers."""
    theirs, params = _known(env), env._params(env.default_level(jax.random.key(0)))

    def state_after_a_step(key: jax.Array) -> Any:
        _, state = theirs.env.reset_env(key, params)
        return theirs.env.step_env(key, state, env.action_space.sample(key), params)[1]

    return jax.eval_shape(state_after_a_step, jax.random.key(0))

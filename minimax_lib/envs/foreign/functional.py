"""Environments in gymnax's manner, as an `Environment`: the parameters, and where an episode starts, are the level."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import TimeStep, opening, transition
from minimax_lib.envs.foreign.libraries import with_types_of
from minimax_lib.envs.foreign.parameters import Range, check_names, ranges_of
from minimax_lib.envs.foreign.spaces import fitted, space_of
from minimax_lib.envs.spaces import Box, Space


class FunctionalLevel(struct.PyTreeNode):
    """What varies between episodes."""

    parameters: dict[str, jax.Array]  # f32[] by name, those that vary
    start: jax.Array  # u32[], the seed of the first state; 0 where every episode starts anew


class FunctionalState(struct.PyTreeNode):
    """An episode. `level` is what `reset` was given, untouched."""

    level: FunctionalLevel
    theirs: Any  # the library's own state
    episode_return: jax.Array  # f32[], undiscounted


@dataclasses.dataclass(frozen=True)
class Theirs:
    """An environment of another library, with the methods of gymnax 1.0's `Environment`.

    `follow(params)` gives `params` with those that `depend` on others worked out again.
    """

    env: Any
    params: Any
    depend: tuple[str, ...] = ()
    follow: Any = None


@dataclasses.dataclass(frozen=True)
class Functional:
    """The base of such environments: a subclass gives `theirs`, and may say what `is_solved`."""

    vary: tuple[str, ...] = ()
    """Parameters that differ from level to level, each drawn uniformly, as in `gravity=5:15 length=0.25:1`; a single
    number fixes one at a value that is not its default."""
    fixed_start: bool = False
    """A level fixes the state that its episodes start in as well; otherwise each episode draws its own."""
    limit: int | None = None
    """Steps after which an episode is cut off; None: the environment's own limit."""

    def __post_init__(self) -> None:
        ranges_of(self.vary)
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"env.limit is {self.limit}: it must be at least 1")

    def theirs(self) -> Theirs:
        """The library's environment; ValueError where there is none. The same object at every call."""
        raise NotImplementedError

    def is_solved(self, state: Any, episode_return: jax.Array) -> jax.Array:
        """bool[], asked at an episode's end: whether it was a success. `state` is the library's own."""
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
            # By number of the range: a parameter's values do not change with those that are named after it.
            range_.name: range_.sample(jax.random.fold_in(k_parameters, i))
            for i, range_ in enumerate(self._ranges)
        }
        return FunctionalLevel(parameters=parameters, start=self._start(k_start))

    def default_level(self, key: jax.Array) -> FunctionalLevel:
        """The level of the environment's own parameters, with a random start."""
        parameters = {r.name: jnp.asarray(self.default_of(r.name), jnp.float32) for r in self._ranges}
        return FunctionalLevel(parameters=parameters, start=self._start(key))

    def default_of(self, parameter: str) -> float:
        """The value that a parameter has in the library."""
        return float(getattr(_known(self).params, parameter))

    def reset(self, key: jax.Array, level: FunctionalLevel) -> tuple[FunctionalState, TimeStep]:
        """Starts an episode on `level`."""
        key = jax.random.key(level.start) if self.fixed_start else key
        obs, theirs = _known(self).env.reset_env(key, self._params(level))
        state = FunctionalState(
            level=level,
            theirs=with_types_of(theirs, _state_types(self)),
            episode_return=jnp.zeros((), jnp.float32),
        )
        return state, opening(fitted(self.observation_space, obs), progress=0.0)

    def step(self, key: jax.Array, state: FunctionalState, action: Any) -> tuple[FunctionalState, TimeStep]:
        """A step of the library's own, without its automatic reset."""
        env, params = _known(self).env, self._params(state.level)
        obs, theirs, reward, terminated, _ = env.step_env(key, state.theirs, self._within(action, params), params)
        theirs = with_types_of(theirs, _state_types(self))
        episode_return = state.episode_return + jnp.asarray(reward, jnp.float32)
        truncated = env.is_truncated(theirs, params)
        solved = (terminated | truncated) & self.is_solved(theirs, episode_return)
        state = FunctionalState(level=state.level, theirs=theirs, episode_return=episode_return)
        return state, transition(fitted(self.observation_space, obs), reward, terminated, truncated, solved)

    def get_level(self, state: FunctionalState) -> FunctionalLevel:
        return state.level

    def level_metrics(self, level: FunctionalLevel) -> dict[str, jax.Array]:
        """The parameters that vary."""
        return level.parameters

    @property
    def _ranges(self) -> tuple[Range, ...]:
        return ranges_of(self.vary)

    def _start(self, key: jax.Array) -> jax.Array:
        # Where it means nothing it is 0, so that two levels are the same where their parameters are.
        return jax.random.bits(key) if self.fixed_start else jnp.zeros((), jnp.uint32)

    def _params(self, level: FunctionalLevel) -> Any:
        theirs = _known(self)
        # What does not vary stays Python's number, as in the library itself: the arithmetic is the same to the bit.
        params = theirs.params.replace(**level.parameters)
        return theirs.follow(params) if theirs.follow and level.parameters else params

    def _within(self, action: Any, params: Any) -> Any:
        """`action` within the bounds that each of its entries has for these parameters."""
        if not isinstance(self.action_space, Box):
            return action
        bounds = _known(self).env.action_space(params)
        return jnp.clip(action, bounds.low, bounds.high)


@functools.cache
def _known(env: Functional) -> Theirs:
    """The library's environment, with the limit of `env`; ValueError where a parameter to vary is none of its own."""
    # Libraries make arrays as they go. Asked first while something is traced, those would be tracers.
    with jax.ensure_compile_time_eval():
        theirs = env.theirs()
        if env.limit is not None:
            # In the type that the library gives it: some choose between it and another number.
            limit = type(theirs.params.max_steps_in_episode)(env.limit)
            theirs = dataclasses.replace(theirs, params=theirs.params.replace(max_steps_in_episode=limit))
        check_names(ranges_of(env.vary), theirs.params, theirs.depend)
        return theirs


@functools.cache
def _spaces(env: Functional) -> tuple[Space, Space]:
    """(of observations, of actions): what holds for the default parameters and at both ends of the ranges."""
    theirs, ranges = _known(env), ranges_of(env.vary)
    ends = [{r.name: r.low for r in ranges}, {r.name: r.high for r in ranges}]
    with jax.ensure_compile_time_eval():
        all_params = [theirs.params, *(theirs.params.replace(**end) for end in ends)]
        observations = space_of([theirs.env.observation_space(params) for params in all_params])
        return observations, space_of([theirs.env.action_space(params) for params in all_params])


@functools.cache
def _state_types(env: Functional) -> Any:
    """Shapes and dtypes of the library's state after a step: those at a reset are Python's numbers in part."""
    theirs, params = _known(env), env._params(env.default_level(jax.random.key(0)))

    def state_after_a_step(key: jax.Array) -> Any:
        _, state = theirs.env.reset_env(key, params)
        return theirs.env.step_env(key, state, env.action_space.sample(key), params)[1]

    return jax.eval_shape(state_after_a_step, jax.random.key(0))

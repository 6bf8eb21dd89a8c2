"""Craftax-Classic on symbols (Matthews et al. 2024), Crafter in JAX: the map that a game opens on is the level."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import TimeStep, opening, transition
from minimax_lib.envs.family import Family
from minimax_lib.envs.foreign.libraries import require, with_types_of
from minimax_lib.envs.spaces import Box, Discrete, Space
from minimax_lib.registry import unknown_name

NEVER = 2**30  # steps


class World(struct.PyTreeNode):
    """The level: all else that a game opens with is the same in every world."""

    map: jax.Array  # u8[map_size, map_size], a `BlockType` in each cell


class CraftaxState(struct.PyTreeNode):
    """A game. `level` is what `reset` was given, untouched."""

    level: World
    theirs: Any  # Craftax's own state


@dataclasses.dataclass(frozen=True)
class Craftax:
    """Craftax-Classic: gather, build, fight and stay alive, for 22 achievements that pay 1 each, once a game.

    A point of health gained or lost pays or costs 0.1. Lava or no health end a game. Equal to the PyPI package
    `craftax`, step by step. The achievements are the facts of an episode.
    """

    goal: tuple[str, ...] = ()
    """Achievements that an episode is solved with, as in `collect_diamond`; its progress is their share that it has.
    None named: all 22."""
    map_size: int = 64
    """Side of the world, in cells."""
    max_steps: int = 10_000
    """Steps after which a game is cut off."""
    resets_at_once: int = 1
    """Rows whose worlds are made together, of those that end in a step; about as many as do. On a GPU, more."""

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ValueError(f"env.max_steps is {self.max_steps}: it must be at least 1")
        if self.map_size < 16 or self.map_size % 16:
            nearest = max(round(self.map_size / 16), 1) * 16
            raise ValueError(f"env.map_size is {self.map_size}: it must be a multiple of 16 (try {nearest})")

    @property
    def observation_space(self) -> Space:
        """Around the player, 7 x 9 cells with 21 symbols each; then what it carries, how it is, and the light."""
        theirs = _made(self.map_size)
        (size,) = theirs.observation_space(theirs.default_params).shape
        return Box(0.0, 1.0, (size,))

    @property
    def action_space(self) -> Space:
        _goal_of(self)  # ValueError for an unknown achievement, before anything is trained
        return Discrete(_made(self.map_size).num_actions)

    def sample_level(self, key: jax.Array) -> World:
        """A world as Craftax makes it: milliseconds, about as much as 35 steps."""
        _, state = _made(self.map_size).reset_env(key, self._params)
        return World(map=state.map.astype(jnp.uint8))

    def reset(self, key: jax.Array, level: World) -> tuple[CraftaxState, TimeStep]:
        """Opens a game on the map of `level`; deterministic."""
        env = _made(self.map_size)
        # The map of this reset is thrown away, and the compiler leaves out how it is made: what is left costs nothing.
        _, opened = env.reset_env(key, self._params)
        theirs = with_types_of(opened.replace(map=level.map), _state_types(self.map_size))
        progress, facts = self._achieved(theirs)
        return CraftaxState(level=level, theirs=theirs), opening(env.get_obs(theirs), progress, facts)

    def step(self, key: jax.Array, state: CraftaxState, action: jax.Array) -> tuple[CraftaxState, TimeStep]:
        """One of Craftax-Classic's 17 actions."""
        env, params = _made(self.map_size), self._params
        obs, theirs, reward, _, _ = env.step_env(key, state.theirs, jnp.asarray(action, jnp.int32), params)
        theirs = with_types_of(theirs, _state_types(self.map_size))
        # Their end of a game is its time limit too: without the limit, what is left is its own end.
        terminated = env.is_terminal(theirs, params.replace(max_timesteps=NEVER))
        truncated = theirs.timestep >= self.max_steps
        progress, facts = self._achieved(theirs)
        state = CraftaxState(level=state.level, theirs=theirs)
        return state, transition(obs, reward, terminated, truncated, progress, facts)

    def get_level(self, state: CraftaxState) -> World:
        return state.level

    def level_metrics(self, level: World) -> dict[str, jax.Array]:
        """Nothing: worlds are large, and look much the same in numbers."""
        return {}

    @property
    def _params(self) -> Any:
        return _made(self.map_size).default_params.replace(max_timesteps=self.max_steps)

    def _achieved(self, theirs: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """(the share of the goal, 0 or 1 for each achievement by name)."""
        achieved = theirs.achievements.astype(jnp.float32)
        facts = {name: achieved[i] for i, name in enumerate(_achievements())}
        return achieved[jnp.array(_goal_of(self))].mean(), facts


@functools.cache
def _made(map_size: int) -> Any:
    """Craftax's environment without its automatic reset, always the same one; ValueError where it is not installed."""
    require("craftax", "craftax")
    # Only now: it makes arrays on import. The module with pictures, which takes minutes at first, is another.
    with jax.ensure_compile_time_eval():
        from craftax.craftax_classic.envs.craftax_state import StaticEnvParams
        from craftax.craftax_classic.envs.craftax_symbolic_env import CraftaxClassicSymbolicEnvNoAutoReset

        return CraftaxClassicSymbolicEnvNoAutoReset(StaticEnvParams(map_size=(map_size, map_size)))


@functools.cache
def _achievements() -> tuple[str, ...]:
    """The names of the achievements, in Craftax's order."""
    require("craftax", "craftax")
    with jax.ensure_compile_time_eval():
        from craftax.craftax_classic.constants import Achievement

    return tuple(achievement.name.lower() for achievement in sorted(Achievement, key=lambda a: a.value))


@functools.cache
def _goal_of(env: Craftax) -> tuple[int, ...]:
    """The numbers of the achievements that are the goal; ValueError for an unknown one."""
    known = _achievements()
    for name in env.goal:
        if name not in known:
            raise unknown_name("achievement in env.goal", name, known)
    return tuple(known.index(name) for name in env.goal or known)


@functools.cache
def _state_types(map_size: int) -> Any:
    """Shapes and dtypes of Craftax's state after a step: those at a reset are Python's numbers in part."""
    env = _made(map_size)

    def state_after_a_step(key: jax.Array) -> Any:
        _, state = env.reset_env(key, env.default_params)
        return env.step_env(key, state, jnp.zeros((), jnp.int32), env.default_params)[1]

    return jax.eval_shape(state_after_a_step, jax.random.key(0))


FAMILY = Family(cls=Craftax, name="Craftax")

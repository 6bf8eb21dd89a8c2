"""Craftax-Classic (Crafter in JAX, Matthews et al. 2024), observed as symbols. The level is a game's first map."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.family import Family
from minimax_lib.envs.foreign.libraries import with_types_of
from minimax_lib.envs.spaces import Box, Discrete, Space
from minimax_lib.extras import check_installed
from minimax_lib.registry import unknown_name
from minimax_lib.settings import keep_tuple

NEVER = 2**30  # steps


class CraftaxLevel(struct.PyTreeNode):
    """The level. Everything else at the start of a game is the same in every world."""

    map: jax.Array  # u8[map_size, map_size], a `BlockType` in each cell


class CraftaxState(struct.PyTreeNode):
    """A game. `level` is the level that `reset` was given, unchanged."""

    level: CraftaxLevel
    theirs: Any  # Craftax's own state


@dataclasses.dataclass(frozen=True)
class Craftax(Environment):
    """Craftax-Classic: gather, build, fight and stay alive. Each of 22 achievements pays 1, once in a game.

    A point of health gained or lost pays or costs 0.1. A game ends in lava or without health. Every step gives the same
    result as the PyPI package `craftax`. The achievements are the facts of an episode (`TimeStep.facts`).
    """

    goal: tuple[str, ...] = ()
    """Achievements that solve an episode, such as collect_diamond. An episode's progress is the share of them that it
    has. If none is named, they are all 22."""
    map_size: int = 64
    """Side of the world, in cells."""
    max_steps: int = 10_000
    """Steps after which a game is cut off."""
    resets_at_once: int = 1
    """Number of rows whose worlds are made together, when several games end in one step. About as many as end in a step
    is best; on a GPU, more."""

    def __post_init__(self) -> None:
        keep_tuple(self, "goal")
        if self.max_steps < 1:
            raise ValueError(f"env.max_steps is {self.max_steps}: it must be at least 1")
        if self.map_size < 16 or self.map_size % 16:
            nearest = max(round(self.map_size / 16), 1) * 16
            raise ValueError(f"env.map_size is {self.map_size}: it must be a multiple of 16 (try {nearest})")

    @property
    def observation_space(self) -> Space:
        """7 x 9 cells around the player with 21 symbols each, then its inventory, its condition, and the daylight."""
        theirs = made(self.map_size)
        (size,) = theirs.observation_space(theirs.default_params).shape
        return Box(0.0, 1.0, (size,))

    @property
    def action_space(self) -> Space:
        _goal_of(self)  # ValueError for an unknown achievement, before anything is trained
        return Discrete(made(self.map_size).num_actions)

    def sample_level(self, key: jax.Array) -> CraftaxLevel:
        """A world as Craftax makes it. This takes milliseconds, about as long as 35 steps."""
        _, state = made(self.map_size).reset_env(key, self._params)
        return CraftaxLevel(map=state.map.astype(jnp.uint8))

    def reset(self, key: jax.Array, level: CraftaxLevel) -> tuple[CraftaxState, TimeStep]:
        """The start of a game on the map of `level`. Deterministic."""
        env = made(self.map_size)
        # The map of this reset is not used, so the compiler removes its making. The rest costs almost nothing.
        _, opened = env.reset_env(key, self._params)
        theirs = with_types_of(opened.replace(map=level.map), state_types(self.map_size))
        progress, facts = self._achieved(theirs)
        return CraftaxState(level=level, theirs=theirs), opening(env.get_obs(theirs), progress, facts)

    def step(self, key: jax.Array, state: CraftaxState, action: jax.Array) -> tuple[CraftaxState, TimeStep]:
        """The result of one of Craftax-Classic's 17 actions."""
        env, params = made(self.map_size), self._params
        obs, theirs, reward, _, _ = env.step_env(key, state.theirs, jnp.asarray(action, jnp.int32), params)
        theirs = with_types_of(theirs, state_types(self.map_size))
        # Craftax counts its time limit as an end of the game. Without a limit, only real ends remain.
        terminated = env.is_terminal(theirs, params.replace(max_timesteps=NEVER))
        truncated = theirs.timestep >= self.max_steps
        progress, facts = self._achieved(theirs)
        state = CraftaxState(level=state.level, theirs=theirs)
        return state, transition(obs, reward, terminated, truncated, progress, facts)

    @property
    def _params(self) -> Any:
        return made(self.map_size).default_params.replace(max_timesteps=self.max_steps)

    def _achieved(self, theirs: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """(share of the goal that is achieved, 0 or 1 for each achievement by name)."""
        achieved = theirs.achievements.astype(jnp.float32)
        facts = {name: achieved[i] for i, name in enumerate(achievements())}
        return achieved[jnp.array(_goal_of(self))].mean(), facts


@functools.cache
def made(map_size: int) -> Any:
    """Craftax's environment without automatic reset: one object for each size. ValueError if it is not installed."""
    check_installed("craftax", "craftax", "env")
    # Imported here, since the import makes arrays. (The module with pictures, which takes minutes at first, is
    # another.)
    with jax.ensure_compile_time_eval():
        from craftax.craftax_classic.envs.craftax_state import StaticEnvParams
        from craftax.craftax_classic.envs.craftax_symbolic_env import CraftaxClassicSymbolicEnvNoAutoReset

        return CraftaxClassicSymbolicEnvNoAutoReset(StaticEnvParams(map_size=(map_size, map_size)))


@functools.cache
def achievements() -> tuple[str, ...]:
    """The names of the achievements, in Craftax's order."""
    check_installed("craftax", "craftax", "env")
    with jax.ensure_compile_time_eval():
        from craftax.craftax_classic.constants import Achievement

    return tuple(achievement.name.lower() for achievement in sorted(Achievement, key=lambda a: a.value))


@functools.cache
def _goal_of(env: Craftax) -> tuple[int, ...]:
    """The numbers of the achievements of the goal; ValueError for an unknown one."""
    known = achievements()
    for name in env.goal:
        if name not in known:
            raise unknown_name("achievement in env.goal", name, known)
    return tuple(known.index(name) for name in env.goal or known)


@functools.cache
def state_types(map_size: int) -> Any:
    """Shapes and dtypes of Craftax's state after a step. At a reset, some entries are Python numbers."""
    env = made(map_size)

    def state_after_a_step(key: jax.Array) -> Any:
        _, state = env.reset_env(key, env.default_params)
        return env.step_env(key, state, jnp.zeros((), jnp.int32), env.default_params)[1]

    return jax.eval_shape(state_after_a_step, jax.random.key(0))


FAMILY = Family(cls=Craftax, name="Craftax")

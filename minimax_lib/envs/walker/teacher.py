"""`WalkerTeacher`: the MDP in which a teacher designs a world of the walker, one number with each action."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import TimeStep, opening, transition
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.ued import TeacherEnvironment, designing
from minimax_lib.envs.walker.level import NUMBERS, Level, draw_seed, make_level
from minimax_lib.envs.walker.walker import BipedalWalker
from minimax_lib.settings import settings_of


class DesignedWorld(struct.PyTreeNode):
    """A design. `level` is the level that `reset` was given, unchanged."""

    level: Level
    shares: jax.Array  # f32[8], place of each number in its range, from 0 (lowest) to 1 (highest)
    seed: jax.Array  # u32[], of the designed level
    time: jax.Array  # i32[], numbers that have been set


@dataclasses.dataclass(frozen=True)
class WalkerTeacher(TeacherEnvironment):
    """A design sets the eight numbers of a level in their order, each within its range. Its seed is random.

    An action of -1 is the lowest value, and 1 the highest. The teacher sees what it has set so far, as shares of the
    ranges. The MDP itself pays nothing. Further actions do not change a finished design.
    """

    ranges: tuple[tuple[float, float], ...]
    """The lowest and the highest of each number. Those that are equal are not designed."""
    noise_dim: int = 10
    """Length of the random vector that the teacher sees. It is drawn anew at every step. 0: none."""

    @property
    def designed(self) -> tuple[int, ...]:
        """Which of the numbers are designed: those that have a range."""
        return tuple(i for i, (low, high) in enumerate(self.ranges) if low < high)

    @property
    def max_steps(self) -> int:
        """Steps of a design: one for each number."""
        return len(self.designed)

    @property
    def observation_space(self) -> Space:
        items: tuple[tuple[str, Space], ...] = (
            ("shares", Box(0, 1, (len(NUMBERS),))),
            ("time", Discrete(self.max_steps + 1)),
        )
        return Dict((*items, ("noise", Box(0, 1, (self.noise_dim,)))) if self.noise_dim else items)

    @property
    def action_space(self) -> Space:
        return Box(-1, 1, (1,))

    def sample_level(self, key: jax.Array) -> Level:
        """All numbers at their lowest. The key is for the seed."""
        return make_level([low for low, _ in self.ranges], draw_seed(key))

    def reset(self, key: jax.Array, level: Level) -> tuple[DesignedWorld, TimeStep]:
        """The start of a design. The key is for its seed and the noise."""
        k_seed, k_noise = jax.random.split(key)
        nothing = jnp.zeros(len(NUMBERS), jnp.float32)
        state = DesignedWorld(level, nothing, draw_seed(k_seed), jnp.zeros((), jnp.int32))
        return state, opening(self._show(k_noise, state))

    def step(self, key: jax.Array, state: DesignedWorld, action: jax.Array) -> tuple[DesignedWorld, TimeStep]:
        """The design with the next number set by `action` (f32[1]). The key is for the noise."""
        share = jnp.clip((jnp.asarray(action, jnp.float32)[0] + 1.0) / 2.0, 0.0, 1.0)
        # After the end of a design, no number is at this place, so nothing is set.
        places = np.array([*self.designed, len(NUMBERS)], np.int32)
        at = jnp.asarray(places)[jnp.minimum(state.time, self.max_steps)]
        shares = jnp.where(np.arange(len(NUMBERS)) == at, share, state.shares)
        time = jnp.minimum(state.time + 1, self.max_steps)
        state = state.replace(shares=shares, time=time)
        no = jnp.zeros((), bool)
        return state, transition(self._show(key, state), jnp.zeros((), jnp.float32), time >= self.max_steps, no)

    def to_level(self, state: DesignedWorld) -> Level:
        """The student's level."""
        low, high = jnp.asarray(self.ranges, jnp.float32).T
        return make_level(jnp.clip(low + state.shares * (high - low), low, high), state.seed)

    def _show(self, key: jax.Array, state: DesignedWorld) -> dict[str, jax.Array]:
        obs = {"shares": state.shares, "time": state.time}
        if self.noise_dim:
            obs["noise"] = jax.random.uniform(key, (self.noise_dim,), jnp.float32)
        return obs


_Design: Any = settings_of(WalkerTeacher, "ranges")


@dataclasses.dataclass(frozen=True)
class WalkerDesign(_Design):
    """How a teacher designs worlds of the walker. The ranges are those of the environment."""

    def __post_init__(self) -> None:
        if self.noise_dim < 0:
            raise ValueError(f"design.noise_dim is {self.noise_dim}: it must be at least 0")

    def build(self, env: Any) -> WalkerTeacher:
        """The teacher of levels of `env`; ValueError if it cannot design them."""
        with designing(self, env, BipedalWalker):
            return super().build(tuple((float(low), float(high)) for low, high in env.ranges))

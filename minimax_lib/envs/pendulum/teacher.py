"""`PendulumTeacher`: the MDP in which a teacher designs a pendulum, one parameter with each action."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import TimeStep, opening, transition
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.envs.pendulum.physics import PARAMETERS, Physics, unstacked, within
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space
from minimax_lib.envs.ued import TeacherEnvironment, designing
from minimax_lib.settings import settings_of


class DesignedPendulum(struct.PyTreeNode):
    """A design. `level` is the level that `reset` was given, unchanged."""

    level: Physics
    shares: jax.Array  # f32[5], place of each parameter in its range, from 0 (lowest) to 1 (highest)
    time: jax.Array  # i32[], parameters that have been set


@dataclasses.dataclass(frozen=True)
class PendulumTeacher(TeacherEnvironment):
    """A design sets mass, length, gravity, damping and torque, in this order, each within its range.

    An action of -1 is the lowest value, and 1 the highest. The MDP itself pays nothing. Its own level, from which a
    design starts, is the pendulum in the middle of all ranges. Further actions do not change a finished design.
    """

    ranges: Physics
    """A range for each parameter."""
    noise_dim: int = 10
    """Length of the random vector that the teacher sees. It is drawn anew at every step. 0: none."""

    @property
    def max_steps(self) -> int:
        """Steps of a design: one for each parameter."""
        return len(PARAMETERS)

    @property
    def observation_space(self) -> Space:
        items: tuple[tuple[str, Space], ...] = (
            ("shares", Box(0, 1, (len(PARAMETERS),))),
            ("time", Discrete(self.max_steps + 1)),
        )
        return Dict((*items, ("noise", Box(0, 1, (self.noise_dim,)))) if self.noise_dim else items)

    @property
    def action_space(self) -> Space:
        return Box(-1, 1, (1,))

    def sample_level(self, key: jax.Array) -> Physics:
        """The middle of all ranges. The key is not used."""
        return within(self.ranges, unstacked(jnp.full(len(PARAMETERS), 0.5, jnp.float32)))

    def reset(self, key: jax.Array, level: Physics) -> tuple[DesignedPendulum, TimeStep]:
        """The start of a design. The key is for the noise."""
        middle = jnp.full(len(PARAMETERS), 0.5, jnp.float32)
        state = DesignedPendulum(level=level, shares=middle, time=jnp.zeros((), jnp.int32))
        return state, opening(self._show(key, state))

    def step(self, key: jax.Array, state: DesignedPendulum, action: jax.Array) -> tuple[DesignedPendulum, TimeStep]:
        """The design with the next parameter set by `action` (f32[1]). The key is for the noise."""
        share = jnp.clip((jnp.asarray(action, jnp.float32)[0] + 1.0) / 2.0, 0.0, 1.0)
        # After the end of a design, no parameter has this number, so nothing is set.
        shares = jnp.where(jnp.arange(len(PARAMETERS)) == state.time, share, state.shares)
        time = jnp.minimum(state.time + 1, self.max_steps)
        state = DesignedPendulum(level=state.level, shares=shares, time=time)
        no = jnp.zeros((), bool)
        return state, transition(self._show(key, state), jnp.zeros((), jnp.float32), time >= self.max_steps, no)

    def to_level(self, state: DesignedPendulum) -> Physics:
        """The student's level."""
        return within(self.ranges, unstacked(state.shares))

    def _show(self, key: jax.Array, state: DesignedPendulum) -> dict[str, jax.Array]:
        obs = {"shares": state.shares, "time": state.time}
        if self.noise_dim:
            # Drawn anew at every step, as for the published teachers.
            obs["noise"] = jax.random.uniform(key, (self.noise_dim,), jnp.float32)
        return obs


_Design: Any = settings_of(PendulumTeacher, "ranges")


@dataclasses.dataclass(frozen=True)
class PendulumDesign(_Design):
    """How a teacher designs pendulums. The ranges are those of the environment."""

    def __post_init__(self) -> None:
        if self.noise_dim < 0:
            raise ValueError(f"design.noise_dim is {self.noise_dim}: it must be at least 0")

    def build(self, env: Any) -> PendulumTeacher:
        """The teacher of levels of `env`; ValueError if it cannot design them."""
        with designing(self, env, Pendulum):
            return super().build(env.ranges)

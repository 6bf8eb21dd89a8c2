"""`PendulumTeacher`: the MDP in which a teacher designs a pendulum, one parameter an action."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep, opening, transition
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.envs.pendulum.physics import PARAMETERS, Physics, unstacked, within
from minimax_lib.envs.spaces import Box, Dict, Discrete, Space


class DesignState(struct.PyTreeNode):
    """A design. `level` is what `reset` was given, untouched."""

    level: Physics
    shares: jax.Array  # f32[5] in [0, 1], how far through its range each parameter is
    time: jax.Array  # i32[], parameters that have been set


@dataclasses.dataclass(frozen=True)
class PendulumTeacher:
    """Mass, length, gravity, damping, then torque, each anywhere in its range; pays nothing.

    An action of -1 is the least and 1 the most. Its own level is the pendulum in the middle of all ranges, which a
    design starts from. A finished design stays as it is, whatever is done next.
    """

    ranges: Physics
    """A range for each parameter."""
    noise_dim: int = 10
    """Length of the noise in the observation; 0 for none."""

    @property
    def max_steps(self) -> int:
        """Steps of a design: one a parameter."""
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
        """The middle of all ranges, whatever the key."""
        return within(self.ranges, unstacked(jnp.full(len(PARAMETERS), 0.5, jnp.float32)))

    def reset(self, key: jax.Array, level: Physics) -> tuple[DesignState, TimeStep]:
        """Starts a design; the key is for the noise."""
        middle = jnp.full(len(PARAMETERS), 0.5, jnp.float32)
        state = DesignState(level=level, shares=middle, time=jnp.zeros((), jnp.int32))
        return state, opening(self._show(key, state))

    def step(self, key: jax.Array, state: DesignState, action: jax.Array) -> tuple[DesignState, TimeStep]:
        """Sets the next parameter to `action` (f32[1]). The key is for the noise."""
        share = jnp.clip((jnp.asarray(action, jnp.float32)[0] + 1.0) / 2.0, 0.0, 1.0)
        # Past the end there is no parameter of this number, so that nothing is set.
        shares = jnp.where(jnp.arange(len(PARAMETERS)) == state.time, share, state.shares)
        time = jnp.minimum(state.time + 1, self.max_steps)
        state = DesignState(level=state.level, shares=shares, time=time)
        no = jnp.zeros((), bool)
        return state, transition(self._show(key, state), jnp.zeros((), jnp.float32), time >= self.max_steps, no)

    def get_level(self, state: DesignState) -> Physics:
        return state.level

    def to_level(self, state: DesignState) -> Physics:
        """The student's level."""
        return within(self.ranges, unstacked(state.shares))

    def level_metrics(self, level: Physics) -> dict[str, jax.Array]:
        return {}

    def _show(self, key: jax.Array, state: DesignState) -> dict[str, jax.Array]:
        obs = {"shares": state.shares, "time": state.time}
        if self.noise_dim:
            # New at every step, as in the published teachers.
            obs["noise"] = jax.random.uniform(key, (self.noise_dim,), jnp.float32)
        return obs


@dataclasses.dataclass(frozen=True)
class PendulumDesign:
    """How a teacher designs pendulums; the ranges are those of the environment."""

    noise_dim: int = 10
    """Length of the random vector that the teacher sees, drawn anew at every step; 0 for none."""

    def __post_init__(self) -> None:
        if self.noise_dim < 0:
            raise ValueError(f"design.noise_dim is {self.noise_dim}: it must be at least 0")

    def build(self, env: Environment) -> PendulumTeacher:
        """The teacher of the levels of `env`; ValueError where it cannot design them."""
        if not isinstance(env, Pendulum):
            raise ValueError(
                f"environment {type(env).__name__!r} has no teacher here: PendulumDesign designs for Pendulum "
                "(the setting teacher.design names another)"
            )
        return PendulumTeacher(env.ranges, self.noise_dim)

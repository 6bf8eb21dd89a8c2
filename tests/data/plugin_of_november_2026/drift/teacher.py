"""The teacher: an environment in which three actions design a level."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from drift.world import Water
from minimax_lib.envs.base import opening, transition
from minimax_lib.envs.spaces import Box, Dict, Discrete
from minimax_lib.envs.ued import TeacherEnvironment

N_PARTS = 3  # start, buoy and current


class Design(struct.PyTreeNode):
    """A design. `level` is what `reset` was given: what the design starts from."""

    level: Water
    parts: jax.Array  # f32[3, 2] in [-1, 1]: start, buoy and current, as far as they have been set
    time: jax.Array  # i32[], parts that have been set


@dataclasses.dataclass(frozen=True)
class DriftTeacher(TeacherEnvironment):
    """Sets the start, the buoy, then the current. It pays nothing, and a finished design stays as it is."""

    fastest: float
    noise_dim: int

    max_steps = N_PARTS

    @property
    def observation_space(self):
        shown = ("parts", Box(-1.0, 1.0, (N_PARTS, 2))), ("time", Discrete(N_PARTS + 1))
        return Dict((*shown, ("noise", Box(0.0, 1.0, (self.noise_dim,)))))

    @property
    def action_space(self):
        return Box(-1.0, 1.0, (2,))

    def sample_level(self, key):
        middle = jnp.full(2, 0.5, jnp.float32)
        return Water(start=middle, buoy=middle, current=jnp.zeros(2, jnp.float32))

    def reset(self, key, level):
        state = Design(level=level, parts=jnp.zeros((N_PARTS, 2), jnp.float32), time=jnp.zeros((), jnp.int32))
        return state, opening(self.see(key, state))

    def step(self, key, state, action):
        # Past the end there is no part of this number, so that nothing is set.
        is_set_now = jnp.arange(N_PARTS)[:, None] == state.time
        parts = jnp.where(is_set_now, jnp.clip(action, -1.0, 1.0)[None], state.parts)
        time = jnp.minimum(state.time + 1, N_PARTS)
        state = state.replace(parts=parts, time=time)
        return state, transition(self.see(key, state), 0.0, time == N_PARTS, False)

    def see(self, key, state):
        # Without noise, the teacher would have only its own chance to design different levels.
        noise = jax.random.uniform(key, (self.noise_dim,), jnp.float32)
        return {"parts": state.parts, "time": state.time, "noise": noise}

    def to_level(self, state):
        start, buoy, current = state.parts
        return Water(start=(start + 1.0) / 2.0, buoy=(buoy + 1.0) / 2.0, current=self.fastest * current)


@dataclasses.dataclass(frozen=True)
class DriftDesign:
    """How a teacher designs waters; the fastest current is that of the environment."""

    noise_dim: int = 4
    """Length of the random vector that the teacher sees, drawn anew at every step."""

    def __post_init__(self):
        if self.noise_dim < 1:
            raise ValueError(f"design.noise_dim is {self.noise_dim}: it must be at least 1")

    def build(self, env):
        return DriftTeacher(fastest=env.fastest, noise_dim=self.noise_dim)

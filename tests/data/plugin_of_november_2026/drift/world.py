"""The environment: a boat that is carried off by a current, and steers for a buoy."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

import minimax_lib
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.spaces import Box

REACH, SPEED = 0.1, 0.1  # how near the boat must come to the buoy; how far its engine takes it in a step


class Water(struct.PyTreeNode):
    """A level. The water is the unit square."""

    start: jax.Array  # f32[2]
    buoy: jax.Array  # f32[2]
    current: jax.Array  # f32[2], how far it carries the boat in a step


class Boat(struct.PyTreeNode):
    """An episode. `level` is what `reset` was given."""

    level: Water
    position: jax.Array  # f32[2]
    time: jax.Array  # i32[], steps taken


@dataclasses.dataclass(frozen=True)
class Drift(Environment):
    """A boat in a current steers for a buoy. The sooner it arrives, the more it is paid."""

    fastest: float = 0.06
    """The fastest current of random levels, in each direction; the boat itself moves 0.1 in a step."""
    max_steps: int = 30
    """Steps after which an episode is cut off."""

    def __post_init__(self):
        if not 0 < self.fastest < 1:
            raise ValueError(f"env.fastest is {self.fastest}: it must be between 0 and 1")
        if self.max_steps < 1:
            raise ValueError(f"env.max_steps is {self.max_steps}: it must be at least 1")

    @property
    def observation_space(self):
        return Box(-1.0, 1.0, (4,))

    @property
    def action_space(self):
        return Box(-1.0, 1.0, (2,))

    def sample_level(self, key):
        k_start, k_buoy, k_current = jax.random.split(key, 3)
        return Water(
            start=jax.random.uniform(k_start, (2,), jnp.float32),
            buoy=jax.random.uniform(k_buoy, (2,), jnp.float32),
            current=jax.random.uniform(k_current, (2,), jnp.float32, -self.fastest, self.fastest),
        )

    def reset(self, key, level):
        state = Boat(level=level, position=level.start, time=jnp.zeros((), jnp.int32))
        return state, opening(self.observe(state))

    def step(self, key, state, action):
        position = jnp.clip(state.position + SPEED * action + state.level.current, 0.0, 1.0)
        state = Boat(level=state.level, position=position, time=state.time + 1)
        arrived = jnp.linalg.norm(position - state.level.buoy) < REACH
        reward = jnp.where(arrived, 1.0 - 0.9 * state.time / self.max_steps, 0.0)
        return state, transition(self.observe(state), reward, arrived, state.time >= self.max_steps)

    def observe(self, state):
        return jnp.concatenate([state.level.buoy - state.position, 2.0 * state.position - 1.0])

    def level_metrics(self, level):
        return {"distance": jnp.linalg.norm(level.buoy - level.start), "current": jnp.linalg.norm(level.current)}

    def draw_episodes(self, states, running, captions, columns):
        from drift.picture import draw_episodes  # only now: training needs no pictures

        return draw_episodes(states, running, captions, columns)


minimax_lib.register_env("Drift", Drift)

"""A game for two of your own: a plugin. `minimax-train --plugins docs.examples.race --env Race --runner selfplay`."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.registry import register_env
from minimax_lib.envs.spaces import Box, Discrete


class State(struct.PyTreeNode):
    level: jax.Array  # i32[], where the flag is
    place: jax.Array  # i32[2], of both runners
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Race(MultiAgentEnvironment):
    """Two runners want to stand on the flag alone. Each step, they go back, wait, or go on."""

    longest: int = 8
    """The flag is at most so many places away."""
    max_steps: int = 12
    """Steps after which nobody has won."""

    n_agents = 2
    zero_sum = True
    action_space = Discrete(3)

    @property
    def observation_space(self):
        return Box(-1.0, 1.0, (2,))

    def sample_level(self, key):
        return jax.random.randint(key, (), 2, self.longest + 1)

    def observe(self, state):
        """f32[2, 2]: for each runner, how far it and the other one are from the flag."""
        left = jnp.clip((state.level - state.place) / self.longest, -1.0, 1.0)
        return jnp.stack([left, left[::-1]], axis=1)

    def reset(self, key, level):
        state = State(level=level, place=jnp.zeros(2, jnp.int32), time=jnp.zeros((), jnp.int32))
        return state, agents_opening(self.observe(state), progress=jnp.zeros(2))

    def step(self, key, state, action):
        state = state.replace(place=state.place + action - 1, time=state.time + 1)
        there = state.place == state.level
        won = there & ~there[::-1]
        everybody = jnp.ones(2, bool)  # nobody dies in this game
        ended, late = won.any(), state.time >= self.max_steps
        return state, agents_transition(
            self.observe(state),
            reward=won.astype(jnp.float32) - won[::-1],
            playing=everybody,
            terminated=everybody & ended,
            truncated=everybody & late,
            over=ended | late,
            progress=won,
        )


register_env("Race", Race)

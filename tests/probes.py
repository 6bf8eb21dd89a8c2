"""Environments so small that the right policy and its value are known in closed form.

One environment, `Probe`, whose levels are tables: every probe below is a level, so that one compiled program learns
them all. An episode draws a cue, 0 or 1, at its reset; the table says what each step shows and pays.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.envs.base import Environment, TimeStep
from minimax_lib.envs.spaces import Discrete

MAX_LENGTH = 4
N_SHOWN = 4
N_ACTIONS = 2
BLANK = 3


@struct.dataclass
class ProbeLevel:
    """The tables are read at [clock, cue]."""

    length: jax.Array  # i32[], steps of an episode
    shown: jax.Array  # i32[MAX_LENGTH + 1, 2], the observation before each step, and after the last
    reward: jax.Array  # f32[MAX_LENGTH, 2, N_ACTIONS]
    truncates: jax.Array  # bool[], the last step is a time limit rather than an end


@struct.dataclass
class ProbeState:
    """An episode under way."""

    level: ProbeLevel
    cue: jax.Array  # i32[]
    clock: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Probe(Environment):
    """Episodes of at most MAX_LENGTH steps, two actions, four different observations."""

    max_steps: int = MAX_LENGTH
    observation_space = Discrete(N_SHOWN)
    action_space = Discrete(N_ACTIONS)

    def sample_level(self, key: jax.Array) -> ProbeLevel:
        """Constant reward with episodes of 1 to MAX_LENGTH steps; the observation tells the clock, up to BLANK."""
        length = jax.random.randint(key, (), 1, MAX_LENGTH + 1, jnp.int32)
        level = dataclasses.replace(constant_reward(), length=length, shown=clock_shown())
        return jax.tree.map(jnp.asarray, level)

    def reset(self, key: jax.Array, level: ProbeLevel) -> tuple[ProbeState, TimeStep]:
        cue = jax.random.randint(key, (), 0, 2, jnp.int32)
        state = ProbeState(level=level, cue=cue, clock=jnp.zeros((), jnp.int32))
        no = jnp.zeros((), bool)
        return state, TimeStep(obs=jnp.asarray(level.shown)[0, cue], reward=jnp.zeros(()), terminated=no, truncated=no)

    def step(self, key: jax.Array, state: ProbeState, action: jax.Array) -> tuple[ProbeState, TimeStep]:
        level, cue, clock = state.level, state.cue, state.clock + 1
        over = clock >= level.length
        return dataclasses.replace(state, clock=clock), TimeStep(
            obs=jnp.asarray(level.shown)[jnp.minimum(clock, MAX_LENGTH), cue],
            reward=jnp.asarray(level.reward)[jnp.minimum(state.clock, MAX_LENGTH - 1), cue, action],
            terminated=over & ~level.truncates,
            truncated=over & level.truncates,
        )

    def get_level(self, state: ProbeState) -> ProbeLevel:
        return state.level

    def level_metrics(self, level: ProbeLevel) -> dict[str, jax.Array]:
        return {}


def clock_shown() -> np.ndarray:
    """The observation is the clock."""
    clock = np.minimum(np.arange(MAX_LENGTH + 1, dtype=np.int32), BLANK)
    return np.broadcast_to(clock[:, None], (MAX_LENGTH + 1, 2))


def table(length: int, shown: np.ndarray, reward: np.ndarray, truncates: bool = False) -> ProbeLevel:
    """A level from tables that are broadcast to their full size. It is NumPy's, and so compiles nothing."""
    return ProbeLevel(
        length=np.asarray(length, np.int32),
        shown=np.broadcast_to(np.asarray(shown, np.int32), (MAX_LENGTH + 1, 2)),
        reward=np.broadcast_to(np.asarray(reward, np.float32), (MAX_LENGTH, 2, N_ACTIONS)),
        truncates=np.asarray(truncates, bool),
    )


def constant_reward() -> ProbeLevel:
    """One step, reward 1: the value is 1."""
    return table(1, np.array(BLANK), np.ones(1))


def action_reward() -> ProbeLevel:
    """One step, action 1 pays 1, action 0 costs 1: the value becomes 1, the policy action 1."""
    return table(1, np.array(BLANK), np.array([-1.0, 1.0]))


def observation_reward() -> ProbeLevel:
    """One step. The reward is -1 if 0 is shown and 1 if 1 is shown, for any action. The values are -1 and 1."""
    return table(1, np.array([0, 1]), np.array([[-1.0], [1.0]]))


def delayed_reward() -> ProbeLevel:
    """Three steps that show the clock, reward 1 after the last: the values are gamma^2, gamma and 1."""
    reward = np.zeros((MAX_LENGTH, 1, 1))
    reward[2] = 1.0
    return table(3, clock_shown(), reward)


def action_for_observation() -> ProbeLevel:
    """One step. The shown action pays 1, and the other -1. The value becomes 1."""
    return table(1, np.array([0, 1]), 2.0 * np.eye(2) - 1.0)


def memory() -> ProbeLevel:
    """Three steps; the cue is shown in the first alone, and the last pays 1 for that action and -1 for the other.

    What is seen in the last step is the same for both cues, which are equally likely: without memory the expected
    return of every policy is 0, with memory the best is 1.
    """
    shown = np.full((MAX_LENGTH + 1, 2), BLANK)
    shown[0], shown[2] = (0, 1), 2
    reward = np.zeros((MAX_LENGTH, 2, 2))
    reward[2] = 2.0 * np.eye(2) - 1.0
    return table(3, shown, reward)

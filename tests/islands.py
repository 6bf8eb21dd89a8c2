"""`Islands`: G copies of a small world in one environment. What happens on one does not matter on the others."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.multi_agent import MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Discrete


class WalkState(struct.PyTreeNode):
    level: jax.Array  # i32[2], place and goal at the start
    place: jax.Array  # i32[]
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Walk(Environment):
    """A line of 7 places. Reaching the goal pays 1, each step costs .1; the wolf takes one in ten."""

    max_steps: int = 9
    wolf: float = 0.1

    observation_space = Box(-7.0, 9.0, (3,))
    action_space = Discrete(3)

    def sample_level(self, key):
        return jax.random.randint(key, (2,), 0, 7, jnp.int32)

    def observe(self, state):
        return jnp.stack([state.place, state.level[1], state.time]).astype(jnp.float32)

    def reset(self, key, level):
        state = WalkState(level=level, place=level[0], time=jnp.zeros((), jnp.int32))
        return state, opening(self.observe(state), jnp.float32(0))

    def step(self, key, state, action):
        place = jnp.clip(state.place + action - 1, 0, 6)
        state = WalkState(level=state.level, place=place, time=state.time + 1)
        at_goal = place == state.level[1]
        eaten = jax.random.uniform(key) < self.wolf
        reward = jnp.where(at_goal, 1.0, -0.1)
        over = state.time >= self.max_steps
        return state, transition(self.observe(state), reward, at_goal | eaten, over, at_goal.astype(jnp.float32))


class IslandsState(struct.PyTreeNode):
    level: jax.Array  # i32[G, 2]
    islands: WalkState  # [G]
    alive: jax.Array  # bool[G]
    names: jax.Array  # i32[G], whose randomness an agent has


@dataclasses.dataclass(frozen=True)
class Islands(MultiAgentEnvironment):
    """`island` G times. The episode is over when nobody lives."""

    island: Walk = Walk()
    n_agents: int = 4

    @property
    def max_steps(self):
        return self.island.max_steps

    @property
    def observation_space(self):
        return self.island.observation_space

    @property
    def action_space(self):
        return self.island.action_space

    def sample_level(self, key):
        return jax.vmap(self.island.sample_level)(self.keys(key, jnp.arange(self.n_agents)))

    def keys(self, key, names):
        # One agent has the key of the environment itself: then it is the single-agent environment, bit for bit.
        return key[None] if self.n_agents == 1 else jax.vmap(jax.random.fold_in, (None, 0))(key, names)

    def reset(self, key, level):
        names = jnp.arange(self.n_agents, dtype=jnp.int32)
        islands, ts = jax.vmap(self.island.reset)(self.keys(key, names), level)
        state = IslandsState(level=level, islands=islands, alive=jnp.ones(self.n_agents, bool), names=names)
        return state, agents_opening(ts.obs, progress=ts.progress)

    def step(self, key, state, action):
        islands, ts = jax.vmap(self.island.step)(self.keys(key, state.names), state.islands, action)
        was, now = state.alive, state.alive & ~ts.done
        frozen = jax.tree.map(
            lambda x, y: jnp.where(was.reshape(-1, *(1,) * (x.ndim - 1)), x, y), islands, state.islands
        )
        step = agents_transition(
            jnp.where(now[:, None], ts.obs, 0.0) if self.n_agents > 1 else ts.obs,
            jnp.where(was, ts.reward, 0.0),
            was,
            was & ts.terminated,
            was & ts.truncated,
            ~now.any(),
            jnp.where(was, ts.progress, 0.0),
        )
        return state.replace(islands=frozen, alive=now), step

    def relabelled(self, state, order):
        return jax.tree.map(lambda x: x[order], state)


@dataclasses.dataclass(frozen=True)
class IslandsWithGoals(Islands):
    """The task of an agent is the place of its goal."""

    n_tasks: int = 7

    def with_tasks(self, level, tasks):
        return level.at[:, 1].set(tasks)

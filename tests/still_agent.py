"""A student without a network, for tests of what a curriculum does: its training step compiles in a fraction of the
time. It acts at random, and its values depend on what it sees and change with each update."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.envs.spaces import Discrete
from minimax_lib.models.distributions import distribution


@dataclasses.dataclass(frozen=True)
class Still:
    """Learns nothing. Its only parameter counts the updates."""

    action_space: Any
    gamma: float = 0.995
    gae_lambda: float = 0.98
    bootstrap_truncated: bool = False
    n_values: int = 1
    n_total_updates: int | None = None

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        pass

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        return TrainState(params=jax.random.uniform(key), opt_state=(), n_updates=jnp.zeros((), jnp.int32))

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        return ()

    def policy(self, params, obs, carry, first):
        assert isinstance(self.action_space, Discrete)
        value = self.value(params, obs, carry, first)
        return distribution(self.action_space, jnp.zeros((len(first), self.action_space.n))), value, carry

    def act(self, key, params, obs, carry, first):
        value = self.value(params, obs, carry, first)
        actions = jax.vmap(self.action_space.sample)(jax.random.split(key, len(first)))
        return actions, jnp.zeros_like(value), value, carry

    def value(self, params, obs, carry, first):
        numbers = jnp.concatenate([x.reshape(len(first), -1) for x in jax.tree.leaves(obs)], axis=1)
        return jnp.sin(params + numbers.astype(jnp.float32).sum(axis=1))

    def update(self, key, state, run):
        nothing = jnp.zeros((), jnp.float32)
        after = state.replace(params=state.params + 1.0, n_updates=state.n_updates + 1)
        return after, {"loss": nothing, "grad_norm": nothing}


def still_agent(env: Any) -> AgentPop:
    """The one student of `env`."""
    return AgentPop(Still(env.action_space))

"""A population of agents, each with its own parameters, as one agent with a leading axis."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.agents.base import Agent, TrainState
from minimax_lib.playing.rollout import Rollout
from minimax_lib.trees import mapped

# The students' axis of each field of a rollout [T, A, R, ...]. An agent does not learn from the final state.
ROLLOUT_AXES: Any = Rollout(steps=1, carry=0, last_value=0, final=None)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class AgentPop:
    """`n` agents that differ only in their parameters. The methods are those of `agent`, with a leading axis A = n.

    Rollouts are [T, A, R, ...]. A population of one calls the agent without the axis: a product with a batch of one is
    slower.
    """

    agent: Agent
    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the population has {self.n} agents: it must have at least 1")

    @property
    def gamma(self) -> float:
        return self.agent.gamma

    @property
    def gae_lambda(self) -> float:
        return self.agent.gae_lambda

    @property
    def bootstrap_truncated(self) -> bool:
        return self.agent.bootstrap_truncated

    @property
    def n_values(self) -> int:
        return self.agent.n_values

    @property
    def n_total_updates(self) -> int | None:
        return self.agent.n_total_updates

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        self.agent.check_batch(n_rows, n_steps)

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        return mapped(lambda key: self.agent.init(key, obs))(self._keys(key))

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        return self.agent.init_carry(shape)

    def policy(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, jax.Array, Any]:
        return mapped(self.agent.policy)(params, obs, carry, first)

    def act(
        self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Any]:
        return mapped(self.agent.act)(self._keys(key), params, obs, carry, first)

    def value(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> jax.Array:
        return mapped(self.agent.value)(params, obs, carry, first)

    def look(self, params: Any, run: Rollout) -> tuple[jax.Array, jax.Array]:
        """(f32[T, A, R, n], f32[T, A, R, K]), for `run` [T, A, R]."""
        # A vmap puts the students first, but a rollout has the steps first.
        seen = mapped(self.agent.look, (0, ROLLOUT_AXES))(params, run)
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), seen)

    def parameter_change(self, params: Any, run: Rollout, n_evals: int) -> jax.Array:
        """f32[A, B], of an agent that measures it."""
        agent: Any = self.agent
        return mapped(lambda params, run: agent.parameter_change(params, run, n_evals), (0, ROLLOUT_AXES))(params, run)

    def update(self, key: jax.Array, state: TrainState, run: Rollout) -> tuple[TrainState, dict[str, jax.Array]]:
        """Each agent learns from its own part of `run`. Metrics are means over the agents."""
        update = mapped(self.agent.update, (0, 0, ROLLOUT_AXES))
        state, metrics = update(self._keys(key), state, run)
        return state, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    def _keys(self, key: jax.Array) -> jax.Array:
        return jax.random.split(key, self.n)

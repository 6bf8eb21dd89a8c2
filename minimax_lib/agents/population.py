"""A population of agents with their own parameters, as one agent over a leading axis."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.agents.base import TrainState
from minimax_lib.agents.ppo import PPOAgent
from minimax_lib.rollout import Rollout

ROLLOUT_AXES: Any = Rollout(steps=1, carry=0, last_value=0, final=None)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class AgentPop:
    """`n` agents alike but for their parameters; the methods of `agent`, with a leading axis A = n throughout.

    Rollouts are [T, A, R, ...]. A population of one calls the agent itself: a product with a batch of one is slower.
    """

    agent: PPOAgent
    n: int = 1

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the population has {self.n} agents: it must have at least 1")

    @property
    def bootstrap_truncated(self) -> bool:
        return self.agent.bootstrap_truncated

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        self.agent.check_batch(n_rows, n_steps)

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        return self._map(lambda key: self.agent.init(key, obs))(self._keys(key))

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        return self.agent.init_carry(shape)

    def policy(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, jax.Array, Any]:
        return self._map(self.agent.policy)(params, obs, carry, first)

    def act(
        self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Any]:
        return self._map(self.agent.act)(self._keys(key), params, obs, carry, first)

    def value(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> jax.Array:
        return self._map(self.agent.value)(params, obs, carry, first)

    def look(self, params: Any, run: Rollout) -> tuple[jax.Array, jax.Array]:
        """(f32[T, A, R, n], f32[T, A, R, K]), for `run` [T, A, R]."""
        seen = self._map(self.agent.look, (0, ROLLOUT_AXES))(params, experience(run))
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), seen)

    def update(self, key: jax.Array, state: TrainState, run: Rollout) -> tuple[TrainState, dict[str, jax.Array]]:
        """Each agent learns from its own part of `run`; metrics are means over the agents."""
        update = self._map(self.agent.update, (0, 0, ROLLOUT_AXES))
        state, metrics = update(self._keys(key), state, experience(run))
        return state, jax.tree.map(lambda x: x.mean(axis=0), metrics)

    def _keys(self, key: jax.Array) -> jax.Array:
        return jax.random.split(key, self.n)

    def _map(self, function: Callable, in_axes: Any = 0) -> Callable:
        """`vmap` over the agents, or the same result by one call where there is one."""
        if self.n > 1:
            return jax.vmap(function, in_axes=in_axes)

        def call(*args: Any) -> Any:
            axes = (0,) * len(args) if in_axes == 0 else in_axes
            first = [squeezed(arg, axis) for arg, axis in zip(args, axes, strict=True)]
            return jax.tree.map(lambda x: x[None], function(*first))

        return call


def experience(run: Rollout) -> Rollout:
    """What an agent looks at: `run` without the environment's state and without what only scores read."""
    return dataclasses.replace(run, final=None, logits=None, values=None)


def squeezed(tree: Any, axis: Any) -> Any:
    """`tree` without its axis of length one; `axis` is an int, or a tree prefix of them."""
    return jax.tree.map(lambda a, part: jax.tree.map(lambda x: x.squeeze(a), part), axis, tree)

"""The protocol of an agent: pure functions of parameters, observations and memory."""

from typing import TYPE_CHECKING, Any, Protocol

import jax
from flax import struct

if TYPE_CHECKING:
    import distrax


class TrainState(struct.PyTreeNode):
    """What an agent learns. The model and the optimiser are static; the agent holds them."""

    params: Any
    opt_state: Any
    n_updates: jax.Array  # i32[], updates so far: rollouts that were learnt from
    average: Any = ()  # of the parameters over the updates, in the form of `params`; () if none is kept

    @property
    def evaluated(self) -> Any:
        """The parameters to evaluate, show and export: the average where one is kept, else `params`."""
        # Training itself, scores and curricula use `params`: those made the experience that is learnt from.
        return self.average if jax.tree.leaves(self.average) else self.params


class Agent(Protocol):
    """A policy that acts, values and learns: PPO, or your own.

    A single agent works on rows [R, ...]. `AgentPop` has the same members and works on [A, R, ...].
    Where `first` (bool[R]) is set, `obs` opens an episode, and the memory is cleared before it is used.
    """

    @property
    def gamma(self) -> float:
        """Discount factor."""
        ...

    @property
    def gae_lambda(self) -> float:
        """Lambda of generalised advantage estimation."""
        ...

    @property
    def bootstrap_truncated(self) -> bool:
        """Whether the value of the last observation is counted where an episode ran into its time limit."""
        ...

    @property
    def n_values(self) -> int:
        """K, the number of estimates of the value that `look` gives."""
        ...

    @property
    def n_total_updates(self) -> int | None:
        """Number of rollouts that the whole run learns from; None if it is not known."""
        ...

    def check_batch(self, n_rows: int, n_steps: int) -> None:
        """ValueError with one line if the agent cannot learn from rollouts of this size."""
        ...

    def init(self, key: jax.Array, obs: Any) -> TrainState:
        """The state before the first update; `obs` is one observation, without leading axes."""
        ...

    def init_carry(self, shape: tuple[int, ...]) -> Any:
        """Empty memory for rows of that shape ([R], or [A, R] for a population)."""
        ...

    def policy(
        self, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> "tuple[distrax.Distribution, jax.Array, Any]":
        """(action distribution, value f32[R], new memory)."""
        ...

    def act(
        self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Any]:
        """(sampled action, its log probability, value, new memory)."""
        ...

    def value(self, params: Any, obs: Any, carry: Any, first: jax.Array) -> jax.Array:
        """Value of `obs`, f32[R]."""
        ...

    def look(self, params: Any, run: Any) -> tuple[jax.Array, jax.Array]:
        """(parameters of the policy [..., n], all estimates of the value f32[..., K]) at every step of a `Rollout`."""
        ...

    def update(self, key: jax.Array, state: TrainState, run: Any) -> tuple[TrainState, dict[str, jax.Array]]:
        """(new state, f32[] metrics), after learning from a `Rollout`."""
        ...

    # For the score parameter_change, an agent has one more method, which says how far each level alone would move its
    # parameters: `parameter_change(params, run, n_evals)` is f32[B], the squared norm of the change, from a `Rollout`
    # with `n_evals` rows for each level.

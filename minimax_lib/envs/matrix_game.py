"""`MatrixGame`: both players choose one action at once, and a table says who pays whom."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.multi_agent import AgentTimeStep, MultiAgentEnvironment, agents_opening, agents_transition
from minimax_lib.envs.spaces import Box, Discrete, Space

Payoff = tuple[tuple[float, ...], ...]  # of the row player, who has a row for each action

MATCHING_PENNIES: Payoff = ((1, -1), (-1, 1))
ROCK_PAPER_SCISSORS: Payoff = ((0, -1, 1), (1, 0, -1), (-1, 1, 0))
# One win counts double. In equilibrium the actions are played with probability 1/4, 1/2, 1/4.
UNEVEN_ROCK_PAPER_SCISSORS: Payoff = ((0, -1, 2), (1, 0, -1), (-2, 1, 0))


class MatrixState(struct.PyTreeNode):
    """A game before or after its only step."""

    level: jax.Array  # i32[], always 0
    role: jax.Array  # i32[2], of each agent: 0 chooses the row, 1 the column


@dataclasses.dataclass(frozen=True)
class MatrixGame(MultiAgentEnvironment):
    """A zero-sum game of one step. The one who chooses the row gets `payoff[row][column]`, the other one loses it.

    If the payoff is antisymmetric, the two roles are the same game. Then all that the agents see is a constant.
    Otherwise they see which role they have. Agent 0 chooses the row.

    Both roles have the same number n of actions. For a table that is not square, repeat a row or a column: a second
    copy of an action changes nothing.
    """

    payoff: Payoff = ROCK_PAPER_SCISSORS
    """n rows of n numbers."""

    n_agents: ClassVar[int] = 2
    max_steps: ClassVar[int] = 1
    zero_sum: ClassVar[bool] = True  # type: ignore[misc]

    def __post_init__(self) -> None:
        rows = tuple(tuple(map(float, row)) for row in self.payoff)
        lengths = [len(row) for row in rows]
        if not rows or any(length != len(rows) for length in lengths):
            raise ValueError(f"payoff has {len(rows)} rows of lengths {lengths}: it must have as many rows as columns")
        for number in (number for row in rows for number in row):
            if not math.isfinite(number):
                raise ValueError(f"payoff holds {number}: it must be finite")
        object.__setattr__(self, "payoff", rows)  # also where it was given as lists or as an array

    @property
    def n_actions(self) -> int:
        return len(self.payoff)

    @property
    def is_symmetric(self) -> bool:
        """Whether the payoff is antisymmetric: the roles are the same game, and its value is 0."""
        actions = range(self.n_actions)
        return all(self.payoff[i][j] == -self.payoff[j][i] for i in actions for j in actions)

    @property
    def observation_space(self) -> Space:
        return Box(0, 1, (1,) if self.is_symmetric else (2,))

    @property
    def action_space(self) -> Space:
        return Discrete(self.n_actions)

    def sample_level(self, key: jax.Array) -> jax.Array:
        """i32[], 0: there is one level."""
        return jnp.zeros((), jnp.int32)

    def reset(self, key: jax.Array, level: jax.Array) -> tuple[MatrixState, AgentTimeStep]:
        state = MatrixState(level, jnp.arange(2, dtype=jnp.int32))
        return state, agents_opening(self.observe(state))

    def step(self, key: jax.Array, state: MatrixState, action: jax.Array) -> tuple[MatrixState, AgentTimeStep]:
        """What the choices `action` (i32[2]) bring. Deterministic."""
        row, column = jnp.where(state.role[0] == 0, action, action[::-1])
        paid = jnp.asarray(self.payoff, jnp.float32)[row, column]
        reward = jnp.where(state.role == 0, paid, -paid)
        yes = jnp.ones(2, bool)
        over = jnp.ones((), bool)
        return state, agents_transition(self.observe(state), reward, yes, yes, ~yes, over)

    def observe(self, state: MatrixState) -> jax.Array:
        """f32[2, 1] or f32[2, 2], what each agent sees: 1, or its role as one-hot."""
        if self.is_symmetric:
            return jnp.ones((2, 1), jnp.float32)
        return jax.nn.one_hot(state.role, 2, dtype=jnp.float32)

    def relabelled(self, state: MatrixState, order: jax.Array) -> MatrixState:
        """The agents have changed their roles; see `MultiAgentEnvironment.relabelled`."""
        return state.replace(role=state.role[order])


def exploitability(payoff: Payoff | jax.Array, policy: jax.Array, column: jax.Array | None = None) -> jax.Array:
    """f32[]: what the best answers gain, on average over the two roles; 0 in equilibrium, and never less.

    `policy` is f32[n], how often each row is played; `column` the same of the columns (by default `policy`, one policy
    for both roles). It is (max_i (A column)_i - min_j (policy A)_j) / 2, half of NashConv (Lanctot et al. 2017). In an
    antisymmetric game with one policy, that is max_i (A policy)_i: what the best pure answer wins from it.
    """
    table = jnp.asarray(payoff, jnp.float32)
    column = policy if column is None else column
    return ((table @ column).max() - (policy @ table).min()) / 2

"""Two-player games against opponents that do not learn: they are a part of the student's environment."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import BatchState, BatchTimeStep
from minimax_lib.envs.multi_agent import BatchMultiEnv, MultiAgentEnvironment, seated, taken
from minimax_lib.envs.restarts import LevelQueue, NoRestart
from minimax_lib.trees import mapped

OPPONENT_RETURN = "opponent_return"  # the fact that says what the other seat has got so far


class Duel(struct.PyTreeNode):
    """The opponents of a batch. Its rows are in P equal groups, one after another, with one opponent each."""

    slots: jax.Array  # i32[P], where the bank holds each of them; -1: it is a copy of the present student
    serials: jax.Array  # i32[P], the numbers of those copies; -1 as well
    params: Any  # [P, ...]


class DuelState(struct.PyTreeNode):
    """N games, and what the opponents remember of them."""

    games: BatchState
    seat: jax.Array  # i32[N], 0 or 1: where the student sits in this game
    obs: Any  # [N, ...], what the opponent sees
    first: jax.Array  # bool[N], this opens a game
    carry: Any  # [N, ...], the opponent's memory
    opponents: Any = ()  # the parameters of a `Duel`; () until `with_opponents`


@dataclasses.dataclass(frozen=True)
class BatchDuel:
    """The student's side of N two-player games, with the methods of `BatchEnv`. Only its seat is a row.

    The opponents act like the student in training: they sample their actions, or take the likeliest (`greedy`). Seats
    are drawn anew for every game, so that no student learns to play on one side only. Before the first step,
    `with_opponents` sets them.
    """

    games: BatchMultiEnv  # of a game for two, and one student
    agent: Agent  # a single one, which acts on rows [R, ...]
    n_groups: int = 1
    greedy: bool = False

    def __post_init__(self) -> None:
        n = self.games.env.n_agents
        if n != 2:
            name = type(self.games.env).__name__
            raise ValueError(f"{name} has {n} agents: opponents need a game for 2")
        if self.games.n_students != 1:
            raise ValueError(f"there are {self.games.n_students} students: with opponents there must be 1")
        if self.n_groups < 1:
            raise ValueError(
                f"there are {self.n_groups} groups of rows: there must be at least 1, with one opponent each"
            )

    @property
    def env(self) -> MultiAgentEnvironment:
        return self.games.env

    @property
    def n_students(self) -> int:
        return 1

    @property
    def n_evals(self) -> int:
        return self.games.n_evals

    @property
    def rows_per_level(self) -> int:
        return self.games.n_evals

    @property
    def n_agents(self) -> int:
        """The student alone."""
        return 1

    @property
    def restart(self) -> Any:
        return self.games.restart

    @property
    def restock_every(self) -> int:
        return self.games.restock_every

    def one_obs(self, key: jax.Array, level: Level) -> Any:
        return self.games.one_obs(key, level)

    def played_out(self, n_evals: int) -> "BatchDuel":
        """See `BatchEnv.played_out`."""
        games = dataclasses.replace(self.games, n_evals=n_evals, restart=NoRestart())
        return dataclasses.replace(self, games=games)

    def reset(self, key: jax.Array, levels: Level) -> tuple[DuelState, BatchTimeStep]:
        """Starts a game on each of `levels` [B, ...]."""
        k_games, k_seat = jax.random.split(key)
        games, ts = self.games.reset(k_games, levels)
        both = self._pairs(ts)
        seat = self._seats(k_seat, both.reward.shape[0])
        first = jnp.ones_like(seat, bool)
        state = DuelState(
            games=games,
            seat=seat,
            obs=taken(both.obs, 1 - seat),
            first=first,
            carry=self.agent.init_carry(first.shape),
        )
        return state, self._of_student(both, seat, taken(both.obs, seat))

    def with_opponents(self, state: DuelState, duel: Duel) -> DuelState:
        """`state` with these opponents, until others are set."""
        return state.replace(opponents=duel.params)

    def step(self, key: jax.Array, state: DuelState, action: Any) -> tuple[DuelState, BatchTimeStep]:
        """Takes the student's `action` [1, N, ...] in every game, beside its opponent's."""
        return self.step_stocked(key, self.restock(state), action)

    def step_stocked(self, key: jax.Array, state: DuelState, action: Any) -> tuple[DuelState, BatchTimeStep]:
        """See `BatchEnv.step_stocked`."""
        k_games, k_opponent, k_seat = jax.random.split(key, 3)
        answer, carry = self._act(k_opponent, state)
        own = jax.tree.map(lambda x: x[0], action)
        joint = jax.tree.map(
            lambda x: x.reshape(1, -1, *x.shape[2:]), seated((state.seat, 1 - state.seat), (own, answer))
        )
        games, ts = self.games.step_stocked(k_games, state.games, joint)
        both, opens = self._pairs(ts), ts.opens[0, ::2]
        # The next observation may open another game, in which the student may sit in the other seat.
        seat = jnp.where(opens, self._seats(k_seat, len(opens)), state.seat)
        after = state.replace(games=games, seat=seat, obs=taken(both.obs, 1 - seat), first=opens, carry=carry)
        return after, self._of_student(both, state.seat, taken(both.obs, seat))

    def _act(self, key: jax.Array, state: DuelState) -> tuple[Any, Any]:
        """(the opponents' actions [N, ...], their memory [N, ...])."""
        p = self.n_groups

        def one(params: Any, key: jax.Array, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, Any]:
            policy, _, carry = self.agent.policy(params, obs, carry, first)
            return policy.mode() if self.greedy else policy.sample(seed=key), carry

        rows = jax.tree.map(lambda x: x.reshape(p, -1, *x.shape[1:]), (state.obs, state.carry, state.first))
        # One product for all rows of an opponent. With an opponent for each row, nothing could be batched.
        acted = mapped(one)(state.opponents, jax.random.split(key, p), *rows)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), acted)

    def _pairs(self, ts: BatchTimeStep) -> BatchTimeStep:
        """The rows of both seats [1, 2 N, ...] as [N, 2, ...]."""
        return jax.tree.map(lambda x: x.reshape(-1, 2, *x.shape[2:]), ts)

    def _seats(self, key: jax.Array, n: int) -> jax.Array:
        return jax.random.bernoulli(key, shape=(n,)).astype(jnp.int32)

    def _of_student(self, both: BatchTimeStep, seat: jax.Array, obs: Any) -> BatchTimeStep:
        """The student's rows [1, N, ...]; `obs` is that of its seat in the game that goes on."""
        own, other = taken(both, seat), taken(both.stats.returns, 1 - seat)
        rows = own.replace(obs=obs, facts=own.facts | {OPPONENT_RETURN: other})
        return jax.tree.map(lambda x: x[None], rows)

    def restock(self, state: DuelState) -> DuelState:
        return state.replace(games=self.games.restock(state.games))

    def with_queue(self, state: DuelState, queue: LevelQueue) -> DuelState:
        return state.replace(games=self.games.with_queue(state.games, queue))

    def without_queue(self, state: DuelState) -> DuelState:
        return state.replace(games=self.games.without_queue(state.games))

    def numbers(self, state: DuelState) -> jax.Array | None:
        numbers = self.games.numbers(state.games)
        return None if numbers is None else numbers[:, ::2]

    def levels(self, state: DuelState) -> Level:
        return jax.tree.map(lambda x: x[:, ::2], self.games.levels(state.games))

"""Games against opponents that do not learn: they are a part of the student's environment."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import BatchState, BatchTimeStep
from minimax_lib.envs.multi_agent import BatchMultiEnv, MultiAgentEnvironment, seats_of_teams, taken
from minimax_lib.envs.restarts import LevelQueue, NoRestart
from minimax_lib.opponents.bank import SCRIPT
from minimax_lib.trees import mapped, tree_size, tree_where

OPPONENT_RETURN = "opponent_return"  # the fact that says what the other seats have got so far, in the mean


class Duel(struct.PyTreeNode):
    """The opponents of a batch. Its rows are in P equal groups, one after another, with one opponent each."""

    slots: jax.Array  # i32[P], where the bank holds each of them, or `bank.LIVE` or `bank.SCRIPT`
    serials: jax.Array  # i32[P], the numbers of those copies; -1 for what is not in the bank
    params: Any  # [P, ...]


class DuelState(struct.PyTreeNode):
    """N games of G agents, O of them opponents, and what the opponents remember of them."""

    games: BatchState
    seats: jax.Array  # i32[N, G], the seats in this game: first the student's, then the opponents'
    obs: Any  # [N * O, ...], what the opponents see
    first: jax.Array  # bool[N * O], this opens a game
    carry: Any  # [N * O, ...], the opponents' memories
    opponents: Any = ()  # the parameters of a `Duel`; () until `with_opponents`
    scripted: Any = ()  # bool[P], the opponent is the written player; () where that is never so


@dataclasses.dataclass(frozen=True)
class BatchDuel:
    """The student's side of N games, with the methods of `BatchEnv`. Only its seats are rows: row n * S + s is its seat
    s of game n.

    The opponents act like the student in training: they sample their actions, or take the likeliest (`greedy`). All
    opponents of a game have the same parameters. Seats are drawn anew for every game, so that no student learns to play
    on one side only. Before the first step, `with_opponents` sets them. With `may_be_scripted`, they may be the
    environment's written player.
    """

    games: BatchMultiEnv  # of one student
    agent: Agent  # a single one, which acts on rows [R, ...]
    n_groups: int = 1
    greedy: bool = False
    n_seats: int = 1  # S, the student's
    may_be_scripted: bool = False

    def __post_init__(self) -> None:
        check_seats(self.games.env, self.n_seats)
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
        return self.games.n_evals * self.n_seats

    @property
    def n_agents(self) -> int:
        """The student's seats alone."""
        return self.n_seats

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
        ts = self._by_game(ts)
        seats = self._seats(k_seat, len(ts.reward))
        theirs = self._theirs(ts.obs, seats)
        first = jnp.ones(tree_size(theirs), bool)
        state = DuelState(games=games, seats=seats, obs=theirs, first=first, carry=self.agent.init_carry(first.shape))
        return state, self._of_student(ts, seats, self._own(ts.obs, seats))

    def with_opponents(self, state: DuelState, duel: Duel) -> DuelState:
        """`state` with these opponents, until others are set."""
        scripted = duel.slots == SCRIPT if self.may_be_scripted else ()
        return state.replace(opponents=duel.params, scripted=scripted)

    def step(self, key: jax.Array, state: DuelState, action: Any) -> tuple[DuelState, BatchTimeStep]:
        """Takes the student's `action` [1, N, ...] in every game, beside its opponent's."""
        return self.step_stocked(key, self.restock(state), action)

    def step_stocked(self, key: jax.Array, state: DuelState, action: Any) -> tuple[DuelState, BatchTimeStep]:
        """See `BatchEnv.step_stocked`."""
        k_games, k_opponent, k_seat = jax.random.split(key, 3)
        answer, carry = self._act(k_opponent, state)
        if self.may_be_scripted:
            answer = self._scripted(jax.random.fold_in(k_opponent, 0), state, answer)
        games, ts = self.games.step_stocked(k_games, state.games, self._joint(state.seats, action, answer))
        ts = self._by_game(ts)
        opens = ts.opens[:, 0]
        # The next observation may open another game, in which the student may have other seats.
        seats = jnp.where(opens[:, None], self._seats(k_seat, len(opens)), state.seats)
        first = jnp.repeat(opens, seats.shape[1] - self.n_seats)
        after = state.replace(games=games, seats=seats, obs=self._theirs(ts.obs, seats), first=first, carry=carry)
        return after, self._of_student(ts, state.seats, self._own(ts.obs, seats))

    def _act(self, key: jax.Array, state: DuelState) -> tuple[Any, Any]:
        """(the opponents' actions [N * O, ...], their memories)."""
        p = self.n_groups

        def one(params: Any, key: jax.Array, obs: Any, carry: Any, first: jax.Array) -> tuple[Any, Any]:
            policy, _, carry = self.agent.policy(params, obs, carry, first)
            return policy.mode() if self.greedy else policy.sample(seed=key), carry

        rows = jax.tree.map(lambda x: x.reshape(p, -1, *x.shape[1:]), (state.obs, state.carry, state.first))
        # One product for all rows of an opponent. With an opponent for each row, nothing could be batched.
        acted = mapped(one)(state.opponents, jax.random.split(key, p), *rows)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), acted)

    def _scripted(self, key: jax.Array, state: DuelState, answer: Any) -> Any:
        """`answer` (the opponents' actions [N * O, ...]), with those of the written player where it is the opponent."""
        theirs = state.seats[:, self.n_seats :]
        keys = jax.random.split(key, theirs.shape)

        def of_game(keys: jax.Array, game: Any, seats: jax.Array) -> Any:
            return jax.vmap(lambda key, seat: self.env.bot(key, game, seat))(keys, seats)

        written = jax.vmap(of_game)(keys, state.games.env, theirs)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), written)
        return tree_where(jnp.repeat(state.scripted, theirs.size // self.n_groups), flat, answer)

    def _by_game(self, rows: Any) -> Any:
        """[N, G, ...] of the rows [1, N * G, ...] of all agents."""
        return jax.tree.map(lambda x: x.reshape(-1, self.env.n_agents, *x.shape[2:]), rows)

    def _joint(self, seats: jax.Array, own: Any, theirs: Any) -> Any:
        """The actions [1, N * G, ...] of all agents: the student's [1, N * S, ...] and the opponents' [N * O, ...]."""
        n = len(seats)
        place = jnp.argsort(seats, axis=1) if self.env.n_agents > 2 else seats  # of an exchange, the way back is itself

        def of(own: jax.Array, theirs: jax.Array) -> jax.Array:
            parts = (x.reshape(n, -1, *theirs.shape[1:]) for x in (own, theirs))
            return of_seats(jnp.concatenate(list(parts), axis=1), place).reshape(1, -1, *theirs.shape[1:])

        return jax.tree.map(of, own, theirs)

    def _own(self, by_game: Any, seats: jax.Array) -> Any:
        """[1, N * S, ...], what belongs to the student's seats."""
        mine = jax.tree.map(lambda x: of_seats(x, seats[:, : self.n_seats]), by_game)
        return jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), mine)

    def _theirs(self, by_game: Any, seats: jax.Array) -> Any:
        """[N * O, ...], what belongs to the opponents' seats."""
        others = jax.tree.map(lambda x: of_seats(x, seats[:, self.n_seats :]), by_game)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), others)

    def _seats(self, key: jax.Array, n: int) -> jax.Array:
        """i32[n, G], the seats of n games in any order of their teams, all equally likely."""
        size = self.env.team_size
        n_teams = self.env.n_agents // size
        if n_teams == 2:
            team = jax.random.bernoulli(key, shape=(n,)).astype(jnp.int32)
            return seats_of_teams(jnp.stack([team, 1 - team], axis=1), size)
        teams = jnp.argsort(jax.random.uniform(key, (n, n_teams)), axis=1).astype(jnp.int32)
        return seats_of_teams(teams, size)

    def _of_student(self, ts: BatchTimeStep, seats: jax.Array, obs: Any) -> BatchTimeStep:
        """The student's rows [1, N * S]; `obs` is that of its seats in the game that goes on."""
        own = self._own(ts.replace(obs=()), seats)
        others = mean_of_seats(of_seats(ts.stats.returns, seats[:, self.n_seats :]))
        told = jnp.repeat(others, self.n_seats)[None]
        return own.replace(obs=obs, facts=own.facts | {OPPONENT_RETURN: told})

    def restock(self, state: DuelState) -> DuelState:
        return state.replace(games=self.games.restock(state.games))

    def with_queue(self, state: DuelState, queue: LevelQueue) -> DuelState:
        return state.replace(games=self.games.with_queue(state.games, queue))

    def without_queue(self, state: DuelState) -> DuelState:
        return state.replace(games=self.games.without_queue(state.games))

    def numbers(self, state: DuelState) -> jax.Array | None:
        numbers = self.games.numbers(state.games)
        return None if numbers is None else self._own(self._by_game(numbers), state.seats)

    def levels(self, state: DuelState) -> Level:
        return self._own(self._by_game(self.games.levels(state.games)), state.seats)


def of_seats(x: jax.Array, seats: jax.Array) -> jax.Array:
    """[N, K, ...]: of `x` [N, G, ...], the parts of K seats of each game (i32[N, K])."""
    if x.shape[1] == 2:
        return jnp.stack([taken(x, seats[:, i]) for i in range(seats.shape[1])], axis=1)
    return jnp.take_along_axis(x, seats.reshape(*seats.shape, *(1,) * (x.ndim - 2)), axis=1)


def mean_of_seats(returns: jax.Array) -> jax.Array:
    """f32[...], the means of returns [..., S]. That of equal ones is exactly theirs, so that a draw is one."""
    first = returns[..., :1]
    return first[..., 0] + (returns - first).mean(axis=-1)


def check_seats(env: Any, n_seats: int, name: str = "n_seats") -> None:
    """ValueError where the student cannot have so many of the seats; `name` is what the setting is called."""
    game = type(env).__name__
    if not env.multi_agent or env.n_agents < 2:
        raise ValueError(f"{game} has 1 agent: opponents need a game for 2 or more, such as LaserTag or NMMO")
    if not 1 <= n_seats < env.n_agents:
        raise ValueError(
            f"{name} is {n_seats}: it must be between 1 and {env.n_agents - 1}, since {game} has {env.n_agents} agents"
        )
    if n_seats % env.team_size:
        nearest = min(max(1, round(n_seats / env.team_size)), env.n_agents // env.team_size - 1) * env.team_size
        raise ValueError(
            f"{name} is {n_seats}: it must be a multiple of {env.team_size}, the agents of a team (try {nearest})"
        )

"""Whole episodes of any length: one on each row, up to its end. Of one agent, or of a player in each seat of a game."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Level, progress_of
from minimax_lib.envs.multi_agent import seated, taken
from minimax_lib.envs.spaces import within
from minimax_lib.playing.players import Choose, Player, Trained, Turn, mode, sample
from minimax_lib.trees import tree_size, tree_where

__all__ = ["Choose", "Episodes", "Played", "Recording", "WholeEpisodes", "alone", "mode", "sample", "smaller_batches"]

# A batch is cut to a quarter as long as at least SMALL_BATCH rows are left. Each size is one more loop to compile, and
# a step of a small batch is cheap.
SMALL_BATCH, SHRINK = 256, 4


class Played(struct.PyTreeNode):
    """The outcome of one episode on each of R rows: [R], and [R, S] of what a game for S tells of each seat."""

    returns: jax.Array  # f32, undiscounted
    lengths: jax.Array  # i32[R], steps
    progress: jax.Array  # f32, at the end
    facts: dict[str, jax.Array]  # f32 each, at the end
    discounted: Any = ()  # f32, returns discounted by `WholeEpisodes.discount`; () where none is given

    @property
    def solved(self) -> jax.Array:
        """bool, the episode ended with its task done."""
        return self.progress >= 1


class Episodes(struct.PyTreeNode):
    """One episode on each of R rows, running or ended. Every leaf has a leading axis R."""

    key: jax.Array  # key[R], fixes everything random in the episode, independently of the other rows
    state: Any  # the environment's
    obs: Any
    carries: tuple[Any, ...]  # the memory of each player
    ended: jax.Array  # bool; later steps of the row do not count
    stats: Played  # constant where `ended`
    seats: tuple[jax.Array, ...] = ()  # i32[R], where each player sits; () in an environment of one agent


class Recording(struct.PyTreeNode):
    """Episodes on R rows, step by step; T is the environment's `max_steps`."""

    states: Any  # [T + 1, R, ...], states of the environment, from the start on
    running: jax.Array  # bool[T + 1, R], the state belongs to the episode, up to its last state
    stats: Played  # [R]


@dataclasses.dataclass(frozen=True)
class WholeEpisodes:
    """A player in each seat of one environment, with one row for each level. `alone` makes those of one agent.

    `params` holds the parameters of each player. `seats` (i32[R] for each) says where each player sits on each row.
    """

    env: Any  # an `Environment` with one player, or a `MultiAgentEnvironment` with as many as it has agents
    players: tuple[Player, ...]
    discount: float | None = None  # also counts returns that are discounted by this

    def play(self, key: jax.Array, params: tuple[Any, ...], levels: Level, seats: tuple[jax.Array, ...] = ()) -> Played:
        """The outcome of one episode on each of `levels` [R, ...].

        Runs until every row has ended, for `env.max_steps` at most. In a vmap that names `axes.SEED`, it runs until the
        rows of all seeds have ended. Rows that have ended are dropped along the way, so that a step of the last few
        episodes is cheaper than a step of all rows.
        """
        episodes = self.start(key, levels, seats)
        rows, stats = jnp.arange(tree_size(levels)), episodes.stats
        # The compiler must know all sizes. So the batch shrinks in a few steps, not with every episode.
        for n_left in (*smaller_batches(len(rows)), 0):
            episodes = self.play_until(n_left, params, episodes)
            stats = jax.tree.map(lambda x, own, rows=rows: x.at[rows].set(own), stats, episodes.stats)
            # False sorts before True, so running rows come first. Those that are dropped have just been recorded.
            left = jnp.argsort(episodes.ended)[:n_left]
            rows, episodes = jax.tree.map(lambda x, left=left: x[left], (rows, episodes))
        return stats

    def record(self, key: jax.Array, params: tuple[Any, ...], levels: Level) -> Recording:
        """The same episodes as `play` with the same key, step by step. For a few rows only: it keeps every state."""
        start = self.start(key, levels)

        def one_step(episodes: Episodes, _: None) -> tuple[Episodes, tuple[Any, jax.Array]]:
            after = self.step(params, episodes)
            # The state that ends an episode still belongs to it, so `ended` is that of before the step.
            return after, (after.state, ~episodes.ended)

        end, later = jax.lax.scan(one_step, start, None, self.env.max_steps)
        states, running = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (start.state, ~start.ended), later)
        return Recording(states=states, running=running, stats=end.stats)

    def start(self, key: jax.Array, levels: Level, seats: tuple[jax.Array, ...] = ()) -> Episodes:
        """The episodes before their first step, on `levels` [R, ...]."""
        n = tree_size(levels)
        k_reset, k_steps = jax.random.split(key)
        state, ts = jax.vmap(self.env.reset)(jax.random.split(k_reset, n), levels)
        none = jnp.zeros(ts.reward.shape, jnp.float32)
        return Episodes(
            key=jax.random.split(k_steps, n),
            state=state,
            obs=ts.obs,
            carries=tuple(player.init_carry(n) for player in self.players),
            ended=ts.over,
            stats=Played(returns=none, lengths=jnp.zeros(n, jnp.int32), progress=none, facts=ts.facts).replace(
                discounted=() if self.discount is None else none
            ),
            seats=seats,
        )

    def play_until(self, n_left: int, params: tuple[Any, ...], episodes: Episodes) -> Episodes:
        """The episodes after as many steps as it takes until at most `n_left` are running, on every seed of a vmap."""

        def too_many(episodes: Episodes) -> jax.Array:
            # Even if an environment never ends its episodes, the loop stops at the limit.
            under_way = ~episodes.ended & (episodes.stats.lengths < self.env.max_steps)
            # One answer for all seeds. With one for each, JAX would select between two whole states in every step.
            return axes.any_seed(under_way.sum(dtype=jnp.int32) > n_left)

        return jax.lax.while_loop(too_many, lambda episodes: self.step(params, episodes), episodes)

    def step(self, params: tuple[Any, ...], episodes: Episodes) -> Episodes:
        """The episodes after one step of every row."""
        time, n = episodes.stats.lengths, len(self.players)
        # Randomness comes from the episode's own key and time, so it does not change when other rows are dropped.
        keys = jax.vmap(lambda key, time: jax.random.split(jax.random.fold_in(key, time), n + 1))(episodes.key, time)
        action, carries = self._acted(keys, params, episodes, time == 0)
        state, ts = jax.vmap(self.env.step)(keys[:, n], episodes.state, action)
        returns = episodes.stats.returns + ts.reward
        stats = Played(returns=returns, lengths=time + 1, progress=progress_of(ts, returns), facts=ts.facts)
        if self.discount is not None:
            weight = self.discount ** time.astype(jnp.float32)
            stats = stats.replace(discounted=episodes.stats.discounted + weight * ts.reward)
        return episodes.replace(
            state=state,
            obs=ts.obs,
            carries=carries,
            ended=episodes.ended | ts.over,
            stats=tree_where(episodes.ended, episodes.stats, stats),
        )

    def _acted(
        self, keys: jax.Array, params: tuple[Any, ...], episodes: Episodes, first: jax.Array
    ) -> tuple[Any, tuple[Any, ...]]:
        """(the action of each row, the players' memories)."""
        actions, carries = [], []
        for i, player in enumerate(self.players):
            seat, obs = None, episodes.obs
            if episodes.seats:
                seat = episodes.seats[i]
                obs = taken(obs, seat)
            turn = Turn(state=episodes.state, seat=seat, obs=obs, first=first)
            action, carry = player.act(keys[:, i], params[i], turn, episodes.carries[i])
            actions.append(within(self.env.action_space, action))
            carries.append(carry)
        action = seated(episodes.seats, actions) if episodes.seats else actions[0]
        return action, tuple(carries)


def alone(env: Any, agent: Agent, choose: Choose = sample, discount: float | None = None) -> WholeEpisodes:
    """Episodes of one agent in an environment of one: `params` is (those of the agent,)."""
    return WholeEpisodes(env, (Trained(agent, choose),), discount)


def smaller_batches(n_rows: int) -> list[int]:
    """The sizes to which a batch of `n_rows` is cut, one after another. Empty for a small batch."""
    sizes = []
    while n_rows >= SHRINK * SMALL_BATCH:
        n_rows //= SHRINK
        sizes.append(n_rows)
    return sizes

"""Whole episodes of any length: one on each row, up to its end."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Environment, Level, progress_of
from minimax_lib.envs.spaces import within
from minimax_lib.trees import tree_size, tree_where

if TYPE_CHECKING:
    import distrax

# A batch is cut to a quarter as long as at least SMALL_BATCH rows are left. Each size is one more loop to compile, and
# a step of a small batch is cheap.
SMALL_BATCH, SHRINK = 256, 4
Choose = Callable[[jax.Array, "distrax.Distribution"], jax.Array]


def sample(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """An action drawn from the policy, as in the published evaluations."""
    return policy.sample(seed=key)


def mode(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """The policy's most likely action."""
    return policy.mode()


class Played(struct.PyTreeNode):
    """The outcome of one episode on each of R rows. Every leaf has a leading axis R."""

    returns: jax.Array  # f32, undiscounted
    lengths: jax.Array  # i32, steps
    progress: jax.Array  # f32, at the end
    facts: dict[str, jax.Array]  # f32 each, at the end

    @property
    def solved(self) -> jax.Array:
        """bool, the episode ended with its task done."""
        return self.progress >= 1


class Episodes(struct.PyTreeNode):
    """One episode on each of R rows, running or ended. Every leaf has a leading axis R."""

    key: jax.Array  # key[R], fixes everything random in the episode, independently of the other rows
    state: Any  # the environment's
    obs: Any
    carry: Any  # the agent's memory
    ended: jax.Array  # bool; later steps of the row do not count
    stats: Played  # constant where `ended`


class Recording(struct.PyTreeNode):
    """Episodes on R rows, step by step; T is the environment's `max_steps`."""

    states: Any  # [T + 1, R, ...], states of the environment, from the start on
    running: jax.Array  # bool[T + 1, R], the state belongs to the episode, up to its last state
    stats: Played  # [R]


@dataclasses.dataclass(frozen=True)
class WholeEpisodes:
    """One agent in one environment, with one row for each level."""

    env: Environment
    agent: Agent
    choose: Choose = sample

    def play(self, key: jax.Array, params: Any, levels: Level) -> Played:
        """The outcome of one episode on each of `levels` [R, ...].

        Runs until every row has ended, for `env.max_steps` at most. In a vmap that names `axes.SEED`, it runs until the
        rows of all seeds have ended. Rows that have ended are dropped along the way, so that a step of the last few
        episodes is cheaper than a step of all rows.
        """
        episodes = self.start(key, levels)
        rows, stats = jnp.arange(tree_size(levels)), episodes.stats
        # The compiler must know all sizes. So the batch shrinks in a few steps, not with every episode.
        for n_left in (*smaller_batches(len(rows)), 0):
            episodes = self.play_until(n_left, params, episodes)
            stats = jax.tree.map(lambda x, own, rows=rows: x.at[rows].set(own), stats, episodes.stats)
            # False sorts before True, so running rows come first. Those that are dropped have just been recorded.
            left = jnp.argsort(episodes.ended)[:n_left]
            rows, episodes = jax.tree.map(lambda x, left=left: x[left], (rows, episodes))
        return stats

    def record(self, key: jax.Array, params: Any, levels: Level) -> Recording:
        """The same episodes as `play` with the same key, step by step. For a few rows only: it keeps every state."""
        start = self.start(key, levels)

        def one_step(episodes: Episodes, _: None) -> tuple[Episodes, tuple[Any, jax.Array]]:
            after = self.step(params, episodes)
            # The state that ends an episode still belongs to it, so `ended` is that of before the step.
            return after, (after.state, ~episodes.ended)

        end, later = jax.lax.scan(one_step, start, None, self.env.max_steps)
        states, running = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (start.state, ~start.ended), later)
        return Recording(states=states, running=running, stats=end.stats)

    def start(self, key: jax.Array, levels: Level) -> Episodes:
        """The episodes before their first step, on `levels` [R, ...]."""
        n = tree_size(levels)
        k_reset, k_steps = jax.random.split(key)
        state, ts = jax.vmap(self.env.reset)(jax.random.split(k_reset, n), levels)
        return Episodes(
            key=jax.random.split(k_steps, n),
            state=state,
            obs=ts.obs,
            carry=self.agent.init_carry((n,)),
            ended=ts.done,
            stats=Played(
                returns=jnp.zeros(n, jnp.float32),
                lengths=jnp.zeros(n, jnp.int32),
                progress=jnp.zeros(n, jnp.float32),
                facts=ts.facts,
            ),
        )

    def play_until(self, n_left: int, params: Any, episodes: Episodes) -> Episodes:
        """The episodes after as many steps as it takes until at most `n_left` are running, on every seed of a vmap."""

        def too_many(episodes: Episodes) -> jax.Array:
            # Even if an environment never ends its episodes, the loop stops at the limit.
            under_way = ~episodes.ended & (episodes.stats.lengths < self.env.max_steps)
            # One answer for all seeds. With one for each, JAX would select between two whole states in every step.
            return axes.any_seed(under_way.sum(dtype=jnp.int32) > n_left)

        return jax.lax.while_loop(too_many, lambda episodes: self.step(params, episodes), episodes)

    def step(self, params: Any, episodes: Episodes) -> Episodes:
        """The episodes after one step of every row."""
        time = episodes.stats.lengths
        # Randomness comes from the episode's own key and time, so it does not change when other rows are dropped.
        keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.fold_in)(episodes.key, time))
        policy, _, carry = self.agent.policy(params, episodes.obs, episodes.carry, time == 0)
        action = jax.vmap(self.choose)(keys[:, 0], policy)
        action = within(self.env.action_space, action)
        state, ts = jax.vmap(self.env.step)(keys[:, 1], episodes.state, action)
        returns = episodes.stats.returns + ts.reward
        stats = Played(returns=returns, lengths=time + 1, progress=progress_of(ts, returns), facts=ts.facts)
        return Episodes(
            key=episodes.key,
            state=state,
            obs=ts.obs,
            carry=carry,
            ended=episodes.ended | ts.done,
            stats=tree_where(episodes.ended, episodes.stats, stats),
        )


def smaller_batches(n_rows: int) -> list[int]:
    """The sizes to which a batch of `n_rows` is cut, one after another. Empty for a small batch."""
    sizes = []
    while n_rows >= SHRINK * SMALL_BATCH:
        n_rows //= SHRINK
        sizes.append(n_rows)
    return sizes

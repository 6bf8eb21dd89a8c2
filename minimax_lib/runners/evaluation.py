"""Evaluation on held-out tasks: the whole suite as one batch, the first episode of every row exactly once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.batch import EpisodeStats
from minimax_lib.envs.registry import make_held_out
from minimax_lib.trees import tree_size, tree_where

if TYPE_CHECKING:
    import distrax

EVALUATION_SEED = 20230714  # apart from the seeds of training
SMALL_BATCH, SHRINK = 256, 4  # rows that are not worth a smaller program of their own; how much smaller it would be
Choose = Callable[[jax.Array, "distrax.Distribution"], jax.Array]


def sample(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """An action drawn from the policy, as in the published evaluations."""
    return policy.sample(seed=key)


def mode(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """The policy's most likely action."""
    return policy.mode()


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """On what the agent is evaluated while it trains, and how often."""

    every: int = 100
    """Gradient updates between two evaluations; 0 never evaluates."""
    tasks: tuple[str, ...] = ("validation", "TrainingDistribution")
    """Held-out tasks, or groups of them (validation, benchmark, all); TrainingDistribution is fresh random levels."""
    n_episodes: int = 10
    """Episodes on each task, for each seed."""
    greedy: bool = False
    """Take the most likely action; otherwise actions are sampled, as in the published evaluations."""
    protocol: str | None = None
    """Published rules that the tasks follow, where there are several (AMaze: minimax, dcd); none is their default."""

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("n_episodes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"eval.{name} is {getattr(self, name)}: it must be at least {least}")
        if not self.tasks:
            raise ValueError("eval.tasks is empty: name at least one (to train without evaluation: every=0)")
        twice = [task for task in self.tasks if self.tasks.count(task) > 1]
        if twice:
            raise ValueError(f"eval.tasks names {twice[0]!r} twice")

    def build(self, env: Environment, agent: Agent) -> "EvalRunner":
        """The runner that evaluates `agent` (a single one); ValueError for a task that `env` does not have."""
        options = {} if self.protocol is None else {"protocol": self.protocol}
        held_out = make_held_out(env, self.tasks, **options)
        return EvalRunner(held_out, agent, self.n_episodes, mode if self.greedy else sample)


class Episodes(struct.PyTreeNode):
    """One episode on each of R rows, under way or over. Every leaf leads with R."""

    key: jax.Array  # key[R], fixes all that is random in the episode, whatever is played beside it
    state: Any  # the environment's
    obs: Any
    carry: Any  # the agent's memory
    ended: jax.Array  # bool; what a row does after its end counts for nothing
    stats: EpisodeStats  # no longer changed where `ended`


class Recording(struct.PyTreeNode):
    """Episodes on R rows, step by step; T is the environment's `max_steps`."""

    states: Any  # [T + 1, R, ...], the environment's; the first is the start
    running: jax.Array  # bool[T + 1, R], the state belongs to the episode: it is no later than its last
    stats: EpisodeStats  # [R]


@dataclasses.dataclass(frozen=True)
class Player:
    """One agent in one environment, a row a level."""

    env: Environment
    agent: Agent
    choose: Choose = sample

    def play(self, key: jax.Array, params: Any, levels: Level) -> EpisodeStats:
        """Return and length of one episode on each of `levels` [R, ...]; both [R].

        Runs until every row has ended (on every seed of a vmap that names `axes.SEED`), `env.max_steps` at most. Rows
        that have ended are dropped along the way, so that a few long episodes do not cost what all of them would.
        """
        episodes = self.start(key, levels)
        rows, stats = jnp.arange(tree_size(levels)), episodes.stats
        for n_left in (*smaller_batches(len(rows)), 0):
            episodes = self.play_until(n_left, params, episodes)
            stats = jax.tree.map(lambda x, own, rows=rows: x.at[rows].set(own), stats, episodes.stats)
            left = jnp.argsort(episodes.ended)[:n_left]
            rows, episodes = jax.tree.map(lambda x, left=left: x[left], (rows, episodes))
        return stats

    def record(self, key: jax.Array, params: Any, levels: Level) -> Recording:
        """The episodes that `play` plays with the same key, step by step: for a handful of rows."""
        start = self.start(key, levels)

        def one_step(episodes: Episodes, _: None) -> tuple[Episodes, tuple[Any, jax.Array]]:
            after = self.step(params, episodes)
            return after, (after.state, ~episodes.ended)

        end, later = jax.lax.scan(one_step, start, None, self.env.max_steps)
        states, running = jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), (start.state, ~start.ended), later)
        return Recording(states=states, running=running, stats=end.stats)

    def start(self, key: jax.Array, levels: Level) -> Episodes:
        """Before the first step on `levels` [R, ...]."""
        n = tree_size(levels)
        k_reset, k_steps = jax.random.split(key)
        state, ts = jax.vmap(self.env.reset)(jax.random.split(k_reset, n), levels)
        return Episodes(
            key=jax.random.split(k_steps, n),
            state=state,
            obs=ts.obs,
            carry=self.agent.init_carry((n,)),
            ended=ts.done,
            stats=EpisodeStats(returns=jnp.zeros(n, jnp.float32), lengths=jnp.zeros(n, jnp.int32)),
        )

    def play_until(self, n_left: int, params: Any, episodes: Episodes) -> Episodes:
        """Steps until at most `n_left` episodes are under way, on every seed of a vmap."""

        def too_many(episodes: Episodes) -> jax.Array:
            under_way = ~episodes.ended & (episodes.stats.lengths < self.env.max_steps)
            return axes.any_seed(under_way.sum(dtype=jnp.int32) > n_left)

        return jax.lax.while_loop(too_many, lambda episodes: self.step(params, episodes), episodes)

    def step(self, params: Any, episodes: Episodes) -> Episodes:
        """One step of every row."""
        time = episodes.stats.lengths
        keys = jax.vmap(jax.random.split)(jax.vmap(jax.random.fold_in)(episodes.key, time))
        policy, _, carry = self.agent.policy(params, episodes.obs, episodes.carry, time == 0)
        action = jax.vmap(self.choose)(keys[:, 0], policy)
        state, ts = jax.vmap(self.env.step)(keys[:, 1], episodes.state, action)
        stats = EpisodeStats(returns=episodes.stats.returns + ts.reward, lengths=time + 1)
        return Episodes(
            key=episodes.key,
            state=state,
            obs=ts.obs,
            carry=carry,
            ended=episodes.ended | ts.done,
            stats=tree_where(episodes.ended, episodes.stats, stats),
        )


def smaller_batches(n_rows: int) -> list[int]:
    """The sizes that a batch of `n_rows` is cut to one after another; none where a step is cheap as it is."""
    sizes = []
    while n_rows >= SHRINK * SMALL_BATCH:
        n_rows //= SHRINK
        sizes.append(n_rows)
    return sizes


class EvalResult(struct.PyTreeNode):
    """M tasks, E episodes each; every leaf is [M, E], and [S, M, E] under a vmap over seeds."""

    returns: jax.Array  # f32, undiscounted
    solved: jax.Array  # bool, return > 0
    lengths: jax.Array  # i32, steps


@dataclasses.dataclass(frozen=True)
class EvalRunner:
    """Plays `n_episodes` episodes of one agent on every held-out task, all of them side by side."""

    held_out: HeldOut
    agent: Agent  # a single one: it acts on rows [R, ...]
    n_episodes: int
    choose: Choose = sample

    @property
    def names(self) -> tuple[str, ...]:
        """The tasks, in the order of the results."""
        return self.held_out.names

    @property
    def player(self) -> Player:
        return Player(self.held_out.env, self.agent, self.choose)

    def rows(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [M * n_episodes, ...]: row m * n_episodes + e is that of episode e on task m."""
        levels = self.held_out.sample(key, n_episodes)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), levels)

    def evaluate(self, key: jax.Array, params: Any) -> EvalResult:
        """Every task with the parameters of one agent. Pure; `jit` and `vmap` over seeds wrap it."""
        k_levels, k_play = jax.random.split(key)
        episodes = self.player.play(k_play, params, self.rows(k_levels, self.n_episodes))
        shape = (len(self.names), self.n_episodes)
        returns = episodes.returns.reshape(shape)
        return EvalResult(returns=returns, solved=returns > 0, lengths=episodes.lengths.reshape(shape))


def evaluation_keys(seeds: Sequence[int], evaluation_seed: int | jax.Array = 0) -> jax.Array:
    """key[S]: a key for each seed of a run; it depends neither on the seeds beside it nor on the training's keys."""
    base = jax.random.fold_in(jax.random.key(EVALUATION_SEED), evaluation_seed)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, np.asarray(seeds, np.uint32))

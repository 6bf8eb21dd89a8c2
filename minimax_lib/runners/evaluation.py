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
from minimax_lib.envs.batch import BatchEnv, BatchState, EpisodeStats, NoRestart
from minimax_lib.envs.registry import make_held_out
from minimax_lib.trees import tree_size, tree_where

if TYPE_CHECKING:
    import distrax

EVALUATION_SEED = 20230714  # apart from the seeds of training
Choose = Callable[[jax.Array, "distrax.Distribution"], jax.Array]


def sample(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """Actions drawn from the policy, as in the published evaluations."""
    return policy.sample(seed=key)


def mode(key: jax.Array, policy: "distrax.Distribution") -> jax.Array:
    """The policy's most likely actions."""
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


@struct.dataclass
class Episodes:
    """One episode on each of R rows, under way or over. What a row does after its end counts for nothing."""

    time: jax.Array  # i32[], steps taken
    state: BatchState  # R rows
    obs: Any  # [R, ...]
    carry: Any  # [R, ...], the agent's memory
    ended: jax.Array  # bool[R]
    stats: EpisodeStats  # [R], no longer changed where `ended`


@dataclasses.dataclass(frozen=True)
class Player:
    """One agent in one environment, a row a level."""

    env: Environment
    agent: Agent
    choose: Choose = sample

    @property
    def batch_env(self) -> BatchEnv:
        return BatchEnv(self.env, restart=NoRestart())

    def start(self, key: jax.Array, levels: Level) -> Episodes:
        """Before the first step on `levels` [R, ...]."""
        state, ts = self.batch_env.reset(key, levels)
        only = jax.tree.map(lambda x: x[0], ts)
        return Episodes(
            time=jnp.zeros((), jnp.int32),
            state=state,
            obs=only.obs,
            carry=self.agent.init_carry((tree_size(levels),)),
            ended=only.done,
            stats=only.stats,
        )

    def step(self, key: jax.Array, params: Any, episodes: Episodes) -> Episodes:
        """One step of every row."""
        k_act, k_env = jax.random.split(key)
        first = jnp.full(episodes.ended.shape, episodes.time == 0)
        policy, _, carry = self.agent.policy(params, episodes.obs, episodes.carry, first)
        state, ts = self.batch_env.step(k_env, episodes.state, self.choose(k_act, policy)[None])
        only = jax.tree.map(lambda x: x[0], ts)
        return Episodes(
            time=episodes.time + 1,
            state=state,
            obs=only.obs,
            carry=carry,
            ended=episodes.ended | only.done,
            stats=tree_where(episodes.ended, episodes.stats, only.stats),
        )

    def play(self, key: jax.Array, params: Any, levels: Level) -> EpisodeStats:
        """Return and length of one episode on each of `levels` [R, ...]; both [R].

        Runs until every row has ended (on every seed of a vmap that names `axes.SEED`), `env.max_steps` at most.
        """
        k_start, k_steps = jax.random.split(key)  # k_steps is only ever folded

        def unfinished(episodes: Episodes) -> jax.Array:
            return (episodes.time < self.env.max_steps) & axes.any_seed(~episodes.ended.all())

        def one_step(episodes: Episodes) -> Episodes:
            return self.step(jax.random.fold_in(k_steps, episodes.time), params, episodes)

        return jax.lax.while_loop(unfinished, one_step, self.start(k_start, levels)).stats

    def record(self, key: jax.Array, params: Any, levels: Level) -> "Recording":
        """The episodes that `play` plays with the same key, step by step: for a handful of rows."""
        k_start, k_steps = jax.random.split(key)  # k_steps is only ever folded
        start = self.start(k_start, levels)

        def one_step(episodes: Episodes, _: None) -> tuple[Episodes, tuple[Any, jax.Array]]:
            after = self.step(jax.random.fold_in(k_steps, episodes.time), params, episodes)
            return after, (after.state.env, ~episodes.ended)

        end, later = jax.lax.scan(one_step, start, None, self.env.max_steps)
        states, running = jax.tree.map(
            lambda x, xs: jnp.concatenate([x[None], xs]), (start.state.env, ~start.ended), later
        )
        return Recording(states=states, running=running, stats=end.stats)


@struct.dataclass
class Recording:
    """Episodes on R rows, step by step; T is the environment's `max_steps`."""

    states: Any  # [T + 1, R, ...], the environment's; the first is the start
    running: jax.Array  # bool[T + 1, R], the state belongs to the episode: it is no later than its last
    stats: EpisodeStats  # [R]


@struct.dataclass
class EvalResult:
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


def evaluation_keys(seeds: Sequence[int], evaluation_seed: int = 0) -> jax.Array:
    """key[S]: a key for each seed of a run; it depends neither on the seeds beside it nor on the training's keys."""
    base = jax.random.fold_in(jax.random.key(EVALUATION_SEED), evaluation_seed)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, np.asarray(seeds, np.uint32))

"""Evaluation on held-out tasks. The whole suite is one batch, and each of its rows plays exactly one episode."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import Agent
from minimax_lib.agents.population import AgentPop
from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.held_out import as_names
from minimax_lib.envs.multi_agent import batch_of, check_counted, over_agents
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.training_list import OF_RUN, list_called
from minimax_lib.loops import LEAST_EFFORT
from minimax_lib.playing.crowds import trained
from minimax_lib.playing.episodes import Choose, Played, Recording, WholeEpisodes, alone, mode, sample
from minimax_lib.playing.students import CurrentStudents
from minimax_lib.trees import mapped

EVALUATION_SEED = 20230714  # not a seed of training
LIVES = "lives"  # the measure that says how many lives are in the others


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """How often the agent is evaluated while it trains, and on which held-out tasks."""

    every: int = 100
    """Gradient updates between two evaluations. 0: no evaluation."""
    tasks: tuple[str, ...] = ("validation", "TrainingDistribution")
    """Held-out tasks, or groups of them (validation, benchmark, all). TrainingDistribution is fresh random levels.
    training_list is the run's own list of levels (--runner tasks, or plr with --runner.generator finite)."""
    n_episodes: int = 10
    """Episodes on each held-out task, for each seed."""
    greedy: bool = False
    """Take the most likely action. Otherwise actions are sampled, as in the published evaluations."""
    protocol: str | None = None
    """Published rules of the held-out tasks, if there are several (AMaze: minimax, dcd). None: their default."""

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("n_episodes", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"eval.{name} is {getattr(self, name)}: it must be at least {least}")
        if not self.tasks:
            raise ValueError("eval.tasks is empty: name at least one (every=0 trains without evaluation)")
        twice = [task for task in self.tasks if self.tasks.count(task) > 1]
        if twice:
            raise ValueError(f"eval.tasks names {twice[0]!r} twice")

    def of_run(self, runner: Any) -> Self:
        """The same for the runs of these settings of a runner; ValueError where they have no list of levels."""
        return dataclasses.replace(self, tasks=tasks_of_run(self.tasks, runner))

    def build(self, env: Environment, agent: Agent) -> "EvalRunner":
        """The runner that evaluates `agent`, a single one. ValueError for a held-out task that `env` lacks."""
        # Only environments with several protocols accept the option.
        options = {} if self.protocol is None else {"protocol": self.protocol}
        held_out = make_held_out(env, self.tasks, **options)
        if held_out.env.multi_agent:
            check_counted(held_out.env)
        if self.greedy and held_out.env.multi_agent:
            raise ValueError(
                f"eval.greedy is True: it must be False, as {type(held_out.env).__name__} has "
                f"{held_out.env.n_agents} agents that share the policy, and they sample their actions"
            )
        return EvalRunner(held_out, agent, self.n_episodes, mode if self.greedy else sample)


def tasks_of_run(tasks: str | Sequence[str], runner: Any) -> tuple[str, ...]:
    """`tasks`, with "training_list" by its full name; ValueError where the runner's settings have no list of levels."""
    tasks = as_names(tasks)
    if OF_RUN in tasks and not runner.n_listed:
        raise ValueError(
            f"the held-out task {OF_RUN!r} is the list of levels of --runner tasks or --runner.generator finite, and "
            f"this run has none: leave it out, or name a list by its length, such as {list_called(4000)}"
        )
    return tuple(list_called(runner.n_listed) if task == OF_RUN else task for task in tasks)


class EvalResult(struct.PyTreeNode):
    """Results on M held-out tasks with E episodes each. Every leaf is [M, E], and [S, M, E] under a vmap over seeds."""

    returns: jax.Array  # f32, undiscounted
    solved: jax.Array  # bool, its progress was 1 at the end; of several agents f32, by default the share of them
    lengths: jax.Array  # i32, steps
    facts: dict[str, jax.Array] = struct.field(default_factory=dict)  # f32 each, see `TimeStep.facts`
    # Where agents have their own tasks, of which there are N: by measure, the sums over all lives on each of them,
    # f32[M, N], and the number of these lives (LIVES).
    of_agents: dict[str, jax.Array] = struct.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class EvalRunner:
    """Plays `n_episodes` episodes of one agent on every held-out task, all episodes side by side."""

    held_out: HeldOut
    agent: Agent  # a single one, which acts on rows [R, ...]
    n_episodes: int
    choose: Choose = sample

    @property
    def names(self) -> tuple[str, ...]:
        """The held-out tasks, in the order of the results."""
        return self.held_out.names

    @property
    def episodes(self) -> WholeEpisodes:
        return alone(self.held_out.env, self.agent, self.choose)

    def rows(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [M * n_episodes, ...]. Row m * n_episodes + e belongs to episode e on task m."""
        levels = self.held_out.sample(key, n_episodes)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), levels)

    def _all_agents(self, key: jax.Array, params: Any, levels: Level) -> EvalResult:
        """One episode on each level [R, ...], in which all agents have this policy."""
        env: Any = self.held_out.env
        one = jax.tree.map(lambda x: x[None], params)
        students = CurrentStudents(batch_of(env), AgentPop(self.agent), one, 0)
        lives = students.attempts(key, levels, 1).episodes
        result = jax.tree.map(self.by_task, of_lives(env, lives))
        if env.tasks_of is None or env.n_tasks == 1:
            return result
        mine = jax.tree.map(lambda x: self.by_task(x[0]).reshape(len(self.names), -1), lives)
        tasks = self.by_task(jax.vmap(env.tasks_of)(levels)).reshape(len(self.names), -1)
        return result.replace(of_agents=sums_by_task(mine, tasks, env.n_tasks))

    def _one_agent(self, key: jax.Array, params: Any, levels: Level) -> EvalResult:
        """One episode on each level [R, ...]."""
        played = self.episodes.play(key, (params,), levels)
        result = EvalResult(played.returns, played.solved, played.lengths, played.facts)
        return jax.tree.map(self.by_task, result)

    def record(self, key: jax.Array, params: Any, levels: Level) -> Recording:
        """An episode on each of `levels` [R, ...], step by step. In a world of several agents, all have this policy."""
        env = self.held_out.env
        if env.multi_agent:
            return trained(env, self.agent, self.choose).recording(key, params, levels)
        return self.episodes.record(key, (params,), levels)

    @functools.cached_property
    def draw(self) -> jax.stages.Wrapped:
        """The levels [S, M * E, ...] of the evaluations with `keys` [S]. Compiled once for all callers of this runner.

        Drawing consists of many small operations, different ones for each task. As a part of the program that plays, it
        took three quarters of its compile time. Here it is compiled with little effort.
        """

        def draw_levels(keys: jax.Array) -> Level:
            return mapped(self._levels, axis_name=axes.SEED)(keys)

        return jax.jit(draw_levels, compiler_options=LEAST_EFFORT)

    def _levels(self, key: jax.Array) -> Level:
        return self.rows(jax.random.split(key)[0], self.n_episodes)

    def evaluate(self, key: jax.Array, params: Any) -> EvalResult:
        """The results of one agent's parameters on every held-out task. Pure: `jit` it, and `vmap` it over seeds."""
        return self.play(key, params, self._levels(key))

    def play(self, key: jax.Array, params: Any, levels: Level) -> EvalResult:
        """`evaluate`, on the levels that `draw` gives for this key. Pure, likewise."""
        k_play = jax.random.split(key)[1]
        # One episode a row. If rows played for a number of steps instead, short episodes would count more often.
        results = self._all_agents if self.held_out.env.multi_agent else self._one_agent
        return results(k_play, params, levels)

    def by_task(self, x: jax.Array) -> jax.Array:
        """[M, E, ...] of rows [M * E, ...]."""
        return x.reshape(len(self.names), self.n_episodes, *x.shape[1:])


def of_lives(env: Any, lives: Played) -> EvalResult:
    """Of lives [1, R, G], what `env.counted` counts [R], the means of the facts, and the longest life.

    All G agents are in a mean, those that died early too.
    """
    returns, solved = (over_agents(env, x[0]) for x in (lives.returns, lives.solved))
    facts = jax.tree.map(lambda x: x[0].mean(axis=-1, dtype=jnp.float32), lives.facts)
    return EvalResult(returns, solved, lives.lengths[0].max(axis=-1), facts)


def sums_by_task(lives: Played, tasks: jax.Array, n_tasks: int) -> dict[str, jax.Array]:
    """f32[M, N] by measure: the sums over lives [M, L] on each of N tasks (i32[M, L]), and how many there were."""
    found = {"solved_rate": lives.solved, "return": lives.returns, "length": lives.lengths, "progress": lives.progress}
    found |= {f"facts/{name}": values for name, values in lives.facts.items()} | {LIVES: jnp.ones(tasks.shape)}

    def summed(x: jax.Array) -> jax.Array:
        row = jnp.arange(len(tasks), dtype=jnp.int32)[:, None]
        return jnp.zeros((len(tasks), n_tasks), jnp.float32).at[row, tasks].add(x.astype(jnp.float32))

    return {name: summed(x) for name, x in found.items()}


def evaluation_keys(seeds: Sequence[int], evaluation_seed: int | jax.Array = 0) -> jax.Array:
    """key[S]: a key for each seed of a run. It depends neither on the other seeds nor on the keys of training."""
    # The seed itself is folded in, not its place in the run. So a seed is evaluated alike alone and beside others.
    base = jax.random.fold_in(jax.random.key(EVALUATION_SEED), evaluation_seed)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, np.asarray(seeds, np.uint32))

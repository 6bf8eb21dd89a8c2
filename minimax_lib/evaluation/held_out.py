"""Evaluation on held-out tasks: the whole suite is one batch, and each row of it plays exactly one episode."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import struct

from minimax_lib.agents.base import Agent
from minimax_lib.envs.base import Environment, HeldOut, Level
from minimax_lib.envs.registry import make_held_out
from minimax_lib.episodes import Choose, WholeEpisodes, mode, sample

EVALUATION_SEED = 20230714  # apart from the seeds of training


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
        # Only environments that have several protocols take the option at all.
        options = {} if self.protocol is None else {"protocol": self.protocol}
        held_out = make_held_out(env, self.tasks, **options)
        return EvalRunner(held_out, agent, self.n_episodes, mode if self.greedy else sample)


class EvalResult(struct.PyTreeNode):
    """M tasks, E episodes each; every leaf is [M, E], and [S, M, E] under a vmap over seeds."""

    returns: jax.Array  # f32, undiscounted
    solved: jax.Array  # bool, the episode ended with its task done
    lengths: jax.Array  # i32, steps
    facts: dict[str, jax.Array] = struct.field(default_factory=dict)  # f32 each, what else the environment tells


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
    def episodes(self) -> WholeEpisodes:
        return WholeEpisodes(self.held_out.env, self.agent, self.choose)

    def rows(self, key: jax.Array, n_episodes: int) -> Level:
        """Levels [M * n_episodes, ...]: row m * n_episodes + e is that of episode e on task m."""
        levels = self.held_out.sample(key, n_episodes)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), levels)

    def evaluate(self, key: jax.Array, params: Any) -> EvalResult:
        """Every task with the parameters of one agent. Pure; `jit` and `vmap` over seeds wrap it."""
        k_levels, k_play = jax.random.split(key)
        # One episode a row, never as many as fit into some number of steps: short episodes would then count more often.
        played = self.episodes.play(k_play, params, self.rows(k_levels, self.n_episodes))
        shape = (len(self.names), self.n_episodes)
        return EvalResult(
            returns=played.returns.reshape(shape),
            solved=played.solved.reshape(shape),
            lengths=played.lengths.reshape(shape),
            facts={name: x.reshape(shape) for name, x in played.facts.items()},
        )


def evaluation_keys(seeds: Sequence[int], evaluation_seed: int | jax.Array = 0) -> jax.Array:
    """key[S]: a key for each seed of a run; it depends neither on the seeds beside it nor on the training's keys."""
    # Folded by the seed and not split by its place: a seed has the same evaluation alone, beside others, and pooled.
    base = jax.random.fold_in(jax.random.key(EVALUATION_SEED), evaluation_seed)
    return jax.vmap(jax.random.fold_in, (None, 0))(base, np.asarray(seeds, np.uint32))

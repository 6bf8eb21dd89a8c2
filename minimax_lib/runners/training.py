"""The one training step: propose levels, roll out the students, update them, let the curriculum observe."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import Agent, TrainState
from minimax_lib.curricula.base import SOURCE_NAMES, Curriculum, LevelBatch, Play
from minimax_lib.curricula.scores import population_regret, relative_regret
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.rollout import Rollout, episode_returns, rollout

SHARED_SEED = 20230713  # decisions that are common to all seeds and devices come from this, never from a run's seed


class RunnerState(struct.PyTreeNode):
    """A whole run: this pytree is the checkpoint."""

    clock: jax.Array  # i32[], steps taken; with `seed` it fixes all randomness of the next step
    seed: jax.Array  # key[]
    students: TrainState  # [A, ...]
    curriculum: Any


@dataclasses.dataclass(frozen=True)
class Runner:
    """A curriculum, a population of students and an environment, as two pure functions: `init` and `step`.

    `step` is written for one seed on one device. Scan over updates, vmap over seeds (`axis_name=axes.SEED`) and
    shard_map over devices wrap it.
    """

    env: Environment
    agent: Agent  # an AgentPop
    curriculum: Curriculum
    n_steps: int
    bootstrap_truncated: bool = False
    looks: bool = False  # the curriculum reads `logits` and `values` of the rollouts

    @property
    def n_students(self) -> int:
        return self.agent.n  # type: ignore[attr-defined]

    @property
    def batch_env(self) -> BatchEnv:
        return BatchEnv(self.env, n_students=self.n_students, restart=self.curriculum.restart)

    def env_steps(self, clock: int) -> int:
        """Environment steps that the students have taken in the first `clock` steps of the runner."""
        in_rollouts = self.n_students * self.curriculum.n_rows * self.n_steps
        return clock * in_rollouts + self.curriculum.extra_env_steps(clock)

    def init(self, key: jax.Array) -> RunnerState:
        """The state before the first step; `key` is the run's seed."""
        k_init, k_run = jax.random.split(key)  # k_run is only ever folded
        k_level, k_reset, k_students, k_curriculum = jax.random.split(k_init, 4)
        _, ts = self.env.reset(k_reset, self.env.sample_level(k_level))
        return RunnerState(
            clock=jnp.zeros((), jnp.int32),
            seed=k_run,
            students=self.agent.init(k_students, ts.obs),
            curriculum=self.curriculum.init(k_curriculum),
        )

    def step(self, state: RunnerState) -> tuple[RunnerState, dict[str, jax.Array]]:
        """One batch of levels, and f32[] metrics of it (NaN where there was nothing to measure)."""
        clock = axes.common(state.clock)
        shared, local = self.keys(state)
        k_propose, k_rollout, k_update, k_observe = jax.random.split(local, 4)
        play = self.player(state)

        curriculum, batch = self.curriculum.propose(shared, k_propose, clock, state.curriculum, play)
        runs = play(k_rollout, batch.levels)
        if self.looks:
            logits, values = self.agent.look(state.students.params, runs)
            runs = runs.replace(logits=logits, values=values)
        students, losses = self._update(k_update, state.students, runs, batch.train)
        curriculum, report = self.curriculum.observe(k_observe, clock, curriculum, batch, runs)

        metrics = losses | return_metrics(runs) | self._level_metrics(batch) | report
        next_state = state.replace(clock=state.clock + 1, students=students, curriculum=curriculum)
        return next_state, axes.device_mean(metrics)

    def keys(self, state: RunnerState) -> tuple[jax.Array, jax.Array]:
        """(a key that is the same on every seed and device, this seed's and device's own), for the next step."""
        clock = axes.common(state.clock)
        shared = jax.random.fold_in(jax.random.key(SHARED_SEED), clock)
        return shared, axes.device_key(jax.random.fold_in(state.seed, clock))

    def player(self, state: RunnerState) -> Play:
        """Rolls out the students of `state` on any levels [B, ...]: (key, levels) -> rollouts [T, A, B]."""

        def play(key: jax.Array, levels: Level) -> Rollout:
            params = state.students.params
            return rollout(key, self.batch_env, self.agent, params, levels, self.n_steps, self.bootstrap_truncated)

        return play

    def _update(
        self, key: jax.Array, students: TrainState, runs: Rollout, train: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """The students after learning from the curriculum's `train_rows`, or unchanged with losses NaN."""
        rows = self.curriculum.train_rows
        runs = Rollout(
            steps=jax.tree.map(lambda x: x[:, :, rows], runs.steps),
            carry=jax.tree.map(lambda x: x[:, rows], runs.carry),
            last_value=runs.last_value[:, rows],
            final=None,
        )
        learn = jax.jit(self.agent.update)  # traced once for the shapes of its losses and the branch
        shapes = jax.eval_shape(learn, key, students, runs)[1]
        no_losses = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        return jax.lax.cond(train, lambda: learn(key, students, runs), lambda: (students, no_losses))

    def _level_metrics(self, batch: LevelBatch) -> dict[str, jax.Array]:
        """Means over the levels of each source; NaN for a source that the batch has none of."""
        facts = jax.vmap(self.env.level_metrics)(batch.levels)
        means = {}
        for source in self.curriculum.sources:
            rows = batch.source == source
            for name, value in facts.items():
                means[f"level/{SOURCE_NAMES[source]}/{name}"] = axes.mean_where(rows, value)
        return means


def return_metrics(runs: Rollout) -> dict[str, jax.Array]:
    """Return, solved rate and number of the first student's completed episodes (each counts once; NaN if none).

    With several students, those of each as well, and the mean regret of the levels on which all finished an episode.
    """
    episodes = episode_returns(runs.steps)
    n = axes.device_sum(episodes.count.sum(axis=1).astype(jnp.float32))
    returns = axes.device_sum((episodes.mean * episodes.count).sum(axis=1)) / n
    solved = axes.device_sum(episodes.solved.sum(axis=1)) / n
    metrics = {"return": returns[0], "solved_rate": solved[0], "episodes": n[0]}
    n_students = len(n)
    if n_students == 1:
        return metrics
    for i in range(n_students):
        metrics |= {f"student_{i}/return": returns[i], f"student_{i}/solved_rate": solved[i]}
    known = (episodes.count > 0).all(axis=0)
    regret = (relative_regret if n_students == 2 else population_regret)(episodes)
    return metrics | {"regret": axes.mean_where(known, regret)}

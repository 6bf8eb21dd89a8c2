"""The one training step: propose levels, roll out the students, update them, let the curriculum observe."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula.base import SOURCE_NAMES, Curriculum, LevelBatch
from minimax_lib.curricula.scores import population_regret, relative_regret
from minimax_lib.curricula.students import CurrentStudents
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.rollout import EpisodeReturns, Rollout

SHARED_SEED = 20230713  # decisions that are common to all seeds and devices come from this, never from a run's seed


class RunnerState(struct.PyTreeNode):
    """A whole run: this pytree is the checkpoint."""

    clock: jax.Array  # i32[], steps taken; with `seed` it fixes all randomness of the next step
    seed: jax.Array  # key[]
    students: TrainState  # [A, ...]
    curriculum: Any


@dataclasses.dataclass(frozen=True)
class Runner:
    """A curriculum, a population of students and their environment, as two pure functions: `init` and `step`.

    `step` is written for one seed on one device. Scan over updates, vmap over seeds (`axis_name=axes.SEED`) and
    shard_map over devices wrap it.
    """

    batch_env: BatchEnv
    agent: AgentPop
    curriculum: Curriculum
    n_steps: int

    @property
    def env(self) -> Environment:
        """One instance of the environment."""
        return self.batch_env.env

    @property
    def env_steps_per_step(self) -> int:
        """Environment steps that the students take in one step of the runner, but for what the curriculum adds."""
        return self.agent.n * self.curriculum.plan.n_rows * self.n_steps

    def extra_env_steps(self, state: RunnerState) -> Count:
        """What the curriculum has added; with the leading axes of `state`."""
        return self.curriculum.extra_env_steps(state.curriculum)

    def init(self, key: jax.Array) -> RunnerState:
        """The state before the first step; `key` is the run's seed."""
        k_init, k_run = jax.random.split(key)  # k_run is only ever folded
        k_level, k_reset, k_students, k_curriculum = jax.random.split(k_init, 4)
        # A network is made for the shapes of its observations: which level they show does not matter.
        _, ts = self.env.reset(k_reset, self.env.sample_level(k_level))
        return RunnerState(
            clock=jnp.zeros((), jnp.int32),
            seed=k_run,
            students=self.agent.init(k_students, ts.obs),
            curriculum=self.curriculum.init(k_curriculum),
        )

    def step(self, state: RunnerState) -> tuple[RunnerState, dict[str, jax.Array]]:
        """The state after one batch of levels, and f32[] metrics of the batch (NaN where nothing could be measured)."""
        clock = axes.common(state.clock)
        shared, local = self.keys(state)
        k_propose, k_rollout, k_update, k_observe = jax.random.split(local, 4)
        players = self.students(state)

        curriculum, batch = self.curriculum.propose(shared, k_propose, clock, state.curriculum, players)
        batch.check_shapes(self.curriculum.plan.n_rows)
        outcome = players.play(k_rollout, batch)
        students, losses = self._update(k_update, state.students, outcome.runs, batch.train)
        # The outcome holds the parameters that played, not the updated ones: scores that look at the network are about
        # the policy whose rollout they score.
        curriculum, report = self.curriculum.observe(k_observe, clock, curriculum, batch, outcome)
        chex.assert_trees_all_equal_shapes_and_dtypes(curriculum, state.curriculum)

        metrics = losses | return_metrics(outcome.episodes) | self._level_metrics(batch) | report
        next_state = state.replace(clock=state.clock + 1, students=students, curriculum=curriculum)
        # Some metrics are sums over all devices already, and so equal on them: the mean leaves those as they are.
        return next_state, axes.device_mean(metrics)

    def keys(self, state: RunnerState) -> tuple[jax.Array, jax.Array]:
        """Two keys for the next step: one that is the same on every seed and device, one of this seed and device."""
        # Both follow from the clock, and none is handed from step to step: any step can be computed again, and a
        # resumed run ends bit-identical to one that was not interrupted.
        clock = axes.common(state.clock)
        shared = jax.random.fold_in(jax.random.key(SHARED_SEED), clock)
        return shared, axes.device_key(jax.random.fold_in(state.seed, clock))

    def students(self, state: RunnerState) -> CurrentStudents:
        """The students of `state`, who can play any levels."""
        return CurrentStudents(self.batch_env, self.agent, state.students.params, self.n_steps)

    def _update(
        self, key: jax.Array, students: TrainState, runs: Rollout, train: jax.Array
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        """The students after learning from the rows that the plan names; unchanged, with losses NaN, unless `train`."""
        runs = runs.rows(slice(self.curriculum.plan.n_train_rows))
        learn = jax.jit(self.agent.update)  # traced once for the shapes of its losses and the branch
        shapes = jax.eval_shape(learn, key, students, runs)[1]
        no_losses = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), shapes)
        # `train` is the same on every seed, so that this stays a branch: scoring steps pay for no gradient.
        return jax.lax.cond(train, lambda: learn(key, students, runs), lambda: (students, no_losses))

    def _level_metrics(self, batch: LevelBatch) -> dict[str, jax.Array]:
        """Means over the levels of each source; NaN for a source that the batch has none of."""
        facts = jax.vmap(self.env.level_metrics)(batch.levels)
        means = {}
        for source in self.curriculum.plan.sources:
            rows = batch.source == source
            for name, value in facts.items():
                means[f"level/{SOURCE_NAMES[source]}/{name}"] = axes.mean_where(rows, value)
        return means


def return_metrics(episodes: EpisodeReturns) -> dict[str, jax.Array]:
    """Mean return, solved rate and number of the first student's completed episodes; the means are NaN if none.

    With several students, those of each as well, and the mean regret of the levels on which all finished an episode.
    """
    # Sums come before the division, so that every episode counts once. In a mean of the rows' means, one long episode
    # would count as much as a row of many short ones.
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

"""Levels designed by a teacher that learns: PAIRED (Dennis et al. 2020) and its relatives.

Which game it is depends on what the teacher is paid and on the number of students: the regret of two (PAIRED) or more
(population PAIRED), or minus the return of one (the minimax adversary).
"""

import dataclasses

import jax
import jax.numpy as jnp

from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import NEW, LevelBatch, Play, level_batch
from minimax_lib.curricula.scores import ScoreRows
from minimax_lib.envs.base import Level
from minimax_lib.envs.batch import SameLevel
from minimax_lib.envs.ued import BatchUEDEnv
from minimax_lib.rollout import Rollout, episode_returns, rollout


@dataclasses.dataclass(frozen=True)
class DesignedLevels:
    """Every level is designed by the teacher, with an empty memory, in an MDP of its own.

    On its last step the teacher is paid the `score` of the students' rollouts on the level; then it learns, with its
    own settings. A design on which no episode finished pays nothing.
    """

    env: BatchUEDEnv
    agent: AgentPop  # the teacher, a population of one
    n_rows: int
    score: ScoreRows
    train_rows = slice(None)
    sources = (NEW,)
    restart = SameLevel()

    def extra_env_steps(self, clock: int) -> int:
        return 0

    def init(self, key: jax.Array) -> TrainState:
        k_canvas, k_reset, k_agent = jax.random.split(key, 3)
        teacher = self.env.env.teacher
        _, ts = teacher.reset(k_reset, teacher.sample_level(k_canvas))
        return self.agent.init(k_agent, ts.obs)

    def propose(
        self, shared: jax.Array, key: jax.Array, clock: jax.Array, state: TrainState, play: Play
    ) -> tuple[TrainState, LevelBatch]:
        k_canvas, k_rollout = jax.random.split(key)
        canvases = self.env.canvases(k_canvas, self.n_rows)
        n_steps, bootstraps = self.env.env.teacher.max_steps, self.agent.bootstrap_truncated
        design = rollout(k_rollout, self.env.teacher, self.agent, state.params, canvases, n_steps, bootstraps)
        assert design.final is not None
        batch = level_batch(self.env.designs(design.final), NEW, train=True)
        return state, batch.replace(context=design.replace(final=None))

    def observe(
        self, key: jax.Array, clock: jax.Array, state: TrainState, batch: LevelBatch, runs: Rollout
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        scores = self.score(runs, episode_returns(runs.steps).best.max(axis=0))
        known = jnp.isfinite(scores)
        reward = jnp.where(known, scores, 0.0)
        state, metrics = self.agent.update(key, state, paid(batch.context, reward))
        metrics = metrics | {
            "reward": reward.mean(),
            "unpaid": 1.0 - known.mean(dtype=jnp.float32),
            "diversity": mean_hamming_distance(batch.levels),
        }
        return state, {f"teacher/{name}": value for name, value in metrics.items()}


def paid(design: Rollout, reward: jax.Array) -> Rollout:
    """The teacher's rollout [T, 1, B] with `reward` (f32[B]) on the last step of each design."""
    steps = design.steps
    assert steps.valid is not None  # its environment restarts nothing
    last = steps.done & steps.valid
    return design.replace(steps=steps.replace(reward=jnp.where(last, reward[None, None], 0.0)))


def mean_hamming_distance(levels: Level) -> jax.Array:
    """f32[]: in how many entries (cells, coordinates) two different rows of `levels` [B, ...] differ; NaN if B is 1."""
    rows = [x.reshape(x.shape[0], -1) for x in jax.tree.leaves(levels)]
    n = rows[0].shape[0]

    def differing(i: jax.Array) -> jax.Array:
        return sum((x != x[i][None]).sum(dtype=jnp.float32) for x in rows)

    total = jax.lax.map(differing, jnp.arange(n, dtype=jnp.int32)).sum()
    return total / jnp.float32(n * (n - 1))

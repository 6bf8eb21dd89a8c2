"""How often each task of a list is solved: whole episodes of the current students, inside the compiled program."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.counts import Count
from minimax_lib.curricula.base import Students
from minimax_lib.envs.base import Level


class EvaluationState(struct.PyTreeNode):
    """What is remembered of evaluations."""

    rate: jax.Array  # f32[], mean over the tasks that were measured last
    steps: jax.Array  # u32[], environment steps of the last evaluation on this device
    env_steps: Count  # of all evaluations on this device

    @staticmethod
    def none() -> "EvaluationState":
        """No evaluation yet."""
        return EvaluationState(jnp.full((), jnp.nan, jnp.float32), jnp.zeros((), jnp.uint32), Count.zero())


@dataclasses.dataclass(frozen=True)
class TaskEvaluation:
    """Every `every` rollouts, each of the `measured` tasks is played for `n_episodes` whole episodes.

    All episodes count, however long they take. A count of the first that end would favour short ones. The first
    evaluation comes before anything is learnt.
    """

    every: int
    n_episodes: int
    measured: tuple[int, ...]  # task numbers
    n_at_once: int  # tasks that a device plays side by side

    def is_due(self, clock: jax.Array) -> jax.Array:
        """bool[], the same on every seed and device."""
        return axes.common(clock) % self.every == 0

    def rates(self, key: jax.Array, table: Level, students: Students) -> tuple[jax.Array, jax.Array]:
        """(f32[len(measured)], mean success of the students on each task; u32[], environment steps on this device)."""
        n_chunks = -(-len(self.measured) // (self.n_at_once * axes.n_devices()))
        wanted = axes.n_devices() * n_chunks * self.n_at_once
        # The last tasks are filled up with the first, so that all devices and chunks have equally many.
        tasks = jnp.asarray(np.resize(self.measured, wanted).reshape(axes.n_devices(), n_chunks, -1), jnp.int32)

        def played(keyed: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            key, numbers = keyed
            attempts = students.attempts(key, jax.tree.map(lambda x: x[numbers], table), self.n_episodes)
            return attempts.episodes.solved.mean(axis=(0, 2), dtype=jnp.float32), attempts.env_steps

        # One part is played after another. So memory does not grow with the number of tasks.
        rates, env_steps = jax.lax.map(played, (jax.random.split(key, n_chunks), tasks[axes.device_index()]))
        return axes.all_devices(rates.reshape(-1), 0)[: len(self.measured)], env_steps.sum(dtype=jnp.uint32)

    def everywhere(self, rates: jax.Array, n_tasks: int) -> tuple[jax.Array, jax.Array]:
        """(f32[n_tasks], bool[n_tasks]): the rates by task, 0 where it was not measured; whether it was."""
        places = jnp.asarray(self.measured, jnp.int32)
        known = np.zeros(n_tasks, bool)
        known[list(self.measured)] = True
        return jnp.zeros(n_tasks, jnp.float32).at[places].set(rates), jnp.asarray(known)

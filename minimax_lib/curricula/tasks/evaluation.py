"""How often each task of a list is solved: whole episodes of the current students, inside the compiled program."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.counts import Count
from minimax_lib.curricula.base import Students
from minimax_lib.envs.base import Level
from minimax_lib.playing.episodes import Played


class EvaluationState(struct.PyTreeNode):
    """What is remembered of evaluations."""

    rate: jax.Array  # f32[], mean over the tasks that were measured last
    steps: jax.Array  # u32[], environment steps of the last evaluation on this device
    env_steps: Count  # of all evaluations on this device

    @staticmethod
    def none() -> "EvaluationState":
        """No evaluation yet."""
        return EvaluationState(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.uint32), Count.zero())


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
    # The agents of a world, of whom the best one counts, by its progress; 1: each counts, if it solves the task.
    best_of: int = dataclasses.field(default=1, kw_only=True)

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
            return self._rates(attempts.episodes), attempts.env_steps

        # One part is played after another. So memory does not grow with the number of tasks.
        rates, env_steps = jax.lax.map(played, (jax.random.split(key, n_chunks), tasks[axes.device_index()]))
        return axes.all_devices(rates.reshape(-1), 0)[: len(self.measured)], env_steps.sum(dtype=jnp.uint32)

    def _rates(self, episodes: Played) -> jax.Array:
        """f32[B], the rates of success of episodes [A, B, E]; the agents of a world stand side by side."""
        if self.best_of == 1:
            return episodes.solved.mean(axis=(0, 2), dtype=jnp.float32)
        worlds = episodes.progress.reshape(*episodes.progress.shape[:2], -1, self.best_of)
        return worlds.max(axis=3).mean(axis=(0, 2), dtype=jnp.float32)

    def everywhere(self, rates: jax.Array, n_tasks: int) -> tuple[jax.Array, jax.Array]:
        """(f32[n_tasks], bool[n_tasks]): the rates by task, 0 where it was not measured; whether it was."""
        places = jnp.asarray(self.measured, jnp.int32)
        known = np.zeros(n_tasks, bool)
        known[list(self.measured)] = True
        return jnp.zeros(n_tasks, jnp.float32).at[places].set(rates), jnp.asarray(known)


@dataclasses.dataclass(frozen=True)
class LifeEvaluation(TaskEvaluation):
    """The same for agents with their own tasks. A world is filled with agents that have different tasks.

    So `n_episodes` lives on each of N tasks cost N * n_episodes / G worlds. Where agents meet, a life depends on the
    others, as in training. So where all agents of a world are drawn the same task, they have the same one here too.
    """

    env: Any  # a `MultiAgentEnvironment` that has `with_tasks`
    in_common: bool = False  # all agents of a world have the same task, in at least `n_episodes` lives

    def rates(self, key: jax.Array, table: Level, students: Students) -> tuple[jax.Array, jax.Array]:
        """As `TaskEvaluation.rates`; the worlds are the levels of `table` in turn. `n_at_once` counts worlds."""
        tasks = self._tasks_of_worlds()
        _, n_chunks, _, n_agents = tasks.shape
        n_levels = jax.tree.leaves(table)[0].shape[0]
        worlds = np.arange(tasks.size // n_agents, dtype=np.int32).reshape(tasks.shape[:3]) % n_levels

        def played(keyed: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            key, numbers, tasks = keyed
            levels = jax.vmap(self.env.with_tasks)(jax.tree.map(lambda x: x[numbers], table), tasks)
            attempts = students.attempts(key, levels, 1)
            return attempts.episodes.solved.mean(axis=0, dtype=jnp.float32), attempts.env_steps

        mine = axes.device_index()
        keyed = jax.random.split(key, n_chunks), jnp.asarray(worlds)[mine], jnp.asarray(tasks)[mine]
        solved, env_steps = jax.lax.map(played, keyed)
        n_tasks = max(self.measured) + 1
        sums = axes.device_sum(jnp.zeros(n_tasks, jnp.float32).at[keyed[2].reshape(-1)].add(solved.reshape(-1)))
        counts = np.bincount(tasks.reshape(-1), minlength=n_tasks)  # some tasks fill up the last worlds
        measured = np.array(self.measured)
        return sums[measured] / counts[measured], env_steps.sum(dtype=jnp.uint32)

    @staticmethod
    def n_worlds(n_tasks: int, n_episodes: int, n_agents: int, in_common: bool) -> int:
        """The fewest worlds that have so many lives on each task."""
        return n_tasks * -(-n_episodes // n_agents) if in_common else -(-n_tasks * n_episodes // n_agents)

    def _tasks_of_worlds(self) -> np.ndarray:
        """i32[devices, chunks, n_at_once, G], the task of each agent."""
        n_agents = self.env.n_agents
        wanted = self.n_worlds(len(self.measured), self.n_episodes, n_agents, self.in_common)
        n_chunks = -(-wanted // (self.n_at_once * axes.n_devices()))
        n_worlds = axes.n_devices() * n_chunks * self.n_at_once
        shape = axes.n_devices(), n_chunks, self.n_at_once, n_agents
        if self.in_common:
            of_worlds = np.resize(np.repeat(self.measured, wanted // len(self.measured)), n_worlds).astype(np.int32)
            return np.repeat(of_worlds, n_agents).reshape(shape)
        lives = np.resize(np.repeat(self.measured, self.n_episodes), n_agents * n_worlds).astype(np.int32)
        # Lives on one task go to different worlds. Each world shifts them by one seat, as a seat may be a better place.
        apart = lives.reshape(n_agents, n_worlds).T
        shifted = np.stack([np.roll(world, shift) for shift, world in enumerate(apart)])
        return shifted.reshape(shape)

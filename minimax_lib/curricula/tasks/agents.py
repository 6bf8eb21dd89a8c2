"""A task curriculum for environments in which each agent has its own task."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib import axes
from minimax_lib.curricula.base import LevelBatch, Plan, level_batch
from minimax_lib.curricula.tasks.listed import Tasks, listed_levels
from minimax_lib.envs.base import Level
from minimax_lib.envs.multi_agent import QueuedTasks
from minimax_lib.envs.restarts import LevelQueue
from minimax_lib.tasks import Steps


@dataclasses.dataclass(frozen=True)
class AgentTasks(Tasks):
    """`core` draws a task for each agent, whenever an episode begins. Each agent's life is an attempt at its task.

    The level that they have in common is one of a list, all with the same chance. Of several devices, each may have a
    part of that list (`levels_divided`). The tasks are never divided. If the task is `in_common`, one is drawn for all
    agents of an environment, and each of their lives is an attempt at it.
    """

    divided: bool = False
    n_levels: int = 1
    levels_divided: bool = False
    in_common: bool = False

    @property
    def plan(self) -> Plan:
        return dataclasses.replace(super().plan, restart=QueuedTasks(self.env))

    @property
    def n_queues(self) -> int:
        """The agents of all environments, or the environments, which are given tasks one after another."""
        return self.n_rows if self.in_common else self.n_rows * self.n_agents

    def _batch(self, key: jax.Array, tasks: jax.Array) -> LevelBatch:
        table, _ = self._list()
        queues = tasks.reshape(self.n_rows, -1, tasks.shape[1])
        of_agents = jnp.broadcast_to(queues, (self.n_rows, self.n_agents, tasks.shape[1])).swapaxes(1, 2)
        numbers = jax.random.randint(key, of_agents.shape[:2], 0, self.n_levels, jnp.int32)
        numbers += axes.device_index() * self.n_levels if self.levels_divided else 0
        levels = self._with_tasks(jax.tree.map(lambda x: x[numbers[:, 0]], table), of_agents[:, 0])
        return level_batch(levels).replace(queue=LevelQueue(table=table, numbers=numbers, tasks=of_agents))

    def _drawn(self, queue: LevelQueue) -> jax.Array:
        of_agents = queue.tasks.swapaxes(1, 2)
        return of_agents[:, 0] if self.in_common else of_agents.reshape(self.n_queues, -1)

    def _with_tasks(self, levels: Level, tasks: jax.Array) -> Level:
        """[N, ...], the levels with these tasks of their agents, i32[N, G]."""
        return jax.vmap(self.env.with_tasks)(levels, tasks)

    def _on_host(self) -> tuple[Level, dict[str, Any]]:
        env: Any = self.env
        return listed_levels(env, self.n_levels * (axes.n_devices() if self.levels_divided else 1))

    def _over(self, steps: Steps) -> jax.Array:
        # The dead wait for the others: all agents of an environment begin their next tasks together.
        assert steps.over is not None
        return super()._over(steps) if self.in_common else steps.over

    def _level_metrics(self, begun: jax.Array, over: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
        return {}  # tasks have no facts, and no level is preferred

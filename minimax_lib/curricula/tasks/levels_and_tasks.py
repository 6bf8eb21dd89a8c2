"""Two task curricula at once, where each agent has its own task: one draws the level of a world, one the tasks."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.counts import Count
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.scores import Score
from minimax_lib.curricula.tasks.agents import AgentTasks
from minimax_lib.curricula.tasks.listed import Tasks, TasksState, begun_by
from minimax_lib.tasks import Steps


class BothStates(struct.PyTreeNode):
    """What each of the two remembers."""

    levels: TasksState
    tasks: TasksState


@dataclasses.dataclass(frozen=True)
class LevelsAndTasks(Curriculum):
    """A world is on a level that `levels` draws, and its agents have the tasks that `tasks` draws.

    Neither knows of the other. The life of each agent is an attempt at its task, and an attempt at the level.
    """

    levels: Tasks
    tasks: AgentTasks

    @property
    def plan(self) -> Plan:
        plan = self.tasks.plan
        scores = (score for score in self.levels.plan.scores if score not in plan.scores)
        return dataclasses.replace(plan, scores=(*plan.scores, *scores))

    def init(self, key: jax.Array) -> BothStates:
        k_levels, k_tasks = jax.random.split(key)
        return BothStates(self.levels.init(k_levels), self.tasks.init(k_tasks))

    def extra_env_steps(self, state: BothStates) -> Count:
        return self.levels.extra_env_steps(state.levels) + self.tasks.extra_env_steps(state.tasks)

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: BothStates, students: Students
    ) -> tuple[BothStates, LevelBatch]:
        k_levels, k_tasks = jax.random.split(key)
        levels, worlds = self.levels.propose(shared_key, k_levels, clock, state.levels, students)
        tasks, agents = self.tasks.propose(shared_key, k_tasks, clock, state.tasks, students)
        queue = worlds.queue.replace(tasks=agents.queue.tasks)
        first = jax.vmap(self.tasks.env.with_tasks)(worlds.levels, queue.tasks[:, 0])  # type: ignore[attr-defined]
        return BothStates(levels, tasks), level_batch(first).replace(queue=queue)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: BothStates, batch: LevelBatch, outcome: Outcome
    ) -> tuple[BothStates, dict[str, jax.Array]]:
        k_levels, k_tasks = jax.random.split(key)
        of_worlds: Any = OnLevels(outcome, batch.queue.numbers, self.levels.n_agents)
        levels, told = self.levels.observe(k_levels, clock, state.levels, batch, of_worlds)
        tasks, report = self.tasks.observe(k_tasks, clock, state.tasks, batch, outcome)
        renamed = {name if name.startswith("level/") else f"levels/{name}": x for name, x in told.items()}
        return BothStates(levels, tasks), renamed | report


@dataclasses.dataclass(frozen=True)
class OnLevels:
    """An outcome whose steps belong to the level of their world, and not to the task of their agent."""

    outcome: Outcome
    numbers: jax.Array  # i32[R, Q], the levels of each world, one after another
    n_agents: int

    def steps(self, score: Score | None) -> Steps:
        """See `Outcome`."""
        steps = self.outcome.steps(score)
        assert steps.over is not None
        following, _ = begun_by(self.numbers, steps.over[:, :: self.n_agents])
        on = jnp.concatenate([self.numbers[None, :, 0], following[:-1]])  # what follows a step is there in the next
        return steps.replace(task=jnp.repeat(on, self.n_agents, axis=1))

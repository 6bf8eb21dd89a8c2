"""Domain randomisation: every level is fresh."""

import dataclasses
from typing import Any, ClassVar

import jax

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.settings import RolloutSettings
from minimax_lib.envs.base import Environment, sample_levels
from minimax_lib.envs.registry import editing_of
from minimax_lib.envs.restarts import FreshLevels
from minimax_lib.envs.wrappers import unwrapped
from minimax_lib.loops import on_cpu


@dataclasses.dataclass(frozen=True)
class DomainRandomisation(Curriculum):
    """Levels from `env.sample_level`. After an episode, the next one is on another fresh level."""

    env: Environment
    n_rows: int

    @property
    def plan(self) -> Plan:
        every = 4 if on_cpu() else 16  # on an accelerator, each decision whether to restock waits for the host
        return Plan(self.n_rows, restart=FreshLevels(self.env.sample_level, every))

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: Any, students: Students
    ) -> tuple[Any, LevelBatch]:
        return state, level_batch(sample_levels(self.env, key, self.n_rows))


@dataclasses.dataclass(frozen=True)
class RandomLevels:
    """Random levels of the environment."""

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return DomainRandomisation(env, n_rows)


@dataclasses.dataclass(frozen=True)
class SimplestLevels:
    """The simplest levels of the environment (empty mazes), from which mutations make others."""

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return DomainRandomisation(editing_of(env).base(unwrapped(env)), n_rows)


@dataclasses.dataclass(frozen=True)
class DR(RolloutSettings, RandomLevels):
    """Domain randomisation: every level is fresh."""

    levels_per_row: ClassVar[int] = 1  # type: ignore[misc]
    rollouts_per_batch: ClassVar[int] = 1  # type: ignore[misc]

"""ACCEL, parallel too, as a runner."""

import dataclasses
from typing import Annotated, Any, Self

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.accel import ACCEL as ACCELCurriculum
from minimax_lib.curricula.accel import Mutation, Selection
from minimax_lib.curricula.base import Curriculum
from minimax_lib.curricula.parallel import Parallel
from minimax_lib.envs.base import Environment
from minimax_lib.envs.editing import editing_of
from minimax_lib.registry import unknown_name
from minimax_lib.runners.generators import GENERATORS, FiniteList, SimplestLevels
from minimax_lib.runners.plr import ReplayRunnerSettings
from minimax_lib.runners.settings import shared_out
from minimax_lib.runners.training import Runner

SELECTIONS = ("batch", "easy", "hard")


@dataclasses.dataclass(frozen=True)
class ACCEL(ReplayRunnerSettings):
    """ACCEL: replayed levels are mutated, and the children compete for the buffer."""

    generator: Annotated[Any, GENERATORS] = SimplestLevels()
    """Where new levels come from: the simplest there are (empty mazes), as published, or others."""
    replay_prob: float = 0.8
    """Probability of replaying levels rather than drawing new ones, once `min_fill` is reached."""
    staleness: float = 0.5
    """Share of the replay weight that goes to levels in proportion to how long ago they were played."""
    n_edits: int = 20
    """Edits that make a child of its parent."""
    selection: Selection = "batch"
    """Which replayed levels are mutated: all, or the n_parents with the highest (easy) or lowest (hard) return."""
    n_parents: int = 4
    """Parents of a batch of children, where they are selected."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selection not in SELECTIONS:
            raise unknown_name("runner.selection", self.selection, SELECTIONS)
        if isinstance(self.generator, FiniteList):
            raise ValueError(
                "runner.generator is 'finite', whose buffer has no room for children: choose simplest or random"
            )
        if self.n_edits < 1:
            raise ValueError(f"runner.n_edits is {self.n_edits}: it must be at least 1")
        if not 1 <= self.n_parents <= self.n_parallel:
            raise ValueError(f"runner.n_parents is {self.n_parents}: it must be between 1 and {self.n_parallel}")
        if self.parallel and self.selection != "batch":
            raise ValueError(
                f"runner.selection is {self.selection!r} with runner.parallel: children are made before the parents "
                "have been played, choose batch"
            )

    @property
    def shared(self) -> tuple[str, ...]:
        return super().shared if self.selection == "batch" else (*super().shared, "n_parents")

    def per_device(self, n: int) -> Self:
        settings = dataclasses.replace(self, n_parents=1) if self.selection == "batch" else self  # it is not used
        return shared_out(settings, n, "runner")

    def build(self, env: Environment, agent: AgentPop) -> Runner:
        return ACCELRunner(env, agent, self)


def ACCELRunner(env: Environment, agent: AgentPop, settings: ACCEL) -> Runner:
    """Trains on replayed levels and grows the buffer by their mutations: ACCEL or parallel ACCEL."""
    plr = settings.plr(env, agent)
    mutation = Mutation(editing_of(env).mutate, settings.n_edits)
    curriculum: Curriculum = ACCELCurriculum(plr, mutation, settings.selection, settings.n_parents)
    if settings.parallel:
        curriculum = Parallel(plr, mutation)
    return settings.runner(env, agent, curriculum)

"""The settings of a level buffer."""

import dataclasses
from typing import Literal

import numpy as np

from minimax_lib.curricula.level_buffer.strengths import STRENGTHS
from minimax_lib.registry import unknown_name

SCHEDULES = ("fixed", "proportionate")


@dataclasses.dataclass(frozen=True)
class ReplaySettings:
    """How levels are kept and replayed; the defaults are those of published robust PLR (Jiang et al. 2023, table 6)."""

    capacity: int = 4000
    """Slots of the level buffer."""
    prioritisation: Literal["rank", "proportional", "greedy"] = "rank"
    """What the replay weight grows with: the rank of the score, the score itself, or being the highest score."""
    temperature: float = 0.3
    """Weights are raised to the power 1 / temperature: low values favour the highest scores more."""
    staleness: float = 0.3
    """Share of the replay weight that goes to levels in proportion to how long ago they were played."""
    replay_prob: float = 0.5
    """Probability of replaying levels rather than drawing new ones, once `min_fill` is reached."""
    schedule: Literal["fixed", "proportionate"] = "fixed"
    """Replay with probability `replay_prob`, or with the share of slots that are filled (finite training sets)."""
    min_fill: float = 0.5
    """Share of slots that must be filled before anything is replayed."""
    unique: bool = True
    """A new level equal to one in the buffer updates that slot instead of taking another."""

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity}: it must be at least 1")
        if self.prioritisation not in STRENGTHS:
            raise unknown_name("prioritisation", self.prioritisation, STRENGTHS)
        if self.schedule not in SCHEDULES:
            raise unknown_name("schedule", self.schedule, SCHEDULES)
        if not (self.temperature > 0 and np.isfinite(self.temperature)):
            raise ValueError(f"temperature is {self.temperature}: it must be positive and finite")
        for name in ("staleness", "replay_prob", "min_fill"):
            # Written this way round, the test refuses NaN too: no comparison with NaN is true.
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be between 0 and 1")

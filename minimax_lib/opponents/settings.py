"""The settings of opponents, by name."""

import dataclasses
from typing import Annotated, Any, Protocol

from minimax_lib.opponents.cores import (
    PFSP,
    DeltaUniform,
    FictitiousSelfPlay,
    Mixture,
    Opponents,
    SelfPlay,
    Weighting,
)
from minimax_lib.registry import Registry, RegistryView


class OpponentSettings(Protocol):
    """What the registry holds: a frozen dataclass, whose fields are flags."""

    def build(self, capacity: int) -> Opponents:
        """The opponents from a bank of `capacity` slots."""
        ...


@dataclasses.dataclass(frozen=True)
class SelfPlaySettings:
    """The student plays itself as it is now."""

    def build(self, capacity: int) -> Opponents:
        return SelfPlay(capacity)


@dataclasses.dataclass(frozen=True)
class FictitiousSelfPlaySettings:
    """All copies in the bank have the same chance (fictitious self-play)."""

    def build(self, capacity: int) -> Opponents:
        return FictitiousSelfPlay(capacity)


@dataclasses.dataclass(frozen=True)
class DeltaUniformSettings:
    """The newest copies in the bank have the same chance, the others none."""

    delta: float = 0.5
    """Share of the copies that are too old. 0 is fictitious self-play, 1 leaves the newest copy alone."""

    def build(self, capacity: int) -> Opponents:
        return DeltaUniform(capacity, self.delta)


@dataclasses.dataclass(frozen=True)
class PFSPSettings:
    """Copies by the student's rate p of wins against them: those that beat it come first (prioritised fictitious
    self-play)."""

    weighting: Weighting = "hard"
    """hard: (1 - p)^exponent, the copies that beat the student. var: p (1 - p), those that are as good as it is."""
    exponent: float = 2.0
    """Of `hard`: how much copies that beat the student are preferred. 0: all alike."""
    smoothing: float = 0.01
    """What is added to every weight, so that beaten copies come back."""
    draw: float = 0.5
    """What a draw counts as, between 0 (a loss) and 1 (a win)."""

    def build(self, capacity: int) -> Opponents:
        return PFSP(capacity, self.weighting, self.exponent, self.smoothing, self.draw)


# What may stand in a mixture: all but mixtures, which would go on for ever.
INNER: Registry[Any] = RegistryView(
    "opponents of a mixture", lambda: {name: OPPONENTS[name] for name in OPPONENTS.names() if name != "mix"}
)


@dataclasses.dataclass(frozen=True)
class MixtureSettings:
    """The student as it is now for a share of the games, opponents from the bank for the others."""

    inner: Annotated[Any, INNER] = FictitiousSelfPlaySettings()
    """The opponents of the other games."""
    share: float = 0.5
    """Share of the games against the student as it is now."""

    def build(self, capacity: int) -> Opponents:
        return Mixture(self.inner.build(capacity), self.share)


OPPONENTS: Registry[Any] = Registry(
    "opponents",
    {
        "sp": SelfPlaySettings,
        "fsp": FictitiousSelfPlaySettings,
        "delta": DeltaUniformSettings,
        "pfsp": PFSPSettings,
        "mix": MixtureSettings,
    },
    elsewhere={
        "self_play": "sp",
        "selfplay": "sp",
        "fictitious_self_play": "fsp",
        "uniform": "fsp",
        "delta_uniform": "delta",
        "prioritized_fictitious_self_play": "pfsp",
        "mixture": "mix",
    },
)

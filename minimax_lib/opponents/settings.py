"""Opponents by name, and their settings: the fields of a class of opponents are its flags."""

import dataclasses
from typing import Annotated, Any

from minimax_lib.opponents.cores import PFSP, DeltaUniform, FictitiousSelfPlay, Mixture, Opponents, SelfPlay
from minimax_lib.registry import Registry, RegistryView
from minimax_lib.settings import settings_of


def opponent_settings(core: Any) -> Any:
    """The settings of a class of opponents: its fields but `n_tasks`. Settings stay as they are."""
    return settings_of(core, "n_tasks")


SelfPlaySettings: Any = opponent_settings(SelfPlay)
FictitiousSelfPlaySettings: Any = opponent_settings(FictitiousSelfPlay)
DeltaUniformSettings: Any = opponent_settings(DeltaUniform)
PFSPSettings: Any = opponent_settings(PFSP)

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


# An entry is a frozen dataclass, whose fields are flags. Its `build(capacity)` returns the `Opponents` from a bank of
# `capacity` slots.
OPPONENTS: Registry[Any] = Registry(
    "opponents",
    {
        "sp": SelfPlay,
        "fsp": FictitiousSelfPlay,
        "delta": DeltaUniform,
        "pfsp": PFSP,
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
    kept_as=opponent_settings,
)

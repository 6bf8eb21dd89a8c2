"""Settings of Weights & Biases."""

import dataclasses
from typing import Literal

from minimax_lib.config.tree import SHORT
from minimax_lib.messages import shown

LONGEST = 128  # characters; W&B takes no longer names


@dataclasses.dataclass(frozen=True)
class Wandb:
    """Curves and pictures in Weights & Biases beside the tables; needs the extra `wandb`."""

    mode: Literal["online", "offline", "disabled"] | bool = dataclasses.field(default="disabled", metadata=SHORT)
    """online: uploaded as the run goes on. offline: kept in the run's folder for `wandb sync`. `--wandb` alone means
    online, `--wandb offline` is short for `--wandb.mode offline`."""
    project: str = "minimax-ued"
    """The project that the W&B runs belong to."""
    entity: str = ""
    """The user or team that the project belongs to; empty: W&B's default for your account."""
    group: str = ""
    """The group of the W&B runs, one of which is made for each seed; empty: the name of the run without its seed."""

    def __post_init__(self) -> None:
        if isinstance(self.mode, bool):
            object.__setattr__(self, "mode", "online" if self.mode else "disabled")
        if not self.project:
            raise ValueError("wandb.project is '': it must be the name of a project")
        for name in ("project", "entity", "group"):
            value = getattr(self, name)
            if len(value) > LONGEST:
                raise ValueError(f"wandb.{name} is {shown(value)}: it must be at most {LONGEST} characters long")

    @property
    def on(self) -> bool:
        """Whether anything is written for W&B."""
        return self.mode != "disabled"

"""Settings that all runners share."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """The size of a batch of experience."""

    n_parallel: int = 32
    """Levels that a student learns from in one update (rows of a rollout)."""
    n_steps: int = 256
    """Environment steps in a rollout, which always begins with a reset."""

    n_students = 1

    @property
    def n_train_rows(self) -> int:
        """Rows that the students' gradient uses."""
        return self.n_parallel

    def __post_init__(self) -> None:
        for name in ("n_parallel", "n_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"runner.{name} is {getattr(self, name)}: it must be at least 1")

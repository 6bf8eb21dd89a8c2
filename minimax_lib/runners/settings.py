"""Settings that all runners share, and how they are shared out among devices."""

import dataclasses
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

Settings = TypeVar("Settings")


@runtime_checkable
class Divisible(Protocol):
    """Settings that describe the whole, of which each device has an equal part."""

    @property
    def shared(self) -> tuple[str, ...]:
        """The settings that are counts of something that is shared out (rows, slots, levels)."""
        ...


def shared_out(settings: Settings, n: int, name: str) -> Settings:
    """What one of `n` devices has of `settings` (called `name`) and the groups in them; ValueError where it cannot."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if isinstance(value, Divisible):
            changes[field.name] = shared_out(value, n, f"{name}.{field.name}")
    for count in settings.shared if isinstance(settings, Divisible) else ():
        value = getattr(settings, count)
        if value % n:
            nearest = n * max(1, round(value / n))
            raise ValueError(f"{name}.{count} is {value}, which {n} devices cannot share equally (try {nearest})")
        changes[count] = value // n
    try:
        return dataclasses.replace(settings, **changes)  # type: ignore[type-var]
    except ValueError as error:
        raise ValueError(f"on each of {n} devices, {error}") from error


@dataclasses.dataclass(frozen=True)
class RolloutSettings:
    """The size of a batch of experience."""

    n_parallel: int = 32
    """Levels that a student learns from in one update (rows of a rollout), on all devices together."""
    n_steps: int = 256
    """Environment steps in a rollout, which always begins with a reset."""

    n_students = 1

    @property
    def n_train_rows(self) -> int:
        """Rows that the students' gradient uses."""
        return self.n_parallel

    @property
    def shared(self) -> tuple[str, ...]:
        """The settings of which each device has an equal part."""
        return ("n_parallel",)

    def per_device(self, n: int) -> Self:
        """The settings of one of `n` devices that share a batch; ValueError where they cannot share it equally."""
        return shared_out(self, n, "runner")

    def __post_init__(self) -> None:
        for name in ("n_parallel", "n_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"runner.{name} is {getattr(self, name)}: it must be at least 1")

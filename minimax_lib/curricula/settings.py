"""Settings that all methods have in common, and how they are divided among devices."""

import dataclasses
import functools
from typing import Any, ClassVar, Protocol, Self, TypeVar

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum
from minimax_lib.envs.base import Environment

Settings = TypeVar("Settings")
MOST_EPISODES = 10_000  # on a level: more tell nothing about it, and a scoring has them in memory together
MOST_LEVELS = 2**30  # of a batch or a scoring: devices count in 32 bits, and add these to others


class CurriculumSettings(Protocol):
    """What `register_curriculum` takes: a frozen dataclass, whose fields are the flags of the curriculum."""

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        """A curriculum of `n_rows` levels a batch; ValueError in one line where the parts do not fit together."""
        ...


def check_one_agent(runner: str, env: Any) -> None:
    """ValueError where a curriculum that knows one agent in an environment is given one with several."""
    if env.multi_agent:
        raise ValueError(
            f"runner is {runner!r}, and {type(env).__name__} has {env.n_agents} agents: it knows one agent in an "
            "environment; choose another, such as dr, plr or tasks"
        )


def divided_among(settings: Settings, n: int, name: str) -> Settings:
    """The settings of one of `n` devices. ValueError if `settings`, called `name` in messages, cannot be divided.

    Settings may have `divided`: the names of those that count parts of a whole (rows, slots, levels). Each device has
    an equal part of them.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(settings):  # type: ignore[arg-type]
        value = getattr(settings, field.name)
        if hasattr(value, "divided"):
            changes[field.name] = divided_among(value, n, f"{name}.{field.name}")
    for count in getattr(settings, "divided", ()):
        value = getattr(settings, count)
        if value % n:
            nearest = n * max(1, round(value / n))
            raise ValueError(f"{name}.{count} is {value}, which {n} devices cannot share equally (try {nearest})")
        changes[count] = value // n
    try:
        return dataclasses.replace(settings, **changes)  # type: ignore[type-var]
    except ValueError as error:
        raise ValueError(f"on each of {n} devices, {error}") from error


def check_levels(name: str, value: int, n_rows: int = 1) -> None:
    """ValueError where the setting gives each of `n_rows` rows so many levels that they cannot be counted."""
    most = max(1, MOST_LEVELS // n_rows)
    if value > most:
        raise ValueError(f"runner.{name} is {value}: it must be at most {most}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """The size of a batch of experience: what training needs beside the settings of the curriculum itself.

    A mixin, named before the curriculum's own settings: `class DR(RolloutSettings, RandomLevels)`. A method may hold
    some of these settings as constants (`ClassVar`). They are then no flags of the method, and files may say nothing
    else of them.
    """

    n_parallel: int = 32
    """Rows of a rollout: episodes side by side that a student learns from in one update, on all devices together."""
    n_steps: int = 256
    """Environment steps in a rollout, after which the students learn from it."""
    continue_episodes: bool | None = None
    """Begin a rollout where the last one ended, so that no episode is cut off. None: do so if an episode may outlast a
    rollout. Only for curricula whose levels are always fresh."""
    n_evals: int = 1
    """Rows that play each level side by side, each in its own episode. With 4, a batch has 4 * n_parallel rows. A
    level's score and statistics are over all of its rows."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, before anything is learnt or scored
    from them. Reported returns stay as they are."""
    levels_per_row: int = 1
    """Levels that a row plays in turn: the next one after each episode, and after the last one the first. With 1, a row
    plays its level again and again, as published. With 8, a batch has 8 * n_parallel levels. A level is scored by its
    first episode, if that began early enough to end within the batch whatever happens in it."""
    rollouts_per_batch: int | None = None
    """Rollouts on the same levels, each followed by an update, before the next batch. None: as many as the longest
    episode needs, or four times as many where levels in turn are scored."""

    n_students = 1
    n_listed = 0  # levels of the fixed list that is trained on; 0: there is none

    def __post_init__(self) -> None:
        for name in ("n_parallel", "n_steps", "n_evals", "n_students", "levels_per_row"):
            if getattr(self, name) < 1:
                raise ValueError(f"runner.{name} is {getattr(self, name)}: it must be at least 1")
        if self.rollouts_per_batch is not None and self.rollouts_per_batch < 1:
            raise ValueError(f"runner.rollouts_per_batch is {self.rollouts_per_batch}: it must be at least 1")
        check_levels("levels_per_row", self.levels_per_row, self.n_parallel)
        getattr(super(), "__post_init__", lambda: None)()  # of the curriculum's own settings, if they check anything

    @property
    def levels_per_batch(self) -> int:
        """Levels of a batch."""
        return self.n_parallel * self.levels_per_row

    def n_rollouts(self, max_steps: int, scored: bool = True) -> int:
        """Rollouts of a batch of levels whose episodes last `max_steps` at most, and which are `scored` or not."""
        # In turn, episodes that begin in the last `max_steps` do not count: a quarter of the time.
        times = 4 if scored and self.levels_per_row > 1 else 1
        return self.rollouts_per_batch or times * -(-max_steps // self.n_steps)

    @property
    def divided(self) -> tuple[str, ...]:
        """The settings of which each device has an equal part."""
        return ("n_parallel", *getattr(super(), "divided", ()))

    def per_device(self, n: int) -> Self:
        """The settings of one of `n` devices that share a batch; ValueError where they cannot share it equally."""
        return divided_among(self, n, "runner")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestartedRollouts(RolloutSettings):
    """The same where each batch of levels begins with a reset."""

    continue_episodes: ClassVar[bool] = False  # type: ignore[misc]


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedRollouts(RolloutSettings):
    """The same where each episode has a level from a queue, and goes on in the next rollout."""

    continue_episodes: ClassVar[bool] = True  # type: ignore[misc]
    n_evals: ClassVar[int] = 1  # type: ignore[misc]
    levels_per_row: ClassVar[int] = 1  # type: ignore[misc]
    rollouts_per_batch: ClassVar[int] = 1  # type: ignore[misc]


@functools.cache  # one class for one class: registering the same settings twice is not a conflict
def with_rollouts(settings: type) -> type:
    """A class with the fields of `settings` and those of `RolloutSettings`: a choice of --runner."""
    if issubclass(settings, RolloutSettings):
        return settings
    about = {"__doc__": settings.__doc__, "__module__": settings.__module__}
    return dataclasses.make_dataclass(
        settings.__name__, [], bases=(RolloutSettings, settings), frozen=True, namespace=about
    )

"""Curricula over a box of levels by name, their settings, and which part of the box a task means."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.registry import Registry, unknown_name
from minimax_lib.settings import settings_of
from minimax_lib.tasks.annealing import SimulatedAnnealing
from minimax_lib.tasks.core import BoxCurriculum
from minimax_lib.tasks.expanding_box import ExpandingBox
from minimax_lib.tasks.spaces import Box
from minimax_lib.tasks.uniform import UniformOver

Bounds = Mapping[str, tuple[float, float]]  # lowest and highest value by dimension (`Environment.level_box`)


@dataclasses.dataclass(frozen=True)
class Placing:
    """How the tasks of a curriculum, f32[E], lie in a box of D dimensions: the base of the two ways below."""

    low: tuple[float, ...]  # of the box
    high: tuple[float, ...]

    @classmethod
    def of(cls, bounds: Bounds, *chosen: Any) -> Any:
        """For the box with these bounds, and what else the class is made of."""
        return cls(tuple(low for low, _ in bounds.values()), tuple(high for _, high in bounds.values()), *chosen)

    def part(self, low: jax.Array, high: jax.Array, task: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(low f32[D], high f32[D]) of the part of the box that `task` means."""
        raise NotImplementedError

    def point(self, key: jax.Array, task: jax.Array) -> jax.Array:
        """f32[D], a point of the box, uniform in what `task` leaves open."""
        whole = jnp.asarray(self.low, jnp.float32), jnp.asarray(self.high, jnp.float32)
        low, high = self.part(*whole, task)
        share = jax.random.uniform(key, low.shape, jnp.float32)
        return jnp.clip(low + share * (high - low), low, high)  # rounding must not leave the box


@dataclasses.dataclass(frozen=True)
class Values(Placing):
    """A task is the values of some dimensions."""

    places: tuple[int, ...]

    def part(self, low: jax.Array, high: jax.Array, task: jax.Array) -> tuple[jax.Array, jax.Array]:
        places = jnp.asarray(self.places, jnp.int32)
        return low.at[places].set(task), high.at[places].set(task)


@dataclasses.dataclass(frozen=True)
class Interval(Placing):
    """A task is a range of one dimension, f32[2]."""

    place: int

    def part(self, low: jax.Array, high: jax.Array, task: jax.Array) -> tuple[jax.Array, jax.Array]:
        return low.at[self.place].set(task[0]), high.at[self.place].set(task[1])


@dataclasses.dataclass(frozen=True)
class UniformBoxSettings:
    """All points of the box have the same chance."""

    def build(self, bounds: Bounds) -> tuple[BoxCurriculum, Placing]:
        placing = Values.of(bounds, tuple(range(len(bounds))))
        return UniformOver(Box(placing.low, placing.high)), placing


@dataclasses.dataclass(frozen=True)
class AnnealingSettings:
    """Some dimensions go from a start to an end, in proportion to the steps of training. The others stay uniform."""

    start: tuple[str, ...] = ()
    """Values at the beginning, such as gravity=5 torque=6."""
    end: tuple[str, ...] = ()
    """Values of the same dimensions at the end."""
    total_steps: int = 1_000_000
    """Steps of ended attempts until the end is reached."""

    def build(self, bounds: Bounds) -> tuple[BoxCurriculum, Placing]:
        start = read_values("runner.core.start", self.start, bounds)
        end = read_values("runner.core.end", self.end, bounds)
        for name in start.keys() ^ end.keys():
            missing = "end" if name in start else "start"
            raise ValueError(f"runner.core.{missing} has no {name}: start and end must name the same dimensions")
        if not 1 <= self.total_steps < 2**31:
            raise ValueError(f"runner.core.total_steps is {self.total_steps}: it must be at least 1 and below {2**31}")
        names = list(bounds)
        core = SimulatedAnnealing(tuple(start.values()), tuple(end[name] for name in start), (self.total_steps,))
        return core, Values.of(bounds, tuple(names.index(name) for name in start))


@dataclasses.dataclass(frozen=True)
class OneDimension:
    """The dimension of a curriculum that has one."""

    dimension: str = ""
    """Which one, such as gravity. Empty: the only one that there is."""


_Expanding: Any = settings_of(ExpandingBox, "low", "high", base=OneDimension)


@dataclasses.dataclass(frozen=True)
class ExpandingBoxSettings(_Expanding):
    __doc__ = ExpandingBox.__doc__

    def build(self, bounds: Bounds) -> tuple[BoxCurriculum, Placing]:
        names = list(bounds)
        if not self.dimension and len(names) > 1:
            raise ValueError(f"runner.core.dimension is empty: choose from {', '.join(names)}")
        name = self.dimension or names[0]
        if name not in names:
            raise unknown_name("runner.core.dimension", name, names)
        try:
            core = super().build(*bounds[name])
        except ValueError as error:
            raise ValueError(f"runner.core.{error}") from error
        return core, Interval.of(bounds, names.index(name))


def read_values(setting: str, texts: Sequence[str], bounds: Bounds) -> dict[str, float]:
    """The values by dimension that texts such as gravity=5 stand for. ValueError if one is outside its bounds."""
    example = f"such as {min(bounds)}={min(bounds.items())[1][0]:g}"
    if not texts:
        raise ValueError(f"{setting} is empty: it must be values of {', '.join(bounds)}, {example}")
    values: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if name not in bounds:
            raise unknown_name(f"dimension in {setting}", name, bounds)
        if name in values:
            raise ValueError(f"{setting} has {name} twice: give it once")
        low, high = bounds[name]
        try:
            values[name] = float(number)
        except ValueError:
            raise ValueError(f"{setting} has {text!r}: it must be a dimension and its value, {example}") from None
        if not (math.isfinite(values[name]) and low <= values[name] <= high):
            raise ValueError(f"{setting} has {text}: it must be between {low:g} and {high:g}, the range of the levels")
    return values


# An entry is a frozen dataclass, whose fields are flags. Its `build(bounds)` returns the curriculum, and the `Placing`
# that says what its tasks mean. ValueError where they do not fit.
BOX_CURRICULA: Registry[Any] = Registry(
    "box curriculum",
    {"uniform": UniformBoxSettings, "annealing": AnnealingSettings, "expanding_box": ExpandingBoxSettings},
    elsewhere={
        "random": "uniform",
        "dr": "uniform",
        "domain_randomization": "uniform",
        "simulated_annealing": "annealing",
        "expanding": "expanding_box",
    },
)

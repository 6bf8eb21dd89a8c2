"""The parameters that vary from level to level, and their bounds."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from minimax_lib.registry import unknown_name

LIMIT = "max_steps_in_episode"  # the time limit is a separate setting


@dataclasses.dataclass(frozen=True)
class Range:
    """A parameter that is drawn uniformly from [low, high]."""

    name: str
    low: float
    high: float

    def sample(self, key: jax.Array) -> jax.Array:
        """A value, f32[]."""
        return jax.random.uniform(key, (), minval=self.low, maxval=self.high)


def ranges_of(settings: Sequence[str]) -> tuple[Range, ...]:
    """The ranges of settings such as "gravity=5:15" and "length=0.7" (a single value). ValueError for another form."""
    ranges = tuple(_range_of(setting) for setting in settings)
    names = [range_.name for range_ in ranges]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"env.vary names {name!r} twice: give each parameter once")
    return ranges


def _range_of(setting: str) -> Range:
    name, _, bounds = setting.partition("=")
    low, _, high = bounds.partition(":")
    try:
        range_ = Range(name, float(low), float(high or low))
    except ValueError:
        raise ValueError(f"env.vary has {setting!r}: it must be PARAMETER=LOW:HIGH, as in gravity=5:15") from None
    if not (math.isfinite(range_.low) and math.isfinite(range_.high)):
        raise ValueError(f"env.vary has {setting!r}: both bounds must be finite")
    if range_.low > range_.high:
        raise ValueError(f"env.vary has {setting!r}: the first bound must be the lower one, as in {name}={high}:{low}")
    return range_


def check_names(ranges: Sequence[Range], params: Any, depend: Sequence[str]) -> None:
    """ValueError for a range of a name that is not a number in `params`, or that follows from other parameters."""
    names = [f.name for f in dataclasses.fields(params) if f.name != LIMIT]
    numbers = [name for name in names if is_number(getattr(params, name))]
    for range_ in ranges:
        if range_.name in depend:
            raise ValueError(f"env.vary has {range_.name!r}: it follows from other parameters, which may vary instead")
        if range_.name not in numbers:
            raise unknown_name("parameter in env.vary", range_.name, [n for n in numbers if n not in depend])


def is_number(value: Any) -> bool:
    """Whether a parameter can be drawn from a range: a float, or an array that is one."""
    # Not whole numbers: they are counts and limits, and shapes may depend on them.
    return np.shape(value) == () and np.issubdtype(np.asarray(value).dtype, np.floating)

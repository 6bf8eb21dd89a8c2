"""Shapes and ranges of observations and actions: hashable, so that models can be built from them statically."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.messages import shown

ACTION_MASK = "action_mask"  # the entry of a Dict of observations that says which actions are allowed
ROUNDING = 1e-5  # of a bound, or of 1 if that is more: how far rounding may carry a float past it


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Integers 0 .. n-1, i32[]."""

    n: int

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, self.n, jnp.int32)

    def contains(self, value: jax.Array) -> bool:
        return value.shape == () and value.dtype == jnp.int32 and 0 <= int(value) < self.n


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """k integers side by side, i32[k]; number i is one of 0 .. sizes[i]-1."""

    sizes: tuple[int, ...]

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (len(self.sizes),), 0, jnp.asarray(self.sizes, jnp.int32), jnp.int32)

    def contains(self, value: jax.Array) -> bool:
        fits = value.shape == (len(self.sizes),) and value.dtype == jnp.int32
        return fits and bool(jnp.all((value >= 0) & (value < jnp.asarray(self.sizes))))


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape and dtype with every entry in [low, high], floats up to rounding.

    `changes_slowly` says that few entries differ from one step to the next, as when a teacher draws a maze. A network
    may then work out what has changed, and not the whole; what it computes is the same.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: str = "float32"
    changes_slowly: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether both ends are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def sample(self, key: jax.Array) -> jax.Array:
        if self.dtype == "bool":
            return jax.random.bernoulli(key, shape=self.shape)
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            return jax.random.randint(key, self.shape, int(self.low), int(self.high) + 1).astype(self.dtype)
        if not self.is_bounded:
            return jnp.clip(jax.random.normal(key, self.shape, self.dtype), self.low, self.high)
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def slack(self, bound: float) -> float:
        """How far an entry may lie past this bound: floats are rounded."""
        is_float = np.issubdtype(np.dtype(self.dtype), np.floating) and math.isfinite(bound)
        return ROUNDING * max(1.0, abs(bound)) if is_float else 0.0

    def contains(self, value: jax.Array) -> bool:
        fits = value.shape == self.shape and value.dtype == jnp.dtype(self.dtype)
        low, high = self.low - self.slack(self.low), self.high + self.slack(self.high)
        return fits and bool(jnp.all((value >= low) & (value <= high)))


@dataclasses.dataclass(frozen=True)
class Dict:
    """Named spaces; an observation is a dict with the same names."""

    items: tuple[tuple[str, "Space"], ...]

    def sample(self, key: jax.Array) -> dict:
        keys = jax.random.split(key, len(self.items))
        return {name: space.sample(k) for k, (name, space) in zip(keys, self.items, strict=True)}

    def contains(self, value: dict) -> bool:
        return set(value) == {name for name, _ in self.items} and all(s.contains(value[n]) for n, s in self.items)


Space = Discrete | MultiDiscrete | Box | Dict


def within(space: Space, action: Any) -> Any:
    """`action` [..., ...] with the numbers of bounded boxes clipped to them; the very same where there are none."""
    if isinstance(space, Dict):
        return {name: within(part, action[name]) for name, part in space.items}
    if isinstance(space, Box) and np.issubdtype(np.dtype(space.dtype), np.floating):
        return jnp.clip(action, space.low, space.high)
    return action


def checked_action(
    space: Space, action: Any, n: int | None = None, name: str = "the action", ignored: np.ndarray | None = None
) -> Any:
    """`action` (with `n`, so many of them, [n, ...]) as NumPy arrays in the types of `space`.

    ValueError in one line where it is none. The numbers of a bounded box are clipped later (`within`), so they may lie
    outside; but they must be finite. Those of rows that are `ignored` (bool[n]) may be any.
    """
    if isinstance(space, Dict):
        names = [part for part, _ in space.items]
        if not isinstance(action, Mapping) or set(action) != set(names):
            raise ValueError(f"{name} is {shown(action)}: it must be a dict with {', '.join(names)}")
        return {
            part: checked_action(inner, action[part], n, f"{name} {part!r}", ignored) for part, inner in space.items
        }
    try:
        given = np.asarray(action)
    except ValueError:  # lists of several lengths
        given = np.asarray(None)
    shape = (() if n is None else (n,)) + shape_of(space)
    kinds = "iub" if isinstance(space, Box) and space.dtype == "bool" else "iu" if _is_whole(space) else "iuf"
    if given.shape != shape or given.dtype.kind not in kinds:
        told = f"{given.dtype}{list(given.shape)}" if given.shape else shown(action)
        raise ValueError(f"{name} is {told}: it must be {_rule(space, shape)}")
    low, high = _bounds(space)
    with np.errstate(over="ignore"):
        cast = given.astype(space.dtype if isinstance(space, Box) else np.int32)
    wrong = ~((given >= low) & (given <= high)) if _is_whole(space) else ~np.isfinite(cast)
    if ignored is not None:
        wrong[ignored] = False
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = f" at {list(place)}" if place else ""
        raise ValueError(f"{name}{where} is {shown(given[place].item())}: it must be {_rule(space, (), place)}")
    return cast


def shape_of(space: "Discrete | MultiDiscrete | Box") -> tuple[int, ...]:
    """The shape of one value."""
    return space.shape if isinstance(space, Box) else () if isinstance(space, Discrete) else (len(space.sizes),)


def _is_whole(space: "Discrete | MultiDiscrete | Box") -> bool:
    return not isinstance(space, Box) or not np.issubdtype(np.dtype(space.dtype), np.floating)


def _bounds(space: "Discrete | MultiDiscrete | Box") -> tuple[Any, Any]:
    """(the least, the most) that a number may be."""
    if isinstance(space, Box):
        return space.low, space.high
    return 0, space.n - 1 if isinstance(space, Discrete) else np.asarray(space.sizes) - 1


def _rule(space: "Discrete | MultiDiscrete | Box", shape: tuple[int, ...], place: tuple[int, ...] = ()) -> str:
    """What actions of this shape must be; or the number at a place in them."""
    what = "whole number" if _is_whole(space) else "finite number"
    what = f"{what}s [{', '.join(map(str, shape))}]" if shape else f"a {what}"
    low, high = _bounds(space)
    most = high[place[-1]] if isinstance(high, np.ndarray) and place else high
    return f"{what} from {low} to {most}" if _is_whole(space) else what


def n_choices(space: "Discrete | MultiDiscrete") -> tuple[int, ...]:
    """How many values each of the integers may have."""
    return (space.n,) if isinstance(space, Discrete) else space.sizes


def check_mask(observations: Space, actions: Space) -> None:
    """ValueError where observations have an `ACTION_MASK` that does not fit the actions.

    For Discrete actions it is a Box of bool with shape (n,); for MultiDiscrete ones the masks of all numbers, one after
    another; for a Dict of actions a Dict of such masks, for some or all of its discrete parts.
    """
    observed = dict(observations.items) if isinstance(observations, Dict) else {}
    if ACTION_MASK in observed:
        _check_mask(observed[ACTION_MASK], actions, ACTION_MASK)


def _check_mask(mask: Space, actions: Space, name: str) -> None:
    if isinstance(actions, Dict):
        known = dict(actions.items)
        if not isinstance(mask, Dict) or not all(part in known for part, _ in mask.items):
            raise ValueError(f"the observation {name!r} is {mask}: it must be a Dict with masks of {', '.join(known)}")
        for part, inner in mask.items:
            _check_mask(inner, known[part], f"{name}.{part}")
        return
    if isinstance(actions, Box):
        raise ValueError(f"the observation {name!r} masks real numbers: only discrete actions can be masked")
    wanted = Box(0, 1, (sum(n_choices(actions)),), "bool")
    if not isinstance(mask, Box) or (mask.shape, mask.dtype) != (wanted.shape, wanted.dtype):
        raise ValueError(f"the observation {name!r} is {mask}: it must be {wanted}")


def allows_something(actions: Space, mask: Any) -> jax.Array:
    """bool[...], whether `mask` [..., n] leaves at least one value for every integer of an action."""
    if isinstance(actions, Dict):
        found = [allows_something(part, mask[name]) for name, part in actions.items if name in mask]
        return jnp.stack(found).all(axis=0)
    masks = jnp.split(mask, np.cumsum(n_choices(actions))[:-1], axis=-1)  # type: ignore[arg-type]
    return jnp.stack([allowed.any(axis=-1) for allowed in masks]).all(axis=0)


def sample_allowed(space: Space, key: jax.Array, obs: Any) -> Any:
    """A random action of `space`: one of those that the `ACTION_MASK` in `obs` allows, if there is one."""
    return _sample_masked(space, key, obs.get(ACTION_MASK) if isinstance(obs, dict) else None)


def _sample_masked(space: Space, key: jax.Array, mask: Any) -> Any:
    if mask is None:
        return space.sample(key)
    if isinstance(space, Dict):
        named = zip(jax.random.split(key, len(space.items)), space.items, strict=True)
        return {name: _sample_masked(part, k, mask.get(name)) for k, (name, part) in named}
    sizes = n_choices(space)  # type: ignore[arg-type]
    masks = jnp.split(mask, np.cumsum(sizes)[:-1], axis=-1)
    chances = jax.random.uniform(key, (len(sizes),))
    chosen = [_one_of(allowed, chance) for allowed, chance in zip(masks, chances, strict=True)]
    return chosen[0] if isinstance(space, Discrete) else jnp.stack(chosen)


def _one_of(allowed: jax.Array, chance: jax.Array) -> jax.Array:
    """i32[], a value that is `allowed` (bool[n]), each as likely as the others; n - 1 if none is. 0 <= `chance` < 1."""
    # One random number a choice. A random number for each value, as in jax.random.categorical, costs three times as
    # much where there are many.
    count = jnp.cumsum(allowed, dtype=jnp.int32)
    rank = (chance * count[-1]).astype(jnp.int32)  # below count[-1], also after rounding
    return jnp.minimum((count <= rank).sum(dtype=jnp.int32), len(allowed) - 1)

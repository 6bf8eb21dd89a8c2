"""Shapes and ranges of observations and actions: hashable, so that models can be built from them statically."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Discrete:
    """Integers 0 .. n-1, i32[]."""

    n: int

    def sample(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, self.n, jnp.int32)

    def contains(self, value: jax.Array) -> bool:
        return value.shape == () and value.dtype == jnp.int32 and 0 <= int(value) < self.n


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of one shape and dtype with every entry in [low, high].

    `changes_slowly` says that few entries differ from one step to the next, as when a teacher draws a maze. A network
    may then work out what has changed, and not the whole; what it computes is the same.
    """

    low: float
    high: float
    shape: tuple[int, ...]
    dtype: str = "float32"
    changes_slowly: bool = False

    def sample(self, key: jax.Array) -> jax.Array:
        if np.issubdtype(np.dtype(self.dtype), np.integer):
            return jax.random.randint(key, self.shape, int(self.low), int(self.high) + 1).astype(self.dtype)
        return jax.random.uniform(key, self.shape, self.dtype, self.low, self.high)

    def contains(self, value: jax.Array) -> bool:
        fits = value.shape == self.shape and value.dtype == jnp.dtype(self.dtype)
        return fits and bool(jnp.all((value >= self.low) & (value <= self.high)))


@dataclasses.dataclass(frozen=True)
class Dict:
    """Named spaces; an observation is a dict with the same names."""

    items: tuple[tuple[str, "Space"], ...]

    def sample(self, key: jax.Array) -> dict:
        keys = jax.random.split(key, len(self.items))
        return {name: space.sample(k) for k, (name, space) in zip(keys, self.items, strict=True)}

    def contains(self, value: dict) -> bool:
        return set(value) == {name for name, _ in self.items} and all(s.contains(value[n]) for n, s in self.items)


Space = Discrete | Box | Dict

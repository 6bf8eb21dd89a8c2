"""Task spaces: what tasks there are, and how a task is written as numbers.

Curricula know only encodings: i32[] numbers from 0 to n - 1, or f32[D] points of a box. `decode` gives the task that an
environment takes, any Python object.
"""

import dataclasses
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

MOST_TASKS = 2**31 - 1


@runtime_checkable
class TaskSpace(Protocol):
    """Static and hashable. `sample` can be compiled; the other methods are for the host."""

    @property
    def n(self) -> int | None:
        """The number of tasks; None if they cannot be listed."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one encoding: () of i32, or (D,) of f32."""
        ...

    def sample(self, key: jax.Array, n: int) -> Any:
        """`n` encodings, uniform."""
        ...

    def decode(self, encoding: Any) -> Any:
        """The task. ValueError if the encoding is out of range."""
        ...

    def encode(self, task: Any) -> Any:
        """The encoding of a task. ValueError if it is none."""
        ...

    def name(self, encoding: Any) -> str:
        """The task in words, for logs."""
        ...


class _Listed:
    """The common part of spaces whose tasks are numbered."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        return jax.random.randint(key, (n,), 0, self.n, jnp.int32)

    def name(self, encoding: Any) -> str:
        return str(self.decode(encoding))  # type: ignore[attr-defined]

    def number(self, encoding: Any) -> int:
        """The encoding as an int. ValueError if it is out of range."""
        value = np.asarray(encoding)
        if value.shape != () or value.dtype.kind not in "iu" or not 0 <= value < self.n:
            raise ValueError(f"the encoding is {encoding!r}: it must be a whole number from 0 to {self.n - 1}")
        return int(value)


@dataclasses.dataclass(frozen=True)
class Discrete(_Listed):
    """The tasks are the numbers from `first` to `first + n - 1`, or the entries of a list (`Discrete.of`)."""

    n: int
    first: int = 0
    tasks: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        check_count(self.n)

    @classmethod
    def of(cls, tasks: Iterable[Any]) -> "Discrete":
        """The tasks of a list, in its order. ValueError if it is empty or has a task twice."""
        listed = tuple(tasks)
        if isinstance(tasks, range) and tasks.step == 1 and listed:
            return cls(len(listed), listed[0])  # no table is kept
        seen: set[Any] = set()
        for task in listed:
            if not isinstance(task, Hashable):
                raise ValueError(f"the task {task!r} cannot be hashed: tasks are told apart by equality and hash")
            if task in seen:
                raise ValueError(f"the task {task!r} is in the list twice")
            seen.add(task)
        return cls(len(listed), tasks=listed)

    def decode(self, encoding: Any) -> Any:
        number = self.number(encoding)
        return self.first + number if self.tasks is None else self.tasks[number]

    def encode(self, task: Any) -> int:
        if self.tasks is not None:
            if not isinstance(task, Hashable) or task not in self.tasks:
                raise ValueError(f"{task!r} is none of the {self.n} tasks")
            return self.tasks.index(task)
        is_number = isinstance(task, int | np.integer) and not isinstance(task, bool)
        if not is_number or not 0 <= task - self.first < self.n:
            raise ValueError(f"{task!r} is not a task: tasks are the numbers {self.first} to {self.first + self.n - 1}")
        return int(task) - self.first


@dataclasses.dataclass(frozen=True)
class Stratified(_Listed):
    """Numbered tasks in S strata. A draw is uniform over the strata, and then over the tasks of one."""

    strata: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "strata", tuple(tuple(stratum) for stratum in self.strata))
        numbers = sorted(number for stratum in self.strata for number in stratum)
        for number, wanted in zip(numbers, range(len(numbers)), strict=True):
            if number != wanted:
                how = "out of range" if number < 0 else "in two strata" if number < wanted else "missing"
                raise ValueError(
                    f"task {min(number, wanted)} is {how}: each number from 0 on is in exactly one stratum"
                )
        if not numbers or not all(self.strata):
            raise ValueError(f"there are {len(self.strata)} strata: each must have a task, and there must be one")

    @property
    def n(self) -> int:  # type: ignore[override]
        return sum(map(len, self.strata))

    @property
    def stratum(self) -> np.ndarray:
        """i32[n], the stratum of each task."""
        of_task = np.empty(self.n, np.int32)
        for i, stratum in enumerate(self.strata):
            of_task[list(stratum)] = i
        return of_task

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        k_stratum, k_task = jax.random.split(key)
        sizes = jnp.asarray([len(stratum) for stratum in self.strata], jnp.int32)
        table = np.zeros((len(self.strata), max(map(len, self.strata))), np.int32)
        for i, stratum in enumerate(self.strata):
            table[i, : len(stratum)] = stratum
        chosen = jax.random.randint(k_stratum, (n,), 0, len(self.strata), jnp.int32)
        return jnp.asarray(table)[chosen, jax.random.randint(k_task, (n,), 0, sizes[chosen], jnp.int32)]

    def decode(self, encoding: Any) -> int:
        return self.number(encoding)

    def encode(self, task: Any) -> int:
        return self.number(task)


@dataclasses.dataclass(frozen=True)
class Box:
    """The points between `low` and `high`, both included, of D dimensions."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            bound = np.atleast_1d(np.asarray(getattr(self, side), np.float32))
            if bound.ndim != 1 or not np.isfinite(bound).all():
                raise ValueError(f"{side} is {getattr(self, side)!r}: it must be a list of finite numbers")
            object.__setattr__(self, side, tuple(bound.tolist()))
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(f"low is {self.low} and high is {self.high}: each low must be below its high")

    @property
    def n(self) -> None:
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.low),)

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        low, high = (jnp.asarray([bound], jnp.float32) for bound in (self.low, self.high))
        return jnp.clip(low + (high - low) * jax.random.uniform(key, (n, len(self.low))), low, high)

    def decode(self, encoding: Any) -> np.ndarray:
        point = np.asarray(encoding, np.float32)
        inside = point.shape == self.shape and (point >= self.low).all() and (point <= self.high).all()
        if not inside:
            raise ValueError(f"the point is {encoding!r}: it must be between {self.low} and {self.high}")
        return point

    encode = decode

    def name(self, encoding: Any) -> str:
        return "(" + ", ".join(f"{value:g}" for value in np.asarray(encoding)) + ")"


@dataclasses.dataclass(frozen=True)
class Product(_Listed):
    """One task of each of several spaces. A task is a dict with their `names`.

    If all spaces can be listed, so can the product: the number of the last space runs fastest. With a box among them,
    an encoding is a tuple, and only some curricula take it.
    """

    spaces: tuple[Any, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "spaces", tuple(self.spaces))
        object.__setattr__(self, "names", tuple(self.names))
        if len(self.spaces) != len(self.names) or not self.spaces or len(set(self.names)) < len(self.names):
            raise ValueError(f"names are {self.names}: each of the {len(self.spaces)} spaces needs its own name")
        if self.n is not None:
            check_count(self.n)

    @property
    def n(self) -> int | None:  # type: ignore[override]
        sizes = [space.n for space in self.spaces]
        return None if None in sizes else math.prod(sizes)

    def sample(self, key: jax.Array, n: int) -> Any:
        if self.n is not None:
            return jax.random.randint(key, (n,), 0, self.n, jnp.int32)
        keys = jax.random.split(key, len(self.spaces))
        return tuple(space.sample(key, n) for key, space in zip(keys, self.spaces, strict=True))

    def parts(self, encoding: Any) -> tuple[Any, ...]:
        """The encodings in the single spaces."""
        if self.n is None:
            if not isinstance(encoding, tuple) or len(encoding) != len(self.spaces):
                raise ValueError(f"the encoding is {encoding!r}: it must be a tuple of {len(self.spaces)}")
            return encoding
        return tuple(map(int, np.unravel_index(self.number(encoding), [space.n for space in self.spaces])))

    def decode(self, encoding: Any) -> dict[str, Any]:
        parts = zip(self.names, self.spaces, self.parts(encoding), strict=True)
        return {name: space.decode(part) for name, space, part in parts}

    def encode(self, task: Any) -> Any:
        if not isinstance(task, dict) or set(task) != set(self.names):
            raise ValueError(f"{task!r} is not a task: it must be a dict with {', '.join(self.names)}")
        parts = tuple(space.encode(task[name]) for name, space in zip(self.names, self.spaces, strict=True))
        return parts if self.n is None else int(np.ravel_multi_index(parts, [space.n for space in self.spaces]))

    def name(self, encoding: Any) -> str:
        parts = zip(self.names, self.spaces, self.parts(encoding), strict=True)
        return " ".join(f"{name}={space.name(part)}" for name, space, part in parts)


def multi_discrete(axes: Sequence[int]) -> Product:
    """The product of discrete axes, whose tasks are dicts {"0": i, "1": j, ...}."""
    return Product(tuple(Discrete(n) for n in axes), tuple(map(str, range(len(axes)))))


def check_count(n: int) -> None:
    """ValueError if there cannot be `n` numbered tasks."""
    if not isinstance(n, int | np.integer) or not 1 <= n <= MOST_TASKS:
        raise ValueError(f"the number of tasks is {n}: it must be a whole number, at least 1 and at most {MOST_TASKS}")

"""Task spaces in two parts: one to train on, the other to measure on."""

import dataclasses
from typing import Any

import jax
import numpy as np

from minimax_lib.tasks.spaces import Discrete


@dataclasses.dataclass(frozen=True)
class Part:
    """Some of the tasks of a space, numbered anew. The tasks themselves are those of the space."""

    space: Any
    numbers: tuple[int, ...]  # in the space, of each task

    @property
    def n(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        return Discrete(self.n).sample(key, n)

    def decode(self, encoding: Any) -> Any:
        return self.space.decode(self.numbers[Discrete(self.n).number(encoding)])

    def encode(self, task: Any) -> int:
        number = self.space.encode(task)
        if number not in self.numbers:
            raise ValueError(f"{task!r} is a task of the other part")
        return self.numbers.index(number)

    def name(self, encoding: Any) -> str:
        return self.space.name(self.numbers[Discrete(self.n).number(encoding)])


def split(space: Any, share: float, seed: int = 0) -> tuple[Part, Part]:
    """(`share` of the tasks, the rest), chosen at random; each part in the order of `space`.

    The same seed gives the same parts, on every machine. ValueError if the tasks cannot be listed, or if a part would
    be empty.
    """
    if space.n is None:
        raise ValueError("the tasks of a box cannot be listed: choose two boxes instead, by their bounds")
    n = round(share * space.n)
    if not 0 < n < space.n:
        raise ValueError(f"share is {share}: of {space.n} tasks it gives {n}, and each part needs one or more")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(space.n)
    first, rest = (tuple(np.sort(part).tolist()) for part in (order[:n], order[n:]))
    return Part(space, first), Part(space, rest)

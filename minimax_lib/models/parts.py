"""The parts of an observation, and how a network reads each: the number that divides it, and how many layers it has."""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import jax
import jax.numpy as jnp

from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, MultiDiscrete, Space
from minimax_lib.registry import unknown_name

Number = TypeVar("Number", int, float)
Leaf = Discrete | MultiDiscrete | Box


@dataclasses.dataclass(frozen=True)
class ObservationPart:
    """One part of an observation."""

    path: tuple[str, ...]  # the names that lead to it; () if it is the whole observation
    space: Leaf
    scale: float = 1.0  # a Box is divided by it
    depth: int = 0  # number of convolutions of an image, or of dense layers of another Box; 0: it is only flattened

    @property
    def name(self) -> str:
        """Its name in settings, in messages and among the parameters."""
        return ".".join(self.path) or "observation"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of this part of one observation."""
        if isinstance(self.space, Box):
            return self.space.shape
        return () if isinstance(self.space, Discrete) else (len(self.space.sizes),)

    def of(self, obs: Any) -> jax.Array:
        """The array of this part in an observation [...]."""
        return functools.reduce(operator.getitem, self.path, obs)

    @property
    def is_convolved(self) -> bool:
        """Whether it is an image that goes through convolutions."""
        return is_image(self.space) and self.depth > 0

    @property
    def is_dense(self) -> bool:
        """Whether it goes through dense layers."""
        return isinstance(self.space, Box) and not is_image(self.space) and self.depth > 0

    @property
    def goes_by_changes(self) -> bool:
        """Whether its features may be computed only where it changes.

        This is correct for one convolution only: a second one sees more than one window. It is not done for floats: an
        infinity or a NaN would stay in the sum over changes at every later step.
        """
        if not (is_image(self.space) and self.depth == 1):
            return False
        return self.space.changes_slowly and not jnp.issubdtype(jnp.dtype(self.space.dtype), jnp.floating)


def is_image(space: Space) -> TypeGuard[Box]:
    """Whether observations are arrays [height, width, channels], of whatever type."""
    return isinstance(space, Box) and len(space.shape) == 3


def is_integer_image(space: Space) -> bool:
    """Whether observations are images of integers; bools do not count as integers."""
    return is_image(space) and jnp.issubdtype(jnp.dtype(space.dtype), jnp.integer)


def leaf_spaces(space: Space, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Leaf]]:
    """The parts of an observation, each with the names that lead to it. No Dict: one part, without a name.

    The mask of actions is not a part: it says what is allowed, not what is seen.
    """
    if not isinstance(space, Dict):
        return [(path, space)]
    seen = [(name, inner) for name, inner in space.items if path or name != ACTION_MASK]
    return [leaf for name, inner in seen for leaf in leaf_spaces(inner, (*path, name))]


def parts_of(
    space: Space, image_scale: float, scales: Mapping[str, float], depths: Mapping[str, int]
) -> tuple[ObservationPart, ...]:
    """The parts of an observation, in their order.

    `scales` and `depths` are given by the name of a part. A part that is not named there has these defaults: an image
    of integers is divided by `image_scale`, anything else by 1. An image has one convolution, anything else no layer.

    ValueError for a name of no part, for the name of an embedded part, for a part that holds no number, and for an
    observation without parts.
    """
    parts = [ObservationPart(path, leaf) for path, leaf in leaf_spaces(space)]
    _check_names(parts)
    _check_given("scales", scales, parts)
    _check_given("depths", depths, parts)
    found = []
    for part in parts:
        scale = scales.get(part.name, image_scale if is_integer_image(part.space) else 1.0)
        depth = depths.get(part.name, int(is_image(part.space)))
        found.append(dataclasses.replace(part, scale=scale, depth=depth))
    return tuple(found)


def _check_names(parts: Sequence[ObservationPart]) -> None:
    if not parts:
        raise ValueError(
            f"the observation has no part besides {ACTION_MASK!r}: a network needs one (if there is nothing to see, a "
            "constant Box of shape (1,))"
        )
    names = [part.name for part in parts]
    for part in parts:
        if names.count(part.name) > 1:
            raise ValueError(f"two parts of the observation are called {part.name!r}: one must be renamed")
        if math.prod(part.shape) == 0:
            raise ValueError(f"the observation {part.name!r} holds no number ({part.space}): it must be left out")


def _check_given(setting: str, given: Mapping[str, float], parts: Sequence[ObservationPart]) -> None:
    spaces = {part.name: part.space for part in parts}
    boxes = [name for name, space in spaces.items() if isinstance(space, Box)]
    for name in given:
        if name not in spaces:
            raise unknown_name(f"part of the observation in model.{setting}", name, spaces)
        if name not in boxes:
            raise ValueError(
                f"model.{setting} names {name!r}, whose numbers are embedded: it is for the parts that are a Box "
                f"({', '.join(boxes) or 'there is none'})"
            )


def check_kernel(parts: Sequence[ObservationPart], size: int) -> None:
    """ValueError for an image that is too small for its convolutions with a square kernel of side `size`."""
    for part in parts:
        if not part.is_convolved:
            continue
        side = min(part.shape[:2])
        shape = "x".join(map(str, part.shape[:2]))
        if size > side:
            raise ValueError(
                f"model.kernel_size is {size}, but the observation {part.name!r} is {shape}: it must be at most "
                f"{side}, or {part.name}=0 in model.depths"
            )
        if size > 1 and part.depth > (most := (side - 1) // (size - 1)):
            raise ValueError(
                f"model.depths has {part.name}={part.depth}, but {part.name!r} is {shape} and model.kernel_size is "
                f"{size}: it must be at most {most}"
            )


def by_name(setting: str, words: Sequence[str], kind: Callable[[str], Number], example: str) -> dict[str, Number]:
    """The number that `words` give for each part, as in image=255. ValueError for a word in another form."""
    found: dict[str, Number] = {}
    for word in words:
        # Split at the last "=": a name may contain any character.
        name, _, text = word.rpartition("=")
        try:
            number = kind(text)
        except ValueError:
            number = None
        if not name or number is None:
            raise ValueError(f"model.{setting} has {word!r}: it must be PART=NUMBER, as in {example}")
        if name in found:
            raise ValueError(f"model.{setting} names {name!r} twice: it must be there once")
        found[name] = number
    return found

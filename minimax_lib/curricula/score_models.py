"""Scores that have a model: what such a model is, and how what students see and do becomes numbers for it."""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.spaces import Box, Discrete, MultiDiscrete, Space
from minimax_lib.models.parts import ObservationPart, is_image, parts_of
from minimax_lib.playing.rollout import Transition

IMAGE_SCALE = 10.0  # images of integers are divided by it, as for the students' networks


class ScoreModel(Protocol):
    """A model that a score looks at. Pure and static; what it learns is its state, which is part of the checkpoint.

    Batch by batch, it first measures the steps of the batch, and is fitted to them only then.
    """

    def init(self, key: jax.Array) -> Any:
        """The state before the first batch: a pytree of arrays. A `TrainState` in it is common to all devices."""
        ...

    def measure(self, state: Any, steps: Transition) -> jax.Array:
        """f32[T, A, R], what it says of each step. The score reads this as `Experience.modelled`."""
        ...

    def fit(self, key: jax.Array, state: Any, steps: Transition) -> Any:
        """The state after the batch."""
        ...


@dataclasses.dataclass(frozen=True)
class Sight:
    """How observations and actions are written as vectors."""

    observation_space: Space
    action_space: Space

    @property
    def parts(self) -> tuple[ObservationPart, ...]:
        return parts_of(self.observation_space, IMAGE_SCALE, {}, {})

    def observed(self, obs: Any) -> jax.Array:
        """f32[..., F], all parts of observations [...], side by side."""
        return jnp.concatenate([_vectors(part.space, part.of(obs), part.scale) for part in self.parts], axis=-1)

    def done(self, action: jax.Array) -> jax.Array:
        """f32[..., F], actions [...]."""
        return _vectors(self.action_space, action, 1.0)

    @property
    def n_of_action(self) -> int:
        """Numbers in the vector of an action."""
        return _width(self.action_space)

    @property
    def is_real(self) -> np.ndarray:
        """bool[F], the numbers of `observed` that are no one-hot codes; all of them, where there are only codes."""
        real = np.concatenate([np.full(_width(part.space), isinstance(part.space, Box)) for part in self.parts])
        return real if real.any() else np.ones_like(real)

    @property
    def in_image(self) -> np.ndarray:
        """bool[F], the numbers of `observed` that are of images."""
        return np.concatenate([np.full(_width(part.space), is_image(part.space)) for part in self.parts])


def _width(space: Any) -> int:
    """Numbers in the vector of an element of `space`."""
    if isinstance(space, Discrete):
        return space.n
    return sum(space.sizes) if isinstance(space, MultiDiscrete) else int(np.prod(space.shape))


def _vectors(space: Any, x: jax.Array, scale: float) -> jax.Array:
    """f32[..., F] of elements x [...] of `space`: one-hot codes, or numbers divided by `scale`."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(x, space.n, dtype=jnp.float32)
    if isinstance(space, MultiDiscrete):
        codes = [jax.nn.one_hot(x[..., i], n, dtype=jnp.float32) for i, n in enumerate(space.sizes)]
        return jnp.concatenate(codes, axis=-1)
    leading = x.shape[: x.ndim - len(space.shape)]
    return x.reshape(*leading, _width(space)).astype(jnp.float32) / scale

"""The square that a map is: sizes, the edge where players spawn, distances to the middle."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Square:
    """A map of `centre` x `centre` tiles within a border. Rows and columns border .. border + centre can be walked."""

    centre: int
    border: int = 16

    @property
    def side(self) -> int:
        """S, rows and columns of the whole map."""
        return self.centre + 2 * self.border

    @property
    def middle(self) -> int:
        """The row and the column of the centre tile."""
        return self.side // 2

    @functools.cached_property
    def distances(self) -> np.ndarray:
        """i32[S, S], the L-infinity distance of each tile to the centre tile."""
        offsets = np.abs(np.arange(self.side, dtype=np.int32) - self.middle)
        return np.maximum(offsets[:, None], offsets[None, :])

    @functools.cached_property
    def edge(self) -> np.ndarray:
        """i32[4 C, 2], the places where players spawn. The first corner is there twice and the third is missing."""
        low, high = self.border, self.border + self.centre
        rising, falling = np.arange(low, high), np.arange(high - 1, low - 1, -1)
        sides = [
            (np.full_like(rising, low), rising),
            (rising, np.full_like(rising, high)),
            (np.full_like(rising, high), falling),
            (falling, np.full_like(rising, low)),
        ]
        return np.concatenate([np.stack(side, axis=1) for side in sides]).astype(np.int32)

    def box(self, margin: int, margin_high: int | None = None) -> np.ndarray:
        """bool[S, S]: tiles at least `margin` inside the border. At high rows and columns, `margin_high`."""
        last = self.side - self.border - 1 - (margin if margin_high is None else margin_high)
        line = np.arange(self.side)
        inside = (line >= self.border + margin) & (line <= last)
        return inside[:, None] & inside[None, :]

    def to_middle(self, position: jax.Array) -> jax.Array:
        """i32[...], the L-infinity distance of places i32[..., 2] to the centre tile."""
        return jnp.abs(position - self.middle).max(axis=-1)

    def danger(self, position: jax.Array) -> jax.Array:
        """f32[...]: 0 at the edge, nearly 1 in the middle, of places i32[..., 2]."""
        low, high = position - self.border, self.border + self.centre - 1 - position
        return 2.0 * jnp.minimum(low, high).min(axis=-1).astype(jnp.float32) / self.centre


def spawn_places(key: jax.Array, square: Square, n: int) -> jax.Array:
    """i16[n, 2], a place on the edge for each player, each entry of the list once at most."""
    return jax.random.permutation(key, jnp.asarray(square.edge, jnp.int16))[:n]

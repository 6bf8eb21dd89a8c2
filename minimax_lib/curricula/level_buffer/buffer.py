"""What a level buffer holds."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.curricula.level_buffer.ancestors import no_ancestors
from minimax_lib.envs.base import Level


class LevelBuffer(struct.PyTreeNode):
    """C slots. A slot that is not filled holds a placeholder."""

    levels: Level  # [C, ...]
    scores: jax.Array  # f32[C], -inf where not filled
    best_returns: jax.Array  # f32[C], the highest undiscounted return ever reached; -inf where not filled
    n_mutations: jax.Array  # i32[C], mutations along the level's lineage
    ages: jax.Array  # i32[C], levels sampled since this one was, MAX_AGE at most; 0 where not filled
    fingerprints: jax.Array  # u32[C, 2], equal where levels are
    filled: jax.Array  # bool[C]
    ancestors: Any = ()  # `Ancestors` of the levels; () where none are kept


def init(level: Level, capacity: int, n_ancestors: int = 0) -> LevelBuffer:
    """An empty buffer for levels like `level`, which is the placeholder."""
    levels = jax.tree.map(lambda x: jnp.broadcast_to(x, (capacity, *jnp.shape(x))), level)
    return LevelBuffer(
        levels=levels,
        scores=jnp.full(capacity, -jnp.inf, jnp.float32),
        best_returns=jnp.full(capacity, -jnp.inf, jnp.float32),
        n_mutations=jnp.zeros(capacity, jnp.int32),
        ages=jnp.zeros(capacity, jnp.int32),
        fingerprints=jnp.zeros((capacity, 2), jnp.uint32),
        filled=jnp.zeros(capacity, bool),
        ancestors=no_ancestors(levels, n_ancestors),
    )


def levels_at(buffer: LevelBuffer, slots: jax.Array) -> Level:
    """The levels in `slots` (i32[n]), [n, ...]."""
    return jax.tree.map(lambda x: x[slots], buffer.levels)


def count_filled(buffer: LevelBuffer) -> jax.Array:
    """i32[], the number of filled slots."""
    return buffer.filled.sum(dtype=jnp.int32)

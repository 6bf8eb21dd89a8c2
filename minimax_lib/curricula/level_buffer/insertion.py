"""The insertion of a scored batch."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.curricula.level_buffer.ages import saturated
from minimax_lib.curricula.level_buffer.buffer import LevelBuffer
from minimax_lib.curricula.level_buffer.duplicates import Rows
from minimax_lib.curricula.level_buffer.eviction import place_by_eviction
from minimax_lib.curricula.level_buffer.placement import Candidates, place_freely
from minimax_lib.curricula.level_buffer.settings import ReplaySettings


def insert(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    rows: Rows,
    scores: jax.Array,
    returns: jax.Array,
    n_mutations: jax.Array,
    ancestors: Any = (),
) -> LevelBuffer:
    """The buffer after the rows of a batch, as if they came one after another.

    `scores`, `returns`, `n_mutations` and `ancestors` are [B]. `returns` are those of `best_returns`, or of this batch
    alone.

    First, all filled slots become older by the number of new rows that have been played. Then, for each row:
    - If its score is not finite (no episode finished), it is passed over.
    - If it was drawn from a slot, its score replaces the score of that slot. If the slot has been given to another
      level earlier in the batch, the row is passed over.
    - If it is new and equal to a level in the buffer, its score replaces the score there, and the age becomes 0.
    - If it is new and there is a free slot, it takes the first one.
    - If it is new and the buffer is full, it replaces the level in the slot with the lowest weight, provided that it
      scores at least as high. Of equal weights, the one with the smaller share from the score is the lowest; of these,
      the one in the lower slot.
    When a row is written, the best return of its slot becomes the maximum of what it was and the row's `returns`. Where
    the row takes the slot for a new level, it becomes the row's `returns`.
    """
    played = rows.is_new if rows.begun is None else rows.is_new & rows.begun
    aged = jnp.where(buffer.filled, buffer.ages + played.sum(dtype=jnp.int32), 0)
    # NaN and +inf become -inf too: from here on, a row is passed over if and only if its score is -inf.
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    batch = Candidates(is_new=rows.is_new, groups=rows.groups, scores=scores, returns=returns)
    placed, row = place_freely(dataclasses.replace(buffer, ages=saturated(aged)), batch, rows.homes)
    placed = place_by_eviction(settings, batch, placed, row)

    # Levels are large, so they are written only here, when it is known which ones stay. A row may have a home and not
    # be its writer: the slot held the level before, or an earlier copy brought it in.
    index = jnp.arange(len(scores), dtype=jnp.int32)
    written = (placed.homes >= 0) & (placed.writers[placed.homes] == index)
    # The other rows point past the last slot, where writes are dropped, and each to its own place:
    # `unique_indices` promises that no two indices are equal.
    targets = jnp.where(written, placed.homes, len(buffer.filled) + index)

    def write(old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[targets].set(new, mode="drop", unique_indices=True)

    return LevelBuffer(
        levels=jax.tree.map(write, buffer.levels, rows.levels),
        scores=placed.scores,
        best_returns=placed.best_returns,
        n_mutations=write(buffer.n_mutations, n_mutations),
        ages=placed.ages,
        fingerprints=write(buffer.fingerprints, rows.fingerprints),
        filled=write(buffer.filled, jnp.ones_like(written)),
        ancestors=jax.tree.map(write, buffer.ancestors, ancestors),
    )

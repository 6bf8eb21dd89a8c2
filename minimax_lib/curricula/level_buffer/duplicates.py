"""Where in the buffer the levels of a batch are already, and what is known of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer
from minimax_lib.curricula.level_buffer.fingerprints import fingerprint
from minimax_lib.curricula.level_buffer.settings import ReplaySettings
from minimax_lib.envs.base import Level
from minimax_lib.envs.family import whole_level


class Rows(struct.PyTreeNode):
    """A batch of B levels, and where in the buffer they are."""

    levels: Level  # [B, ...]
    is_new: jax.Array  # bool[B], not drawn from the buffer
    homes: jax.Array  # i32[B], the slot that holds the level; -1 if none
    groups: jax.Array  # i32[B], the same for new rows that are equal; at least C for rows without a home
    fingerprints: jax.Array  # u32[B, 2]
    begun: jax.Array | None = None  # bool[B], the level has been played; None: all have


def locate(
    settings: ReplaySettings,
    buffer: LevelBuffer,
    levels: Level,
    slots: jax.Array,
    identity: Callable[[Level], Any] = whole_level,
) -> Rows:
    """The batch `levels` [B, ...] with its duplicates found; row i was drawn from slot `slots[i]` (i32[B], -1: new).

    Two levels are equal if `identity(level)`, a pytree, is equal. Without `settings.unique`, no two are taken as equal.
    """
    capacity, n = len(buffer.filled), len(slots)
    is_new = slots < 0
    # A row drawn from an empty buffer is a placeholder. It gets no home, and so it is never inserted.
    homes = jnp.where(~is_new & buffer.filled[slots], slots, -1)
    fingerprints = jax.vmap(lambda level: fingerprint(identity(level)))(levels)
    # Rows are counted on from the C slots, so that the number of a row is never that of a slot.
    groups = capacity + jnp.arange(n, dtype=jnp.int32)
    if settings.unique:
        # Slots stand before rows: if any slot holds the level, the first equal element is a slot. Replayed rows are
        # left out, since the slots that they were drawn from are there.
        everything = jnp.concatenate([buffer.fingerprints, fingerprints])
        first = _first_equal(everything, jnp.concatenate([buffer.filled, is_new]))[capacity:]
        homes = jnp.where(is_new & (first < capacity), first, homes)
        # Replayed copies of a level do not join the group of new ones. If the level is evicted and a new copy brings
        # it back, the updates of the old copies stay lost, by the rule of `insert`.
        groups = jnp.where(is_new, first, groups)
    return Rows(levels=levels, is_new=is_new, homes=homes, groups=groups, fingerprints=fingerprints)


def _first_equal(fingerprints: jax.Array, valid: jax.Array) -> jax.Array:
    """i32[N], the index of the first valid element with the same fingerprint; of no use where not `valid`."""
    index = jnp.arange(len(valid), dtype=jnp.int32)
    # A sort puts equal elements side by side. Comparing all pairs was hardly faster for batches of 32 levels, and far
    # slower for 2,048 (docs/speed.md).
    # `~valid` is the first key, so that no invalid element stands among valid ones. The sort is stable and `index` is
    # only carried along: among equals, the lowest index comes first.
    columns = (~valid, fingerprints[:, 0], fingerprints[:, 1], index)
    *sorted_keys, order = jax.lax.sort(columns, num_keys=3, is_stable=True)
    differs = jnp.stack([key[1:] != key[:-1] for key in sorted_keys]).any(axis=0)
    starts = jnp.concatenate([jnp.ones(1, bool), differs])
    # The latest start up to a place is where the run of equals around it begins.
    runs = jax.lax.cummax(jnp.where(starts, index, 0))
    return jnp.zeros_like(index).at[order].set(order[runs], unique_indices=True)


def best_returns(buffer: LevelBuffer, rows: Rows, returns: jax.Array) -> jax.Array:
    """f32[B], the highest return ever reached on the level of each row, in this batch or before.

    `returns` is the best of each row's rollout (-inf where no episode finished). Copies of a level share the highest.
    """
    # A level that no slot holds is known by its group. Groups are numbered from C on, hence the B entries more.
    keys = jnp.where(rows.homes >= 0, rows.homes, rows.groups)
    known = jnp.concatenate([buffer.best_returns, jnp.full_like(returns, -jnp.inf)])
    return known.at[keys].max(returns)[keys]

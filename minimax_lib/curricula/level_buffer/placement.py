"""The first part of an insertion: all rows before the first one that needs the replay weights, at once."""

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.curricula.level_buffer.buffer import LevelBuffer


class Candidates(struct.PyTreeNode):
    """What decides where the B rows of a batch go."""

    is_new: jax.Array  # bool[B], not drawn from the buffer
    groups: jax.Array  # i32[B], the same for new rows that are equal
    scores: jax.Array  # f32[B], -inf where the row is passed over
    returns: jax.Array  # f32[B]


class Placement(struct.PyTreeNode):
    """The buffer in the middle of an insertion, without what is only written at its end."""

    scores: jax.Array  # f32[C]
    best_returns: jax.Array  # f32[C]
    ages: jax.Array  # i32[C]
    writers: jax.Array  # i32[C], the row whose level the slot holds now; -1 where it holds the level it had
    homes: jax.Array  # i32[B], the slot that holds the level of the row; -1 if none


def place_freely(buffer: LevelBuffer, batch: Candidates, homes: jax.Array) -> tuple[Placement, jax.Array]:
    """(the buffer after all rows before the first that finds no free slot, i32[] that row, B if there is none).

    `homes` (i32[B]) are the slots that hold the rows' levels already, -1 if none.
    """
    capacity, n = len(buffer.filled), len(homes)
    nowhere = capacity + n  # past the end of every array here: what is written there is dropped
    index = jnp.arange(n, dtype=jnp.int32)
    new_homes = _free_slots(buffer, batch, homes)
    # From this row on, the weights decide, and they change with every row that is written. No row before it needs them.
    end = jnp.where(new_homes == capacity, index, n).min()
    settles = (new_homes >= 0) & (index < end)

    # Copies of a level that has just found a slot are at home there too, also those that come after `end`.
    of_group = jnp.full(nowhere, -1, jnp.int32)
    of_group = of_group.at[jnp.where(settles, batch.groups, nowhere)].set(new_homes, mode="drop")
    homes = jnp.where(batch.is_new & (homes < 0), of_group[batch.groups], homes)
    writes = (index < end) & (batch.scores > -jnp.inf) & (homes >= 0)
    targets = jnp.where(writes, homes, nowhere)
    # Several rows may write to one slot, and the last one must win. A scatter promises no order, and a maximum needs
    # none. So the last row of each slot is found first, and then its score is read.
    nobody = jnp.full(capacity, -1, jnp.int32)
    last = nobody.at[targets].max(index, mode="drop")
    placed = Placement(
        scores=jnp.where(last >= 0, batch.scores[last], buffer.scores),
        best_returns=buffer.best_returns.at[targets].max(batch.returns, mode="drop"),
        # A replayed row leaves the age alone: `sample` has set it.
        ages=buffer.ages.at[jnp.where(batch.is_new, targets, nowhere)].set(0, mode="drop"),
        # Only the first copy of a level brings it in. The others update the slot, which then holds the level already.
        writers=nobody.at[jnp.where(settles, homes, nowhere)].set(index, mode="drop"),
        homes=homes,
    )
    return placed, end


def _free_slots(buffer: LevelBuffer, batch: Candidates, homes: jax.Array) -> jax.Array:
    """i32[B], the free slot that each row takes, C where there are not enough of them; -1 where a row takes none."""
    capacity, n = len(buffer.filled), len(homes)
    index = jnp.arange(n, dtype=jnp.int32)
    settles = batch.is_new & (batch.scores > -jnp.inf) & (homes < 0)
    # Of equal rows, only the first with a known score takes a slot. Those before it are passed over, and those after
    # it update its slot.
    first = jnp.full(capacity + n, n, jnp.int32).at[batch.groups].min(jnp.where(settles, index, n))
    settles &= first[batch.groups] == index
    # The k-th row that takes a slot takes the k-th free one. B rows take B of them at most.
    free = jnp.nonzero(~buffer.filled, size=n, fill_value=capacity)[0].astype(jnp.int32)
    return jnp.where(settles, free[jnp.cumsum(settles) - 1], -1)

"""What follows an ended episode in a row: the same level, a fresh one, the next of a queue, or nothing."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.base import Level
from minimax_lib.trees import tree_where, zeros


@dataclasses.dataclass(frozen=True)
class SameLevel:
    """An ended episode is followed by another one on the same level (all replay curricula)."""

    def init(self, key: jax.Array, n_rows: int) -> tuple[()]:
        return ()

    def restock(self, stock: tuple[()], n_rows: int) -> tuple[()]:
        return stock

    def next_levels(self, stock: tuple[()], levels: Level, done: jax.Array) -> tuple[tuple[()], Level]:
        return stock, levels

    def group_levels(self, stock: tuple[()], places: jax.Array, rows: jax.Array, levels: Level) -> Level:
        return levels

    def used(self, stock: tuple[()], done: jax.Array) -> tuple[()]:
        return stock


class LevelStock(struct.PyTreeNode):
    """Fresh levels drawn ahead. Level number n is `sample(fold_in(key, n))`, whenever it is drawn."""

    key: jax.Array
    levels: Level  # [P, ...]; () where none is drawn ahead
    first: jax.Array  # i32[], number of levels[0]
    n_used: jax.Array  # i32[], levels handed out


@dataclasses.dataclass(frozen=True)
class FreshLevels:
    """An ended episode is followed by one on a level never seen before (domain randomisation).

    Levels are drawn outside the step loop, many at once, and only when the stock runs low. In the loop, a restart costs
    one gather. The sequence of levels does not depend on when the stock is filled up. So all seeds of a vmap may fill
    up together, which keeps the decision a branch, and each seed still gets the levels that it gets alone.
    """

    sample: Callable[[jax.Array], Level]
    restock_every: int = 4  # steps; the stock holds twice what they can use up

    def init(self, key: jax.Array, n_rows: int) -> LevelStock:
        """A stock that is used up. The first `restock` fills it."""
        # Not filled here: the drawing of levels would be in the program twice, and take twice as long to compile.
        n_used, used_up = jnp.zeros((), jnp.int32), jnp.full((), -self._lasts_for(n_rows) - 1, jnp.int32)
        levels = zeros(jax.eval_shape(lambda: self._fill(key, n_used, n_rows).levels))
        return LevelStock(key=key, levels=levels, first=used_up, n_used=n_used)

    def init_empty(self, key: jax.Array) -> LevelStock:
        """The stock before the first step, if levels are drawn only when rows need them."""
        none = jnp.zeros((), jnp.int32)
        return LevelStock(key=key, levels=(), first=none, n_used=none)

    def numbered(self, key: jax.Array, numbers: jax.Array) -> Level:
        """The levels [n, ...] of these numbers, i32[n]."""
        # Keys are folded by number, not split: a level must not depend on how many are drawn with it.
        return jax.vmap(self.sample)(jax.vmap(jax.random.fold_in, (None, 0))(key, numbers))

    def _lasts_for(self, n_rows: int) -> int:
        """Levels that `restock_every` steps can use up."""
        return self.restock_every * n_rows

    def _fill(self, key: jax.Array, first: jax.Array, n_rows: int) -> LevelStock:
        numbers = first + jnp.arange(2 * self._lasts_for(n_rows), dtype=jnp.int32)
        return LevelStock(key=key, levels=self.numbered(key, numbers), first=first, n_used=first)

    def restock(self, stock: LevelStock, n_rows: int) -> LevelStock:
        """A stock that lasts for `restock_every` steps, whatever happens in them."""
        # Half of the stock lasts that long, even if every row ends in every step. Without the other half, it would be
        # filled up at nearly every call. Levels that are left are drawn again by their numbers: none is skipped.
        low = stock.n_used - stock.first > self._lasts_for(n_rows)
        return jax.lax.cond(axes.any_seed(low), lambda: self._fill(stock.key, stock.n_used, n_rows), lambda: stock)

    def handed_out(self, before: LevelStock, after: LevelStock, n: int) -> tuple[Level, jax.Array]:
        """(the first `n` levels that were handed out from `before` to `after`, bool[n] whether there were so many)."""
        numbers = before.n_used + jnp.arange(n, dtype=jnp.int32)
        return self.numbered(before.key, numbers), numbers < after.n_used

    def next_levels(self, stock: LevelStock, levels: Level, done: jax.Array) -> tuple[LevelStock, Level]:
        """(stock, [N] levels on which the rows that are `done` start again; the others keep theirs)."""
        order = jnp.cumsum(done, dtype=jnp.int32)
        # The first row that is done gets the next level, the second the one after it. For other rows the index means
        # nothing and may be -1: it is clipped, and `tree_where` does not take what it finds.
        index = stock.n_used - stock.first + order - 1
        fresh = jax.tree.map(lambda x: x.at[index].get(mode="clip"), stock.levels)
        return dataclasses.replace(stock, n_used=stock.n_used + order[-1]), tree_where(done, fresh, levels)

    def group_levels(self, stock: LevelStock, places: jax.Array, rows: jax.Array, levels: Level) -> Level:
        """The levels of a group of rows, drawn now: `places` (i32[g]) count the rows that are done in this step."""
        return self.numbered(stock.key, stock.n_used + places)

    def used(self, stock: LevelStock, done: jax.Array) -> LevelStock:
        """The stock after each row that is `done` (bool[N]) was given a level."""
        return dataclasses.replace(stock, n_used=stock.n_used + done.sum(dtype=jnp.int32))


class LevelQueue(struct.PyTreeNode):
    """Q levels for each of N rows, one after another. Several entries may be the same level of the table."""

    table: Level  # [K, ...]
    numbers: jax.Array  # i32[N, Q], which of the table
    tasks: Any = ()  # i32[N, Q, G], the task of each agent, if they have their own tasks (`with_tasks`)


def queue_of(levels: Level, n: int) -> LevelQueue:
    """The queues of rows that play `n` of `levels` [B, ...] each, in turn: row r plays r * n to r * n + n - 1."""
    n_levels = jax.tree.leaves(levels)[0].shape[0]
    return LevelQueue(table=levels, numbers=jnp.arange(n_levels, dtype=jnp.int32).reshape(-1, n))


class QueueInUse(struct.PyTreeNode):
    """A queue, and how far its rows have come."""

    queue: LevelQueue
    place: jax.Array  # i32[N], the entry that the row is on

    def number(self) -> jax.Array:
        """i32[N], which level of the table each row is on."""
        return self._entry(self.queue.numbers)

    def tasks(self, rows: jax.Array | None = None) -> Any:
        """i32[N, G], the tasks of the agents of the rows (i32[g]; None: all of them); () where they have none."""
        return jax.tree.map(lambda x: self._of_rows(self._entry(x), rows), self.queue.tasks)

    def levels(self, rows: jax.Array | None = None) -> Level:
        """The levels that the rows (i32[g]; None: all of them) are on."""
        numbers = self._of_rows(self.number(), rows)
        return jax.tree.map(lambda x: x[numbers], self.queue.table)

    def _entry(self, queues: jax.Array) -> jax.Array:
        """[N, ...], where each row is in its queue, of [N, Q, ...]."""
        place = self.place.reshape(-1, *(1,) * (queues.ndim - 1))
        return jnp.take_along_axis(queues, place, axis=1)[:, 0]

    def _of_rows(self, x: jax.Array, rows: jax.Array | None) -> jax.Array:
        return x if rows is None else x.at[rows].get(mode="clip")

    def after(self, ended: jax.Array) -> "QueueInUse":
        """The queues after each row that has `ended` (bool[N]) has gone on to its next entry."""
        return self.replace(place=(self.place + ended) % self.queue.numbers.shape[1])


@dataclasses.dataclass(frozen=True)
class QueuedLevels:
    """An ended episode is followed by one on the next level of the row's queue; after the last comes the first.

    In an environment whose episodes hold several attempts, each attempt is at the task of one entry of the queue.
    The curriculum hands out the queue before each rollout (`LevelBatch.queue`). The queue is data. So the levels of a
    rollout are known before it, and each seed of a vmap gets the levels that it gets alone.
    """

    def init(self, key: jax.Array, n_rows: int) -> tuple[()]:
        return ()  # the queue comes with `BatchEnv.with_queue`

    def restock(self, stock: QueueInUse, n_rows: int) -> QueueInUse:
        return stock

    def next_levels(self, stock: QueueInUse, levels: Level, done: jax.Array) -> tuple[QueueInUse, Level]:
        after = self.used(stock, done)
        return after, tree_where(done, self.levels(after), levels)

    def group_levels(self, stock: QueueInUse, places: jax.Array, rows: jax.Array, levels: Level) -> Level:
        """The next levels of a group of rows (i32[g])."""
        everywhere = jnp.ones(stock.place.shape, bool)
        return self.levels(self.used(stock, everywhere), rows)

    def levels(self, stock: QueueInUse, rows: jax.Array | None = None) -> Level:
        """The levels that the rows (i32[g]; None: all of them) are on."""
        return stock.levels(rows)

    def used(self, stock: QueueInUse, done: jax.Array) -> QueueInUse:
        """The queues after each row that is `done` (bool[N]) has gone on to its next level."""
        return stock.after(done)


@dataclasses.dataclass(frozen=True)
class NoRestart:
    """No new episode follows. The row goes on from its terminal state, and only its first episode means anything."""

    def init(self, key: jax.Array, n_rows: int) -> tuple[()]:
        return ()

    def restock(self, stock: tuple[()], n_rows: int) -> tuple[()]:
        return stock

"""`BatchEnv`: many copies of an environment, over students x levels x evaluations of a level."""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.base import (
    Attempt,
    Environment,
    EnvState,
    HoldsAttempts,
    Inherits,
    Level,
    Observable,
    ResetsInGroups,
    TimeStep,
    progress_of,
)
from minimax_lib.envs.spaces import within
from minimax_lib.trees import tree_size, tree_where


class EpisodeStats(struct.PyTreeNode):
    """The running episode of each row. Where a step says `done`, it is the episode that has just ended. All [A, R]."""

    returns: jax.Array  # f32, undiscounted
    lengths: jax.Array  # i32, steps


class BatchState(struct.PyTreeNode):
    """N = A * R rows, flat."""

    env: EnvState  # [N, ...]
    stats: EpisodeStats  # [N]
    stock: Any  # what the restart rule keeps; () if nothing


class BatchTimeStep(struct.PyTreeNode):
    """One step of all rows, [A, R, ...]. `obs` opens the next episode where one ended; `last_obs` closed it."""

    obs: Any
    last_obs: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    stats: EpisodeStats
    progress: jax.Array  # f32, the environment's, or the default where it gives none
    facts: dict[str, jax.Array]  # f32 each
    attempt: Attempt | None  # None: the episode is the attempt
    opens: jax.Array  # bool, `obs` opens an episode: that of the row; with several agents, that of all
    valid: jax.Array | None = None  # bool, the row's action counted: its agent was alive; None: always

    @property
    def done(self) -> jax.Array:
        return self.terminated | self.truncated


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
        """The stock before the first step."""
        return self._fill(key, jnp.zeros((), jnp.int32), n_rows)

    def init_empty(self, key: jax.Array) -> LevelStock:
        """The stock before the first step, if levels are drawn only when rows need them."""
        none = jnp.zeros((), jnp.int32)
        return LevelStock(key=key, levels=(), first=none, n_used=none)

    def numbered(self, key: jax.Array, numbers: jax.Array) -> Level:
        """The levels [n, ...] of these numbers, i32[n]."""
        # Keys are folded by number, not split: a level must not depend on how many are drawn with it.
        return jax.vmap(self.sample)(jax.vmap(jax.random.fold_in, (None, 0))(key, numbers))

    def _fill(self, key: jax.Array, first: jax.Array, n_rows: int) -> LevelStock:
        numbers = first + jnp.arange(2 * self.restock_every * n_rows, dtype=jnp.int32)
        return LevelStock(key=key, levels=self.numbered(key, numbers), first=first, n_used=first)

    def restock(self, stock: LevelStock, n_rows: int) -> LevelStock:
        """A stock that lasts for `restock_every` steps, whatever happens in them."""
        # Half of the stock lasts that long, even if every row ends in every step. Without the other half, it would be
        # filled up at nearly every call. Levels that are left are drawn again by their numbers: none is skipped.
        low = stock.n_used - stock.first > self.restock_every * n_rows
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
    tasks: Any = ()  # i32[N, Q, G], the task of each agent, if they have tasks of their own (`HasAgentTasks`)


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


class Rows(Protocol):
    """What a rollout needs of a batch of environments: A students in R rows each. `BatchEnv` is the first of them."""

    @property
    def env(self) -> Any: ...

    @property
    def n_evals(self) -> int: ...

    @property
    def restart(self) -> SameLevel | FreshLevels | QueuedLevels | NoRestart: ...

    @property
    def restock_every(self) -> int: ...

    @property
    def rows_per_level(self) -> int: ...

    @property
    def n_agents(self) -> int: ...

    def one_obs(self, key: jax.Array, level: Level) -> Any: ...

    def played_out(self, n_evals: int) -> "Rows": ...

    def reset(self, key: jax.Array, levels: Level) -> tuple[Any, BatchTimeStep]: ...

    def restock(self, state: Any) -> Any: ...

    def step_stocked(self, key: jax.Array, state: Any, action: Any) -> tuple[Any, BatchTimeStep]: ...

    def with_queue(self, state: Any, queue: LevelQueue) -> Any: ...

    def without_queue(self, state: Any) -> Any: ...

    def numbers(self, state: Any) -> jax.Array | None: ...


@dataclasses.dataclass(frozen=True)
class BatchEnv:
    """Steps `env` for A students on B levels, each level `n_evals` times: [A, R] with R = B * n_evals.

    Row b * n_evals + e is evaluation e of level b. All students get the same levels. Internally the rows are
    one flat batch. ValueError where the environment's `resets_at_once` is no number of rows.
    """

    env: Environment
    n_students: int = 1
    n_evals: int = 1
    restart: SameLevel | FreshLevels | QueuedLevels | NoRestart = SameLevel()

    def __post_init__(self) -> None:
        if isinstance(self.env, ResetsInGroups):
            at_once = self.env.resets_at_once
            if not isinstance(at_once, int) or at_once < 1:
                name = type(self.env).__name__
                raise ValueError(f"{name}.resets_at_once is {at_once!r}: it must be 1 row or more (try 1)")

    @property
    def restock_every(self) -> int:
        """Steps that `step_stocked` may take between two calls of `restock`; 0 if it need not be called."""
        # An environment that resets in groups draws levels when they are needed. A stock would cost what the groups
        # save, and hold several large levels for each row.
        if isinstance(self.restart, FreshLevels) and not isinstance(self.env, ResetsInGroups):
            return self.restart.restock_every
        return 0

    @property
    def rows_per_level(self) -> int:
        """The number of rows on each level, for each student."""
        return self.n_evals

    @property
    def n_agents(self) -> int:
        """The number of rows of each environment."""
        return 1

    def one_obs(self, key: jax.Array, level: Level) -> Any:
        """What one row sees at the start of an episode on `level`."""
        return self.env.reset(key, level)[1].obs

    def played_out(self, n_evals: int) -> "BatchEnv":
        """The same for one episode on each row, with `n_evals` rows on each level."""
        return dataclasses.replace(self, n_evals=n_evals, restart=NoRestart())

    def reset(self, key: jax.Array, levels: Level) -> tuple[BatchState, BatchTimeStep]:
        """Starts all students on `levels` [B, ...]."""
        k_env, k_stock = jax.random.split(key)
        rows = jax.tree.map(self._to_rows, levels)
        n = tree_size(rows)
        env_state, ts = jax.vmap(self.env.reset)(jax.random.split(k_env, n), rows)
        stats = EpisodeStats(returns=jnp.zeros_like(ts.reward), lengths=jnp.zeros(ts.reward.shape, jnp.int32))
        return BatchState(env=env_state, stats=stats, stock=self._first_stock(k_stock, n)), self._emit(
            ts, ts.obs, stats
        )

    def _first_stock(self, key: jax.Array, n: int) -> Any:
        if isinstance(self.restart, FreshLevels) and not self.restock_every:
            return self.restart.init_empty(key)
        return self.restart.init(key, n)

    def restock(self, state: BatchState) -> BatchState:
        """To be called before every `restock_every` steps of `step_stocked`."""
        if not self.restock_every:
            return state
        return dataclasses.replace(state, stock=self.restart.restock(state.stock, tree_size(state.stats)))

    def step(self, key: jax.Array, state: BatchState, action: Any) -> tuple[BatchState, BatchTimeStep]:
        """Takes `action` [A, R, ...] in every row, and restarts the rows whose episode ends."""
        return self.step_stocked(key, self.restock(state), action)

    def step_stocked(self, key: jax.Array, state: BatchState, action: Any) -> tuple[BatchState, BatchTimeStep]:
        """`step` for loops that call `restock` before every `restock_every` steps, and so keep its branch outside.

        Without those calls, rows silently get a level that the stock has handed out before.
        """
        k_step, k_reset = jax.random.split(key)
        shape = state.stats.returns.shape
        # A Gaussian policy may go past the edges of a box. Only the environment gets the clipped action: probabilities
        # are those of the action before.
        flat_action = within(self.env.action_space, jax.tree.map(lambda x: x.reshape(*shape, *x.shape[2:]), action))
        stepped, ts, stock = self._step_env(k_step, state, flat_action)
        # On its last step, an episode's statistics are complete. They are emitted like this, and cleared in the state.
        lengths = state.stats.lengths + self._counts(ts)
        stats = EpisodeStats(returns=state.stats.returns + ts.reward, lengths=lengths)
        if isinstance(self.restart, NoRestart):
            return dataclasses.replace(state, env=stepped, stats=stats), self._emit(ts, ts.obs, stats)

        restart = self._restart_in_groups if isinstance(self.env, ResetsInGroups) else self._restart
        env_state, obs, stock = restart(k_reset, stock, stepped, ts)
        cleared = tree_where(ts.over, jax.tree.map(jnp.zeros_like, stats), stats)
        return BatchState(env=env_state, stats=cleared, stock=stock), self._emit(ts, obs, stats)

    def _step_env(self, key: jax.Array, state: BatchState, action: Any) -> tuple[EnvState, TimeStep, Any]:
        """(states, time steps, stock) [N, ...] after a step, before any restart."""
        keys, stock = jax.random.split(key, tree_size(state.stats)), state.stock
        if not isinstance(self.env, HoldsAttempts) or not isinstance(stock, QueueInUse):
            return *jax.vmap(self.env.step)(keys, state.env, action), stock
        following = stock.after(jnp.ones(stock.place.shape, bool)).levels()
        stepped, ts = jax.vmap(self.env.step_then)(keys, state.env, action, following)
        assert ts.attempt is not None
        return stepped, ts, stock.after(ts.attempt.ended & ~ts.done)

    def _restart(self, key: jax.Array, stock: Any, stepped: EnvState, ts: TimeStep) -> tuple[EnvState, Any, Any]:
        """(states, observations, stock) [N, ...] in which rows that are over have begun their next episode."""
        assert not isinstance(self.restart, NoRestart)
        stock, levels = self.restart.next_levels(stock, jax.vmap(self.env.get_level)(stepped), ts.over)
        # All rows are reset, and the ended ones take the result. If the level stays the same, no map is copied: `reset`
        # hands on the level's own arrays, and XLA drops a choice between an array and itself.
        fresh, first = self._next_episodes(jax.random.split(key, tree_size(ts.over)), levels, stepped)
        states = tree_where(ts.over, fresh, stepped)
        if isinstance(self.env, Observable):
            # One observation for each row, and none of the ended state. XLA leaves out what nobody reads, and only
            # truncated episodes that bootstrap read `last_obs`.
            return states, jax.vmap(self.env.observe)(states), stock
        return states, tree_where(ts.over, first.obs, ts.obs), stock

    def _next_episodes(self, keys: jax.Array, levels: Level, ended: EnvState) -> tuple[EnvState, TimeStep]:
        """(states, time steps) in which episodes on `levels` begin, after those that `ended` in these states."""
        if isinstance(self.env, Inherits):
            return jax.vmap(self.env.reset_after)(keys, levels, ended)
        return jax.vmap(self.env.reset)(keys, levels)

    def _restart_in_groups(
        self, key: jax.Array, stock: Any, stepped: EnvState, ts: TimeStep
    ) -> tuple[EnvState, Any, Any]:
        """The same numbers as `_restart`. But only rows that are done are reset, `resets_at_once` of them together."""
        assert isinstance(self.env, ResetsInGroups)
        rule = self.restart
        assert not isinstance(rule, NoRestart)
        n, n_done = tree_size(ts.over), ts.over.sum(dtype=jnp.int32)
        size = min(self.env.resets_at_once, n)
        keys = jax.random.split(key, n)  # a row's key does not depend on the rows that end beside it
        # The rows that are done come first. The last group is filled up with row n, which does not exist. The list is
        # longer than all rows: if all rows made one group, that group would be the same in every round. XLA would then
        # take its work out of the loop, and do it even when there is no round.
        rows = jnp.nonzero(ts.over, size=n + size, fill_value=n)[0]
        observes = isinstance(self.env, Observable)

        def has_more(loop: tuple) -> jax.Array:
            # All seeds do as many groups as the seed with the most. If each seed had its own answer, JAX would select
            # between two states of all rows in every group.
            return axes.any_seed(loop[0] < n_done)

        def one_group(loop: tuple) -> tuple:
            n_reset, states, obs = loop
            group = jax.lax.dynamic_slice(rows, (n_reset,), (size,))
            # Rows are read from what the loop carries: to read them from `stepped` would keep all states twice.
            own, own_keys = jax.tree.map(lambda x: x.at[group].get(mode="clip"), (states, keys))
            places = n_reset + jnp.arange(size, dtype=jnp.int32)
            levels = rule.group_levels(stock, places, group, jax.vmap(self.env.get_level)(own))
            fresh, first = self._next_episodes(own_keys, levels, own)
            new = fresh, () if observes else first.obs
            written = jax.tree.map(lambda x, y: x.at[group].set(y, mode="drop"), (states, obs), new)
            return n_reset + size, *written

        loop = jnp.zeros((), jnp.int32), stepped, () if observes else ts.obs
        _, states, obs = jax.lax.while_loop(has_more, one_group, loop)
        if isinstance(self.env, Observable):
            obs = jax.vmap(self.env.observe)(states)
        return states, obs, rule.used(stock, ts.over)

    def with_queue(self, state: BatchState, queue: LevelQueue) -> BatchState:
        """`state` with a queue of levels [B, Q] for its rows. Each row is on the first of its entries."""
        numbers, tasks = jax.tree.map(self._to_rows, (queue.numbers, queue.tasks))
        rows = LevelQueue(table=queue.table, numbers=numbers, tasks=tasks)
        place = jnp.zeros(len(rows.numbers), jnp.int32)
        return dataclasses.replace(state, stock=QueueInUse(queue=rows, place=place))

    def without_queue(self, state: BatchState) -> BatchState:
        """`state` as it was before `with_queue`: queues are handed out anew for each rollout."""
        return dataclasses.replace(state, stock=())

    def numbers(self, state: BatchState) -> jax.Array | None:
        """i32[A, R], which level of the queue's table each row is on; None without queues.

        Where agents have tasks of their own, it is the number of the row's task.
        """
        stock = state.stock
        if not isinstance(stock, QueueInUse):
            return None
        return self._of_agents(stock.number()) if isinstance(stock.tasks(), tuple) else self._from_rows(stock.tasks())

    def levels(self, state: BatchState) -> Level:
        """The level that each row is on, [A, R, ...]."""
        return jax.tree.map(self._of_agents, jax.vmap(self.env.get_level)(state.env))

    def _to_rows(self, x: jax.Array) -> jax.Array:
        return jnp.tile(jnp.repeat(x, self.n_evals, axis=0), (self.n_students,) + (1,) * (x.ndim - 1))

    def _from_rows(self, x: jax.Array) -> jax.Array:
        return x.reshape(self.n_students, -1, *x.shape[1:])

    def _of_agents(self, x: jax.Array) -> jax.Array:
        """[A, R, ...] of what all agents of an environment have in common, [N, ...]."""
        return self._from_rows(x)

    def _counts(self, ts: TimeStep) -> jax.Array | int:
        """i32[N], how many steps longer the episode of each row is."""
        return 1

    def _emit(self, ts: TimeStep, obs: Any, stats: EpisodeStats) -> BatchTimeStep:
        return self._rows_of(ts, obs, stats, opens=ts.over)

    def _rows_of(
        self, ts: Any, obs: Any, stats: EpisodeStats, opens: jax.Array, valid: jax.Array | None = None
    ) -> BatchTimeStep:
        out = BatchTimeStep(
            obs=obs,
            last_obs=ts.obs,
            reward=ts.reward,
            terminated=ts.terminated,
            truncated=ts.truncated,
            stats=stats,
            progress=progress_of(ts, stats.returns),
            facts=ts.facts,
            attempt=ts.attempt,
            opens=opens,
            valid=valid,
        )
        return jax.tree.map(self._from_rows, out)

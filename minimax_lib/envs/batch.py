"""`BatchEnv`: many copies of an environment, over students x levels x evaluations of a level."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.base import Environment, EnvState, Level, Observable, TimeStep, progress_of
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


class LevelStock(struct.PyTreeNode):
    """Fresh levels drawn ahead. Level number n is `sample(fold_in(key, n))`, whenever it is drawn."""

    key: jax.Array
    levels: Level  # [P, ...]
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

    def _fill(self, key: jax.Array, first: jax.Array, n_rows: int) -> LevelStock:
        # Keys are folded by number, not split: a level must not depend on how many are drawn with it.
        numbers = first + jnp.arange(2 * self.restock_every * n_rows, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers)
        return LevelStock(key=key, levels=jax.vmap(self.sample)(keys), first=first, n_used=first)

    def restock(self, stock: LevelStock, n_rows: int) -> LevelStock:
        """A stock that lasts for `restock_every` steps, whatever happens in them."""
        # Half of the stock lasts that long, even if every row ends in every step. Without the other half, it would be
        # filled up at nearly every call. Levels that are left are drawn again by their numbers: none is skipped.
        low = stock.n_used - stock.first > self.restock_every * n_rows
        return jax.lax.cond(axes.any_seed(low), lambda: self._fill(stock.key, stock.n_used, n_rows), lambda: stock)

    def handed_out(self, before: LevelStock, after: LevelStock, n: int) -> tuple[Level, jax.Array]:
        """(the first `n` levels that were handed out from `before` to `after`, bool[n] whether there were so many)."""
        numbers = before.n_used + jnp.arange(n, dtype=jnp.int32)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(before.key, numbers)
        return jax.vmap(self.sample)(keys), numbers < after.n_used

    def next_levels(self, stock: LevelStock, levels: Level, done: jax.Array) -> tuple[LevelStock, Level]:
        """(stock, [N] levels on which the rows that are `done` start again; the others keep theirs)."""
        order = jnp.cumsum(done, dtype=jnp.int32)
        # The first row that is done gets the next level, the second the one after it. For other rows the index means
        # nothing and may be -1: it is clipped, and `tree_where` does not take what it finds.
        index = stock.n_used - stock.first + order - 1
        fresh = jax.tree.map(lambda x: x.at[index].get(mode="clip"), stock.levels)
        return dataclasses.replace(stock, n_used=stock.n_used + order[-1]), tree_where(done, fresh, levels)


@dataclasses.dataclass(frozen=True)
class NoRestart:
    """Nothing follows: the row goes on from its terminal state, and only its first episode means anything."""

    def init(self, key: jax.Array, n_rows: int) -> tuple[()]:
        return ()

    def restock(self, stock: tuple[()], n_rows: int) -> tuple[()]:
        return stock


@dataclasses.dataclass(frozen=True)
class BatchEnv:
    """Steps `env` for A students on B levels, each level `n_evals` times: [A, R] with R = B * n_evals.

    Row b * n_evals + e is evaluation e of level b. All students get the same levels. Internally the rows are
    one flat batch.
    """

    env: Environment
    n_students: int = 1
    n_evals: int = 1
    restart: SameLevel | FreshLevels | NoRestart = SameLevel()

    @property
    def restock_every(self) -> int:
        """Steps that may be taken between two calls of `restock`; 0 if it need not be called."""
        return self.restart.restock_every if isinstance(self.restart, FreshLevels) else 0

    def reset(self, key: jax.Array, levels: Level) -> tuple[BatchState, BatchTimeStep]:
        """Starts all students on `levels` [B, ...]."""
        k_env, k_stock = jax.random.split(key)
        rows = jax.tree.map(self._to_rows, levels)
        n = tree_size(rows)
        env_state, ts = jax.vmap(self.env.reset)(jax.random.split(k_env, n), rows)
        stats = EpisodeStats(returns=jnp.zeros(n, jnp.float32), lengths=jnp.zeros(n, jnp.int32))
        state = BatchState(env=env_state, stats=stats, stock=self.restart.init(k_stock, n))
        return state, self._emit(ts, ts.obs, stats)

    def restock(self, state: BatchState) -> BatchState:
        """To be called before every `restock_every` steps."""
        return dataclasses.replace(state, stock=self.restart.restock(state.stock, tree_size(state.stats)))

    def step(self, key: jax.Array, state: BatchState, action: jax.Array) -> tuple[BatchState, BatchTimeStep]:
        """Takes `action` [A, R, ...] in every row, and restarts the rows whose episode ends."""
        k_step, k_reset = jax.random.split(key)
        n = tree_size(state.stats)
        flat_action = action.reshape(n, *action.shape[2:])
        stepped, ts = jax.vmap(self.env.step)(jax.random.split(k_step, n), state.env, flat_action)
        # These are emitted, and cleared only in the state: on its last step, an episode's statistics are complete.
        stats = EpisodeStats(returns=state.stats.returns + ts.reward, lengths=state.stats.lengths + 1)
        if isinstance(self.restart, NoRestart):
            return dataclasses.replace(state, env=stepped, stats=stats), self._emit(ts, ts.obs, stats)

        stock, levels = self.restart.next_levels(state.stock, jax.vmap(self.env.get_level)(stepped), ts.done)
        # All rows are reset, and the ended ones take the result. That moves no map where the level stays the same:
        # `reset` hands on the level's own arrays, and XLA drops a choice between an array and itself.
        fresh, first = jax.vmap(self.env.reset)(jax.random.split(k_reset, n), levels)
        next_state = BatchState(
            env=tree_where(ts.done, fresh, stepped),
            stats=tree_where(ts.done, jax.tree.map(jnp.zeros_like, stats), stats),
            stock=stock,
        )
        if isinstance(self.env, Observable):
            # One observation a row, not that of the ended state as well: XLA leaves out what nobody reads, and
            # `last_obs` is read only where truncated episodes bootstrap.
            obs = jax.vmap(self.env.observe)(next_state.env)
        else:
            obs = tree_where(ts.done, first.obs, ts.obs)
        return next_state, self._emit(ts, obs, stats)

    def levels(self, state: BatchState) -> Level:
        """The level that each row is on, [A, R, ...]."""
        return jax.tree.map(self._from_rows, jax.vmap(self.env.get_level)(state.env))

    def _to_rows(self, x: jax.Array) -> jax.Array:
        return jnp.tile(jnp.repeat(x, self.n_evals, axis=0), (self.n_students,) + (1,) * (x.ndim - 1))

    def _from_rows(self, x: jax.Array) -> jax.Array:
        return x.reshape(self.n_students, -1, *x.shape[1:])

    def _emit(self, ts: TimeStep, obs: Any, stats: EpisodeStats) -> BatchTimeStep:
        out = BatchTimeStep(
            obs=obs,
            last_obs=ts.obs,
            reward=ts.reward,
            terminated=ts.terminated,
            truncated=ts.truncated,
            stats=stats,
            progress=progress_of(ts, stats.returns),
            facts=ts.facts,
        )
        return jax.tree.map(self._from_rows, out)

"""`BatchEnv`: many copies of an environment, over students x levels x evaluations of a level."""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.envs.base import (
    Attempt,
    Environment,
    EnvState,
    Level,
    TimeStep,
    check_derives,
    progress_of,
)
from minimax_lib.envs.given import check_levels, is_known
from minimax_lib.envs.restarts import FreshLevels, LevelQueue, NoRestart, QueuedLevels, QueueInUse, SameLevel
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
    one flat batch. ValueError where the environment's `resets_at_once` is not a number of rows.
    """

    env: Environment
    n_students: int = 1
    n_evals: int = 1
    restart: SameLevel | FreshLevels | QueuedLevels | NoRestart = SameLevel()

    def __post_init__(self) -> None:
        check_derives(type(self.env))
        at_once = self.env.resets_at_once
        if at_once is not None and (not isinstance(at_once, int) or at_once < 1):
            name = type(self.env).__name__
            raise ValueError(f"{name}.resets_at_once is {at_once!r}: it must be 1 row or more (try 1)")

    @property
    def restock_every(self) -> int:
        """Steps that `step_stocked` may take between two calls of `restock`; 0 if it need not be called."""
        # An environment that resets in groups draws levels when they are needed. A stock would cost what the groups
        # save, and hold several large levels for each row.
        if isinstance(self.restart, FreshLevels) and self.env.resets_at_once is None:
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
        """The same for one evaluated episode on each row, with `n_evals` rows on each level."""
        env = self.env.single() if self.env.single else self.env
        return dataclasses.replace(self, env=env, n_evals=n_evals, restart=NoRestart())

    def reset(self, key: jax.Array, levels: Level) -> tuple[BatchState, BatchTimeStep]:
        """Starts all students on `levels` [B, ...]. Outside jit, ValueError where one is no level."""
        if is_known(levels):
            check_levels(self.env, levels)
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

        restart = self._restart if self.env.resets_at_once is None else self._restart_in_groups
        env_state, obs, stock = restart(k_reset, stock, stepped, ts)
        cleared = tree_where(ts.over, jax.tree.map(jnp.zeros_like, stats), stats)
        return BatchState(env=env_state, stats=cleared, stock=stock), self._emit(ts, obs, stats)

    def _step_env(self, key: jax.Array, state: BatchState, action: Any) -> tuple[EnvState, TimeStep, Any]:
        """(states, time steps, stock) [N, ...] after a step, before any restart."""
        keys, stock = jax.random.split(key, tree_size(state.stats)), state.stock
        if self.env.step_then is None or not isinstance(stock, QueueInUse):
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
        if self.env.observe is not None:
            # One observation for each row, and none of the ended state. XLA leaves out what is not read, and only
            # truncated episodes that bootstrap read `last_obs`.
            return states, jax.vmap(self.env.observe)(states), stock
        return states, tree_where(ts.over, first.obs, ts.obs), stock

    def _next_episodes(self, keys: jax.Array, levels: Level, ended: EnvState) -> tuple[EnvState, TimeStep]:
        """(states, time steps) in which episodes on `levels` begin, after those that `ended` in these states."""
        if self.env.reset_after is not None:
            return jax.vmap(self.env.reset_after)(keys, levels, ended)
        return jax.vmap(self.env.reset)(keys, levels)

    def _restart_in_groups(
        self, key: jax.Array, stock: Any, stepped: EnvState, ts: TimeStep
    ) -> tuple[EnvState, Any, Any]:
        """The same numbers as `_restart`. But only rows that are done are reset, `resets_at_once` of them together."""
        assert self.env.resets_at_once is not None
        rule = self.restart
        assert not isinstance(rule, NoRestart)
        n, n_done = tree_size(ts.over), ts.over.sum(dtype=jnp.int32)
        size = min(self.env.resets_at_once, n)
        keys = jax.random.split(key, n)  # a row's key does not depend on the rows that end beside it
        # The rows that are done come first. The last group is filled up with row n, which does not exist. The list is
        # longer than all rows: if all rows made one group, that group would be the same in every round. XLA would then
        # take its work out of the loop, and do it even when there is no round.
        rows = jnp.nonzero(ts.over, size=n + size, fill_value=n)[0]
        observes = self.env.observe is not None

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
        if self.env.observe is not None:
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

        Where agents have their own tasks, it is the number of the row's task.
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

"""Task curricula as curricula of the runner: at the end of every episode, the row's next task is drawn."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.counts import Count
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.scores import Score
from minimax_lib.curricula.tasks.evaluation import EvaluationState, TaskEvaluation
from minimax_lib.curricula.tasks.scoring import AttemptScoring
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.restarts import LevelQueue, QueuedLevels
from minimax_lib.tasks import Results, Steps, TaskCurriculum, Unfinished
from minimax_lib.tasks.core import takes_groups


@functools.lru_cache(maxsize=4)
def listed_levels(env: Any, n_levels: int) -> tuple[Level, dict[str, Any]]:
    """(levels 0 to n_levels - 1 of the fixed list [n_levels, ...], their metrics f32[n_levels] each), on the host.

    They are the same for every run. So they are computed once, and are no part of a checkpoint.
    """

    def described(number: jax.Array) -> tuple[Level, dict[str, jax.Array]]:
        level = level_of_list(env, number)
        return level, env.level_metrics(level)

    with jax.ensure_compile_time_eval():  # also where it is asked for while a program is traced
        numbers = jnp.arange(n_levels, dtype=jnp.int32)
        return jax.device_get(jax.jit(jax.vmap(described))(numbers))


class TasksState(struct.PyTreeNode):
    """What is remembered from one rollout to the next. Of several devices, each has its own."""

    core: Any
    current: jax.Array  # i32[R], the task that each environment is on; of agents with their own tasks, each agent
    unfinished: Unfinished  # the attempts that the rows are in the middle of
    evaluated: Any = ()  # `EvaluationState`; () for a core that needs no evaluations
    best: Any = ()  # f32[n_tasks], the highest return on each task, -inf: none; () if the score does not need it


@dataclasses.dataclass(frozen=True)
class Tasks(Curriculum):
    """`core` decides which levels of a list are played. Episodes go on from rollout to rollout.

    All draws of a rollout are made before it, from the scores and ages as they stand then. Published code draws at each
    episode's end. Scores change only after a rollout there too; but ages do not move inside a rollout here.

    Of several devices that share a batch, each has a core. If the list is `divided`, it is the core of the device's own
    part. Otherwise all devices have the whole list, are told the results of all rows, and so have the same state.

    Several agents of an environment have its task in common. The life of each of them is an attempt at it.
    """

    env: Environment
    core: TaskCurriculum
    n_rows: int
    n_steps: int
    score: Score | None = None
    scoring: AttemptScoring = AttemptScoring()
    share: str = ""
    divided: bool = True
    evaluation: TaskEvaluation | None = None
    n_agents: int = 1

    @property
    def plan(self) -> Plan:
        scores = () if self.score is None else (self.score,)
        return Plan(self.n_rows, restart=QueuedLevels(), scores=scores)

    def init(self, key: jax.Array) -> TasksState:
        k_core, k_rows = jax.random.split(key)
        core = self.core.init(k_core if self.divided else axes.of_first_device(k_core))
        current = self.core.sample(axes.device_key(k_rows), core, self.n_queues)
        begun = self._together(current[None])
        return TasksState(
            core=self.core.started(core, begun.reshape(-1), jnp.ones(begun.size, bool)),
            current=current,
            unfinished=Unfinished.none(self.n_rows * self.n_agents),
            evaluated=() if self.evaluation is None else EvaluationState.none(),
            best=jnp.full(self.core.n_tasks, -jnp.inf, jnp.float32) if self._adds_best else (),
        )

    @property
    def n_queues(self) -> int:
        """The environments, which are given tasks one after another."""
        return self.n_rows

    @property
    def _adds_best(self) -> bool:
        return self.score is not None and self.score.adds_best

    def extra_env_steps(self, state: TasksState) -> Count:
        return Count.zero() if self.evaluation is None else state.evaluated.env_steps

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: TasksState, students: Students
    ) -> tuple[TasksState, LevelBatch]:
        k_draw, k_evaluate, k_levels = jax.random.split(key, 3)
        if self.evaluation is not None:
            due, table = self.evaluation.is_due(clock), self._measured()
            state = jax.lax.cond(due, lambda: self._evaluated(k_evaluate, state, table, students), lambda: state)
        # An episode has one step or more. So no row can come to the end of its queue, and few rows get far into it.
        drawn = self.core.sample(k_draw, state.core, self.n_queues * self.n_steps).reshape(self.n_queues, -1)
        return state, self._batch(k_levels, jnp.concatenate([state.current[:, None], drawn], axis=1))

    def _batch(self, key: jax.Array, tasks: jax.Array) -> LevelBatch:
        """The levels of these tasks, i32[n_queues, Q], one after another."""
        table, _ = self._list()
        numbers = self._first() + tasks
        levels = jax.tree.map(lambda x: x[numbers[:, 0]], table)
        return level_batch(levels).replace(queue=LevelQueue(table=table, numbers=numbers))

    def _drawn(self, queue: LevelQueue) -> jax.Array:
        """i32[n_queues, Q], the tasks that `_batch` has made the queue of."""
        return queue.numbers - self._first()

    def _measured(self) -> Level:
        """[n_tasks, ...], the level on which each task is evaluated."""
        return self._list()[0]

    def _evaluated(self, key: jax.Array, state: TasksState, table: Level, students: Students) -> TasksState:
        """The state after an evaluation of the tasks."""
        assert self.evaluation is not None
        rates, steps = self.evaluation.rates(key, table, students)
        core = self.core.evaluated(state.core, *self.evaluation.everywhere(rates, self.core.n_tasks))  # type: ignore[attr-defined]
        known = EvaluationState(rate=rates.mean(), steps=steps, env_steps=state.evaluated.env_steps.plus(steps))
        return state.replace(core=core, evaluated=known)

    def _together(self, tree: Any) -> Any:
        """[T, R, ...] of the rows that the core is told of: this device's own, or those of all devices."""
        return tree if self.divided else axes.all_devices(tree, 1)

    def _first(self) -> jax.Array:
        """i32[], the number of this device's first level."""
        return axes.device_index() * self.core.n_tasks if self.divided else jnp.zeros((), jnp.int32)

    def _list(self) -> tuple[Level, dict[str, jax.Array]]:
        """The levels of all devices, and their metrics."""
        return jax.tree.map(jnp.asarray, self._on_host())

    def _on_host(self) -> tuple[Level, dict[str, Any]]:
        env: Any = self.env  # a frozen dataclass, which can be the key of a cache
        return listed_levels(env, self.core.n_tasks * (axes.n_devices() if self.divided else 1))

    def observe(
        self, key: jax.Array, clock: jax.Array, state: TasksState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[TasksState, dict[str, jax.Array]]:
        steps = outcome.steps(self.score)
        steps = steps.replace(task=steps.task - self._first())
        own, unfinished = self._results(steps, state.unfinished)
        over = self._over(steps)
        begun, current = begun_by(self._drawn(batch.queue), over)
        tasks, ended, results = self._together((begun, over, own))
        best = state.best
        if self._adds_best:
            best = best_returns(best, results)
            results, own = with_best_returns(results, best), with_best_returns(own, best)
        if takes_groups(self.core):
            results = results.replace(episode=results.valid)
        core = self.core.started(state.core, tasks.reshape(-1), ended.reshape(-1))
        core = self.core.update(core, results.in_order())
        after = state.replace(core=core, current=current, unfinished=unfinished, best=best)
        return after, self._metrics(core, begun, over, own) | self._evaluation_metrics(clock, state)

    def _results(self, steps: Steps, before: Unfinished) -> tuple[Results, Unfinished]:
        """(the results of all attempts; those that go on)."""
        if self.score is not None:
            return self.scoring.results(steps, before)
        # There is no quantity, it is NaN everywhere. That would stay in what is remembered.
        results, after = self.scoring.results(steps.replace(quantity=jnp.zeros_like(steps.quantity)), before)
        return results.replace(score=jnp.full_like(results.score, jnp.nan)), after

    def _over(self, steps: Steps) -> jax.Array:
        """bool[T, n_queues], the next task follows."""
        # Of the rows of an environment, the first one says when its task is over.
        return steps.done if steps.over is None else steps.over[:, :: self.n_agents]

    def _evaluation_metrics(self, clock: jax.Array, state: TasksState) -> dict[str, jax.Array]:
        if self.evaluation is None:
            return {}
        steps = axes.device_sum(state.evaluated.steps.astype(jnp.float32))
        return {
            "evaluation/rate": state.evaluated.rate,
            "evaluation/steps": jnp.where(self.evaluation.is_due(clock), steps, 0.0),
        }

    def _metrics(self, core: Any, begun: jax.Array, over: jax.Array, results: Results) -> dict[str, jax.Array]:
        weights = self.core.weights(core)
        entropy = -jnp.where(weights > 0, weights * jnp.log(jnp.where(weights > 0, weights, 1.0)), 0.0).sum()
        metrics = {
            "tasks/effective": jnp.exp(entropy) / self.core.n_tasks,
            "tasks/score": axes.mean_where(jnp.isfinite(results.score), results.score),
            "tasks/length": axes.mean_where(results.valid, results.length.astype(jnp.float32)),
        }
        return metrics | self._level_metrics(begun, over, weights) | self.core.report(core)

    def _level_metrics(self, begun: jax.Array, over: jax.Array, weights: jax.Array) -> dict[str, jax.Array]:
        """A task's own facts: of the levels on which episodes have begun, and of those that the core prefers."""
        _, facts = self._list()
        metrics = {f"level/new/{name}": axes.mean_where(over, x[self._first() + begun]) for name, x in facts.items()}
        mine = jax.tree.map(lambda x: jax.lax.dynamic_slice(x, (self._first(),), (self.core.n_tasks,)), facts)
        for value in self._shared_values():
            metrics[f"tasks/share/{self.share}_{value}"] = jnp.where(mine[self.share] == value, weights, 0.0).sum()
        return metrics

    def _shared_values(self) -> list[int]:
        """The values of the level metric `share` that occur in the list."""
        if not self.share:
            return []
        _, facts = self._on_host()
        return sorted({int(value) for value in facts[self.share]})


def begun_by(queues: jax.Array, ended: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(i32[T, N], the task that follows after each step, if one `ended` there (bool[T, N]); i32[N], those at the end).

    `queues` i32[N, Q] are the tasks of N rows, in their order.
    """
    place = jnp.cumsum(ended, axis=0, dtype=jnp.int32)  # the entry that the row is on after each step
    following = jnp.take_along_axis(queues, place.T, axis=1).T
    return following, following[-1]


def best_returns(before: jax.Array, results: Results) -> jax.Array:
    """f32[K], the highest return on each task so far (-inf: none), where it was `before` these results."""
    return before.at[results.task].max(jnp.where(results.valid, results.returns, -jnp.inf))


def with_best_returns(results: Results, best: jax.Array) -> Results:
    """The results, with the best returns of their tasks (f32[K]) in their scores; NaN where there is none yet."""
    score = results.score + best[results.task]
    return results.replace(score=jnp.where(jnp.isfinite(score), score, jnp.nan))

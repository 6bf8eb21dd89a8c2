"""Stages one after another, each with its own tasks and a condition that ends it (Sullivan et al. 2025)."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.tasks.conditions import COUNTS, MOST, Condition, Counters, parse_condition
from minimax_lib.tasks.core import Results, TaskCurriculum, draws_from_weights, episodes_needed, leaves_out, trains_of
from minimax_lib.tasks.ordered import in_order
from minimax_lib.tasks.rates import check_at_least
from minimax_lib.tasks.spaces import TaskSpace
from minimax_lib.tasks.uniform import Uniform

WINDOW = 1000


@dataclasses.dataclass(frozen=True)
class Stage:
    """A curriculum for some of the tasks."""

    core: TaskCurriculum
    tasks: tuple[int, ...]  # the number of each of the curriculum's tasks in the whole list


class StageProgress(struct.PyTreeNode):
    """The stage that a sequence is in, and its counters."""

    stage: jax.Array  # i32[]
    steps: jax.Array  # i32[], and so on: see `Counters`
    total_steps: jax.Array
    episodes: jax.Array
    total_episodes: jax.Array
    tasks: jax.Array
    total_tasks: jax.Array
    returns: jax.Array  # f32[window], the last of the stage; number i stands at place i mod window
    progresses: Any = ()  # f32[window], of the last attempts of the stage, NaN before; () where no condition reads it

    def counters(self) -> Counters:
        window = len(self.returns)
        n = jnp.minimum(self.episodes, window)
        total = jnp.where(jnp.arange(window, dtype=jnp.int32) < n, self.returns, 0.0).sum()
        counts = {name: getattr(self, name) for name in COUNTS}
        progress = None if isinstance(self.progresses, tuple) else _mean_of_known(self.progresses)
        return Counters(**counts, episode_return=total / jnp.maximum(n, 1).astype(jnp.float32), progress=progress)


class SequentialState(struct.PyTreeNode):
    stages: tuple[Any, ...]  # of all stages, side by side
    progress: StageProgress
    late: jax.Array  # i32[], attempts on tasks that the stage did not have when they ended: no stage counts them


@dataclasses.dataclass(frozen=True)
class Sequential:
    """A stage ends when its condition holds. The last one does not end, or with `loop`, the first one follows it.

    A stage is a task number, a list of task numbers (uniform), a curriculum for all tasks, or a `Stage`. A condition is
    text ("steps >= 1000", see `conditions.py`) or a compilable function of `Counters`. It is checked after attempts
    have begun (those of one call at once), and after each episode; at most one stage ends at a check. Attempts count in
    the stage that is current when they end, if it has their task, and evaluations likewise. In Syllabus, attempts on
    tasks of the stage before count too. Of many rows these are so many that a stage could end before any of its tasks
    had been tried.

    `episode_return` is the mean over the last `window` episodes of the stage, and `progress` over its last `window`
    attempts. A function is told `progress` only where another condition reads it.
    """

    n_tasks: int
    stages: tuple[Any, ...]
    conditions: tuple[str | Callable[[Counters], jax.Array], ...]
    loop: bool = False
    window: int = WINDOW

    def __post_init__(self) -> None:
        check_at_least("n_tasks", self.n_tasks, 1)
        check_at_least("window", self.window, 1)
        object.__setattr__(self, "stages", tuple(_stage(stage, self.n_tasks) for stage in self.stages))
        object.__setattr__(self, "conditions", tuple(self.conditions))
        for condition in self.conditions:
            if not callable(condition):
                parse_condition(condition)
        wanted = len(self.stages) if self.loop else len(self.stages) - 1
        if not self.stages or len(self.conditions) != wanted:
            raise ValueError(
                f"there are {len(self.conditions)} conditions for {len(self.stages)} stages: "
                "there must be one fewer than stages, or with loop, as many"
            )

    @classmethod
    def over(cls, space: Any, stages: Iterable[Any], conditions: Iterable[Any], loop: bool = False) -> "Sequential":
        """Stages in terms of the tasks of `space`: a task, a list of tasks, another space, a curriculum, a `Stage`."""

        def numbered(stage: Any) -> Any:
            if isinstance(stage, Stage | TaskCurriculum):
                return stage
            if isinstance(stage, TaskSpace):
                return [space.encode(stage.decode(i)) for i in range(stage.n or 0)]
            return [space.encode(task) for task in (stage if isinstance(stage, list) else [stage])]

        return cls(space.n, tuple(map(numbered, stages)), tuple(conditions), loop)

    @property
    def reads_scores(self) -> bool:
        return any(stage.core.reads_scores for stage in self.stages)

    @property
    def from_weights(self) -> bool:
        return all(draws_from_weights(stage.core) for stage in self.stages)

    @property
    def min_episodes(self) -> int:
        return max(episodes_needed(stage.core) for stage in self.stages)

    def init(self, key: jax.Array) -> SequentialState:
        keys = jax.random.split(key, len(self.stages))
        zero = jnp.zeros((), jnp.int32)
        returns, progresses = jnp.zeros(self.window, jnp.float32), self._no_progress()
        progress = StageProgress(zero, zero, zero, zero, zero, zero, zero, returns, progresses)
        states = tuple(stage.core.init(k) for stage, k in zip(self.stages, keys, strict=True))
        return SequentialState(states, progress, zero)

    def sample(self, key: jax.Array, state: SequentialState, n: int) -> jax.Array:
        return self._of_stage(state, lambda stage, inner: _tasks(stage)[stage.core.sample(key, inner, n)])

    def started(self, state: SequentialState, tasks: jax.Array, valid: jax.Array) -> SequentialState:
        states = list(state.stages)
        for i, stage in enumerate(self.stages):
            own = _places(stage, self.n_tasks)[tasks]
            mine = valid & (state.progress.stage == i) & (own >= 0)
            states[i] = stage.core.started(states[i], jnp.maximum(own, 0), mine)
        n, before = valid.sum(dtype=jnp.int32), state.progress
        counted = before.replace(tasks=_plus(before.tasks, n), total_tasks=_plus(before.total_tasks, n))
        progress = self._checked(counted, n > 0)
        return state.replace(stages=tuple(states), progress=progress)

    def update(self, state: SequentialState, results: Results) -> SequentialState:
        def one(loop: tuple[StageProgress, jax.Array], i: jax.Array) -> tuple[StageProgress, jax.Array]:
            progress, stage_of = loop
            stage_of = stage_of.at[i].set(progress.stage)
            counts = places[progress.stage, results.task[i]] >= 0
            return self._checked(_with(progress, results, i, counts), results.episode[i]), stage_of

        places = jnp.stack([_places(stage, self.n_tasks) for stage in self.stages])  # i32[stages, tasks]
        # First the counters, which say what stage each result belongs to; then each stage, once.
        nowhere = jnp.full(results.valid.shape, -1, jnp.int32)
        progress, stage_of = in_order(one, (state.progress, nowhere), results.valid)
        states, taken = list(state.stages), jnp.zeros(results.valid.shape, bool)
        # An entry that is not an ended attempt may have a score. It belongs to the stage that is current at the end.
        stage_of = jnp.where(results.valid, stage_of, progress.stage)
        for i, stage in enumerate(self.stages):
            own = places[i, results.task]
            mine = (stage_of == i) & (own >= 0)
            score = jnp.where(mine, results.score, jnp.nan)
            its = results.replace(task=jnp.maximum(own, 0), valid=results.valid & mine, score=score)
            states[i], taken = stage.core.update(states[i], its), taken | mine
        late = state.late + (results.valid & ~taken).sum(dtype=jnp.int32)
        return SequentialState(tuple(states), progress, late)

    def evaluated(self, state: SequentialState, rates: jax.Array, known: jax.Array) -> SequentialState:
        states = list(state.stages)
        for i, stage in enumerate(self.stages):
            if episodes_needed(stage.core):
                core: Any = stage.core
                after = core.evaluated(states[i], rates[_tasks(stage)], known[_tasks(stage)])
                is_current = state.progress.stage == i
                states[i] = jax.tree.map(lambda new, old, now=is_current: jnp.where(now, new, old), after, states[i])
        return state.replace(stages=tuple(states))

    def weights(self, state: SequentialState) -> jax.Array:
        nothing = jnp.zeros(self.n_tasks, jnp.float32)
        return self._of_stage(state, lambda stage, inner: nothing.at[_tasks(stage)].add(stage.core.weights(inner)))

    def trains(self, state: SequentialState) -> jax.Array:
        """bool[n_tasks], the tasks to learn from, by the current stage; tasks that it does not have are among them."""
        all_others = jnp.ones(self.n_tasks, bool)
        return self._of_stage(state, lambda stage, s: all_others.at[_tasks(stage)].set(trains_of(stage.core, s)))

    @property
    def leaves_out(self) -> bool:
        return any(leaves_out(stage.core) for stage in self.stages)

    def report(self, state: SequentialState) -> dict[str, jax.Array]:
        progress = state.progress.counters().progress
        return {
            "sequential/stage": state.progress.stage.astype(jnp.float32),
            "sequential/late": state.late.astype(jnp.float32),
        } | ({} if progress is None else {"sequential/progress": progress})

    def _of_stage(self, state: SequentialState, read: Callable[[Stage, Any], jax.Array]) -> jax.Array:
        """The result of `read` for the current stage."""
        branches = [
            lambda i=i, stage=stage: read(stage, state.stages[i])  # type: ignore[misc]
            for i, stage in enumerate(self.stages)
        ]
        return jax.lax.switch(state.progress.stage, branches)

    def _checked(self, progress: StageProgress, is_checked: jax.Array) -> StageProgress:
        """The state, in the next stage if the condition of the current one holds."""
        met = [self._condition(condition)(progress.counters()) for condition in self.conditions]
        met += [jnp.zeros((), bool)] * (len(self.stages) - len(met))  # the last stage does not end
        ends = is_checked & jnp.stack(met)[progress.stage]
        following = (progress.stage + 1) % len(self.stages)
        zero = jnp.zeros((), jnp.int32)
        none = self._no_progress()
        begun = progress.replace(stage=following, steps=zero, episodes=zero, tasks=zero, progresses=none)
        return jax.tree.map(lambda new, old: jnp.where(ends, new, old), begun, progress)

    def _no_progress(self) -> Any:
        """`StageProgress.progresses` at the beginning of a stage."""
        in_words = [parse_condition(condition) for condition in self.conditions if not callable(condition)]
        is_read = any("progress" in condition.metrics for condition in in_words)
        return jnp.full(self.window, jnp.nan, jnp.float32) if is_read else ()

    def _condition(self, condition: Any) -> Condition | Callable[[Counters], jax.Array]:
        return condition if callable(condition) else parse_condition(condition)


def _with(progress: StageProgress, results: Results, i: jax.Array, counts: jax.Array) -> StageProgress:
    """The counters after result number i; `counts`: the stage has its task."""
    steps, ended = results.length[i], results.episode[i].astype(jnp.int32)
    place = progress.episodes % len(progress.returns)
    latest = jnp.where(results.episode[i] & counts, results.episode_return[i], progress.returns[place])
    progresses = progress.progresses
    if not isinstance(progresses, tuple):  # the oldest goes
        progresses = jnp.where(counts, jnp.append(progresses[1:], results.progress[i]), progresses)
    return progress.replace(
        steps=_plus(progress.steps, jnp.where(counts, steps, 0)),
        total_steps=_plus(progress.total_steps, steps),
        episodes=_plus(progress.episodes, jnp.where(counts, ended, 0)),
        total_episodes=_plus(progress.total_episodes, ended),
        returns=progress.returns.at[place].set(latest),
        progresses=progresses,
    )


def _mean_of_known(values: jax.Array) -> jax.Array:
    """f32[], the mean of what is not NaN; 0 if there is nothing."""
    known = ~jnp.isnan(values)
    return jnp.where(known, values, 0.0).sum() / jnp.maximum(known.sum(), 1).astype(jnp.float32)


def _plus(count: jax.Array, more: jax.Array) -> jax.Array:
    """The sum, or the largest i32 if that is less."""
    return count + jnp.minimum(more, MOST - count)


def _tasks(stage: Stage) -> jax.Array:
    """i32[n], the numbers of a stage's tasks in the whole list."""
    return jnp.asarray(stage.tasks, jnp.int32)


def _places(stage: Stage, n_tasks: int) -> jax.Array:
    """i32[n_tasks], the numbers of all tasks within the stage; -1 where it does not have them."""
    places = np.full(n_tasks, -1, np.int32)
    places[list(stage.tasks)] = np.arange(len(stage.tasks))
    return jnp.asarray(places)


def _stage(given: Any, n_tasks: int) -> Stage:
    """The stage that `given` stands for. ValueError if it is none."""
    if isinstance(given, int | np.integer):
        given = [given]
    if isinstance(given, list | tuple | range):
        given = Stage(Uniform(len(given)), tuple(int(task) for task in given))
    elif not isinstance(given, Stage):
        if not isinstance(given, TaskCurriculum) or given.n_tasks != n_tasks:
            raise ValueError(f"the stage is {given!r}: a curriculum that is a stage must be for all {n_tasks} tasks")
        given = Stage(given, tuple(range(n_tasks)))
    if len(given.tasks) != given.core.n_tasks or len(set(given.tasks)) < len(given.tasks) or not given.tasks:
        raise ValueError(f"the stage has tasks {given.tasks}: it must have one or more, each once")
    for task in given.tasks:
        if not 0 <= task < n_tasks:
            raise ValueError(f"the stage has task {task}: tasks are the numbers 0 to {n_tasks - 1}")
    return given

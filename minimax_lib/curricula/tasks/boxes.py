"""Task curricula over a box of levels, as curricula of the runner: each episode is on a level at a point of the box."""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import QueuedRollouts
from minimax_lib.curricula.tasks.listed import begun_by
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.restarts import LevelQueue, QueuedLevels, QueueInUse
from minimax_lib.tasks import BoxCurriculum, Results, Unfinished, results_of
from minimax_lib.tasks.box_registry import BOX_CURRICULA, Placing, UniformBoxSettings


class KeyedPoint(struct.PyTreeNode):
    """What a level is drawn from."""

    key: jax.Array  # u32[K, 2]
    point: jax.Array  # f32[K, D], of the box


class Drawn(struct.PyTreeNode):
    """K tasks, and the levels that were drawn for them."""

    task: jax.Array  # f32[K, E]
    point: jax.Array  # f32[K, D], of the box
    level: Any  # a level [K, ...]; a `KeyedPoint` where it is drawn when its episode begins


class BoxTasksState(struct.PyTreeNode):
    """What is remembered from one rollout to the next. `core` is the same on all devices."""

    core: Any
    current: Drawn  # [R], what each environment is on
    unfinished: Unfinished


@dataclasses.dataclass(frozen=True)
class QueuedPoints(QueuedLevels):
    """`QueuedLevels` for environments that reset in groups, since their levels take long: entries are `KeyedPoint`."""

    env: Any

    def levels(self, stock: QueueInUse, rows: jax.Array | None = None) -> Level:
        return self.drawn(stock.levels(rows))

    def drawn(self, keyed: Any) -> Level:
        """[K, ...], the levels at these points."""
        return jax.vmap(self.env.level_at)(jax.random.wrap_key_data(keyed.key), keyed.point)


@dataclasses.dataclass(frozen=True)
class BoxTasks(Curriculum):
    """`core` decides which part of a box the levels come from. Episodes go on from rollout to rollout.

    All points of a rollout are drawn before it, one for each step and row. So no row can come to the end of its queue.
    So are the levels, unless the environment resets in groups.

    Several agents of an environment have its level in common. The life of each of them is an attempt at it.
    """

    env: Any  # `Environment.level_at`
    core: BoxCurriculum
    placing: Placing
    n_rows: int
    n_steps: int
    n_agents: int = 1

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, restart=self._later or QueuedLevels())

    @property
    def _later(self) -> QueuedPoints | None:
        """None where levels are drawn before the rollout."""
        return None if self.env.resets_at_once is None else QueuedPoints(self.env)

    def init(self, key: jax.Array) -> BoxTasksState:
        k_core, k_rows = jax.random.split(key)
        core = self.core.init(axes.of_first_device(k_core))
        current = self._drawn(axes.device_key(k_rows), core, self.n_rows)
        begun = axes.all_devices(current.task, 0)
        core = self.core.started(core, begun, jnp.ones(len(begun), bool))
        return BoxTasksState(core=core, current=current, unfinished=Unfinished.none(self.n_rows * self.n_agents))

    def _drawn(self, key: jax.Array, core: Any, n: int) -> Drawn:
        """`n` draws."""
        k_tasks, k_points, k_levels = jax.random.split(key, 3)
        tasks = self.core.sample(k_tasks, core, n)
        points = jax.vmap(self.placing.point)(jax.random.split(k_points, n), tasks)
        keys = jax.random.split(k_levels, n)
        if self._later is not None:
            return Drawn(tasks, points, KeyedPoint(jax.random.key_data(keys), points))
        return Drawn(tasks, points, jax.vmap(self.env.level_at)(keys, points))

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: BoxTasksState, students: Students
    ) -> tuple[BoxTasksState, LevelBatch]:
        new = self._drawn(key, state.core, self.n_rows * self.n_steps)
        drawn = jax.tree.map(lambda *xs: jnp.concatenate(xs), state.current, new)
        numbers = jnp.arange(self.n_rows * (1 + self.n_steps), dtype=jnp.int32)
        first, rest = numbers[: self.n_rows, None], numbers[self.n_rows :].reshape(self.n_rows, -1)
        queue = LevelQueue(table=drawn.level, numbers=jnp.concatenate([first, rest], axis=1))
        first = state.current.level
        levels = first if self._later is None else self._later.drawn(first)
        return state, level_batch(levels).replace(queue=queue, context=drawn)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: BoxTasksState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[BoxTasksState, dict[str, jax.Array]]:
        drawn, steps = batch.context, outcome.steps(None)
        nothing = jnp.zeros_like(steps.quantity)  # scores are not read, and NaN would stay in what is remembered
        own, unfinished = results_of(steps.replace(quantity=nothing), state.unfinished, "stitch")
        over = steps.done if steps.over is None else steps.over[:, :: self.n_agents]
        begun, last = begun_by(batch.queue.numbers, over)
        told = (drawn.task[begun], over, own.replace(task=drawn.task[own.task]))
        tasks, ended, results = axes.all_devices(told, 1)
        core = self.core.started(state.core, tasks.reshape(-1, tasks.shape[-1]), ended.reshape(-1))
        core = self.core.update(core, results.in_order())
        current = jax.tree.map(lambda x: x[last], drawn)
        after = BoxTasksState(core=core, current=current, unfinished=unfinished)
        metrics = self._metrics(core, drawn.point[begun], over, own)
        if self._later is not None:
            return after, metrics  # to describe levels, they would be drawn a second time
        # Of the levels on which episodes have begun.
        facts = jax.vmap(self.env.level_metrics)(drawn.level)
        return after, {f"level/new/{name}": axes.mean_where(over, x[begun]) for name, x in facts.items()} | metrics

    def _metrics(self, core: Any, begun: jax.Array, over: jax.Array, results: Results) -> dict[str, jax.Array]:
        metrics = {"tasks/length": axes.mean_where(results.valid, results.length.astype(jnp.float32))}
        # Not of where rows are at the end: they are mostly on levels whose episodes take long.
        for i, name in enumerate(self.env.level_box):
            metrics[f"tasks/point/{name}"] = axes.mean_where(over, begun[..., i])
        return metrics | self.core.report(core)


@dataclasses.dataclass(frozen=True)
class BoxMethod(QueuedRollouts):
    """Levels from a box of parameters, each for one episode; a curriculum decides which part of the box they come from.

    For environments whose levels are points of a box: Pendulum, BipedalWalker, Gymnax with env.vary, and NMMO with
    env.sharpness-low.
    """

    core: Annotated[Any, BOX_CURRICULA] = UniformBoxSettings()
    """What decides where in the box the next levels are."""

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        if not env.level_box:
            raise ValueError(
                f"runner is box, and the levels of {type(env).__name__} are not points of a box: it must be an "
                "environment with ranges of parameters, such as Pendulum, Gymnax with --env.vary gravity=5:15, or NMMO "
                "with --env.sharpness-low -2"
            )
        core, placing = self.core.build(env.level_box)
        return BoxTasks(env, core, placing, n_rows, self.n_steps, env.n_agents)

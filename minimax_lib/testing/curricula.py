"""What every curriculum must do, checked: call `check_curriculum` in the tests of your own."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.counts import Count
from minimax_lib.curricula.base import SOURCE_NAMES, Curriculum, LevelBatch, Plan
from minimax_lib.envs.base import Environment
from minimax_lib.envs.batch import Rows
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.students import CurrentStudents, batch_for
from minimax_lib.testing.envs.parts import described, is_frozen, numbers, require

N_SEEDS, N_STEPS = 2, 4  # seeds of a vmap, and batches of each


def check_curriculum(
    curriculum: Curriculum, env: Environment, key: jax.Array, agent: AgentPop | None = None, n_steps: int | None = None
) -> None:
    """Raises AssertionError, in a sentence, at the first thing that would break training with `curriculum`.

    A few batches are proposed, played and observed, with two seeds in one vmap as in training. So give it few rows and
    an `env` with a short time limit. `agent` plays `n_steps` steps a batch; by default a small one that can finish an
    episode (`small_agent`, which also helps to build the curriculum from its settings).
    """
    agent = agent or small_agent(env)
    check_plan(curriculum)
    trial = CurriculumTrial(curriculum, env, agent, n_steps or 2 * env.max_steps)
    keys = jax.random.split(key, N_SEEDS)
    check_types(trial, keys[0])
    batches, state = run(trial, keys)
    check_batches(trial, batches)
    check_state(trial, state)
    check_repeats(trial, keys, state)
    check_independence(trial, keys, batches[0])
    check_unfinished(trial, keys)


def small_agent(env: Environment, n_students: int = 1) -> AgentPop:
    """Students with a tiny network without memory."""
    network = FeedForward(conv_filters=2, dense_width=8, head_width=4, n_values=2)
    model = network.build(env.observation_space, env.action_space)
    return AgentPop(PPOAgent(model, PPO(n_epochs=1), n_total_updates=N_STEPS), n_students)


class BatchReport(struct.PyTreeNode):
    """What one batch came to."""

    batch: LevelBatch
    proposed: Any  # the curriculum's state after `propose`
    state: Any  # and after `observe`
    metrics: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class CurriculumTrial:
    """A curriculum, and the students that play its levels."""

    curriculum: Curriculum
    env: Environment
    agent: AgentPop
    n_steps: int

    @property
    def name(self) -> str:
        return type(self.curriculum).__name__

    @property
    def rows(self) -> Rows:
        return batch_for(self.env, self.agent, self.curriculum.plan)

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """(the curriculum's first state, the students' parameters)."""
        k_level, k_reset, k_students, k_curriculum = jax.random.split(key, 4)
        obs = self.rows.one_obs(k_reset, self.env.sample_level(k_level))
        return self.curriculum.init(k_curriculum), self.agent.init(k_students, obs).params

    def step(self, clock: jax.Array, key: jax.Array, state: Any, params: Any, finishes: jax.Array) -> BatchReport:
        """One batch, as the runner's step does it; the students learn nothing.

        Where it does not `finish` (bool[]), the curriculum is told that no episode has ended.
        """
        shared_key = jax.random.fold_in(jax.random.key(0), clock)
        k_propose, k_play, k_observe = jax.random.split(jax.random.fold_in(key, clock), 3)
        students = CurrentStudents(self.rows, self.agent, params, self.n_steps)
        proposed, batch = self.curriculum.propose(shared_key, k_propose, clock, state, students)
        batch.check_shapes(self.curriculum.plan.n_rows)
        self.check_levels(batch)
        outcome = students.play(k_play, batch)
        steps = outcome.runs.steps.replace(done=outcome.runs.steps.done & finishes)
        outcome = dataclasses.replace(outcome, runs=outcome.runs.replace(steps=steps))
        state, metrics = self.curriculum.observe(k_observe, clock, proposed, batch, outcome)
        return BatchReport(batch=batch, proposed=proposed, state=state, metrics=metrics)

    def check_levels(self, batch: LevelBatch) -> None:
        """They are levels of the environment, to the type. Checked before it plays them, for a readable message."""
        levels = jax.eval_shape(jax.vmap(self.env.sample_level), jax.random.split(jax.random.key(0), len(batch.slots)))
        wanted, found = described(levels), described(batch.levels)
        whose = type(self.env).__name__
        require(found == wanted, f"{self.name}.propose makes levels {found}: those of {whose} are {wanted}")

    @functools.cached_property
    def start(self) -> Callable[..., Any]:
        """`init` for the keys of several seeds, compiled once."""
        return jax.jit(jax.vmap(self.init))

    @functools.cached_property
    def advance(self) -> Callable[..., BatchReport]:
        """`step` for several seeds, compiled once; refuses a decision to train that differs between them."""

        def step(*args: Any) -> tuple[BatchReport, jax.Array]:
            found = self.step(*args)
            return found.replace(batch=found.batch.replace(train=())), found.batch.train

        # out_axes=None refuses, while tracing, what depends on the seed.
        mapped = jax.vmap(step, (None, 0, 0, 0, None), out_axes=(0, None), axis_name=axes.SEED)

        def call(clock: jax.Array, keys: jax.Array, states: Any, params: Any, finishes: jax.Array) -> BatchReport:
            try:
                found, train = mapped(clock, keys, states, params, finishes)
            except ValueError as error:
                if "out_axes" not in str(error):
                    raise
                raise AssertionError(
                    f"{self.name}.propose decides for each seed whether its batch is learnt from, so that every seed "
                    "pays for the update: pass the decision through axes.everywhere_all, or draw it from `shared_key`"
                ) from None
            return found.replace(batch=found.batch.replace(train=train))

        return jax.jit(call)


def check_plan(curriculum: Curriculum) -> None:
    """The static side."""
    name = type(curriculum).__name__
    require(dataclasses.is_dataclass(curriculum), f"{name} is not a dataclass: its settings must be its fields")
    require(is_frozen(curriculum), f"{name} can be changed: make it a dataclass(frozen=True)")
    plan = curriculum.plan
    require(isinstance(plan, Plan), f"{name}.plan is {plan!r}: it must be a Plan")
    require(plan.n_rows >= 1, f"{name}.plan.n_rows is {plan.n_rows}: it must be at least 1")
    n_train = plan.n_rows if plan.n_train_rows is None else plan.n_train_rows
    require(1 <= n_train <= plan.n_rows, f"{name}.plan.n_train_rows is {n_train}: of {plan.n_rows} rows")
    known = len(set(plan.sources)) == len(plan.sources) > 0 and set(plan.sources) <= set(range(len(SOURCE_NAMES)))
    require(known, f"{name}.plan.sources is {plan.sources}: it must name sources (NEW, REPLAY, MUTATION), each once")


def check_types(trial: CurriculumTrial, key: jax.Array) -> None:
    """Found out by tracing: shapes and types of states and metrics."""
    name = trial.name
    clock = jax.ShapeDtypeStruct((), jnp.int32)
    state, params = jax.eval_shape(trial.init, key)
    step = jax.eval_shape(trial.step, clock, key, state, params, jax.ShapeDtypeStruct((), bool))
    before = described(state)
    for method, returned in (("propose", step.proposed), ("observe", step.state)):
        after = described(returned)
        require(after == before, difference(f"{name}.{method}", before, after))
    for metric, value in step.metrics.items():
        good = value.shape == () and value.dtype == jnp.float32
        require(good, f"the metric {metric!r} of {name}.observe is {value.dtype}{list(value.shape)}: it must be f32[]")
    extra = jax.eval_shape(trial.curriculum.extra_env_steps, state)
    require(isinstance(extra, Count), f"{name}.extra_env_steps returns {extra!r}: it must be a Count")


def difference(where: str, before: list[str], after: list[str]) -> str:
    """A sentence on how a state has changed its form."""
    changed = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
    what = f"{changed[0][0]} becomes {changed[0][1]}" if changed else f"{len(before)} arrays become {len(after)}"
    return f"{where} returns a state of another form, so that it cannot be carried through a loop: {what}"


def run(
    trial: CurriculumTrial, keys: jax.Array, n: int = N_STEPS, finishes: bool = True
) -> tuple[list[LevelBatch], Any]:
    """(the batches of `n` steps of several seeds, the state after them)."""
    state, params = trial.start(keys)
    batches = []
    for clock in range(n):
        found = trial.advance(jnp.asarray(clock, jnp.int32), keys, state, params, jnp.asarray(finishes))
        state = found.state
        batches.append(jax.device_get(found.batch.replace(context=())))
    return batches, state


def check_batches(trial: CurriculumTrial, batches: list[LevelBatch]) -> None:
    """What the batches say of their levels."""
    name, plan = trial.name, trial.curriculum.plan
    for batch in batches:
        sources = set(np.unique(batch.source).tolist())
        require(sources <= set(plan.sources), f"{name} proposes sources {sources}: its plan names {plan.sources}")
        require(bool((batch.slots >= -1).all()), f"{name} proposes slots below -1, which is a level of no buffer")
        require(bool((batch.n_mutations >= 0).all()), f"{name} proposes a negative number of mutations")


def check_state(trial: CurriculumTrial, state: Any) -> None:
    """What is left after a few steps."""
    count = trial.advance._cache_size()  # type: ignore[attr-defined]
    require(count == 1, f"{trial.name} was compiled {count} times for {N_STEPS} steps: its state changes its type")
    steps = trial.curriculum.extra_env_steps(state).number()
    require(bool((steps >= 0).all()), f"{trial.name}.extra_env_steps is {steps}: it counts steps")


def check_repeats(trial: CurriculumTrial, keys: jax.Array, state: Any) -> None:
    """The same keys give the same run."""
    again = zip(numbers(state), numbers(run(trial, keys)[1]), strict=True)
    same = all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in again)
    require(same, f"{trial.name} gives another state when it is run again with the same keys: it is not pure")


def check_independence(trial: CurriculumTrial, keys: jax.Array, batch: LevelBatch) -> None:
    """The first batch of a seed does not depend on the seed beside it."""
    others = keys.at[1].set(jax.random.fold_in(keys[1], 1))
    found = run(trial, others, n=1)[0][0]
    pairs = zip(*(numbers(b.replace(train=())) for b in (batch, found)), strict=True)
    same = all(np.array_equal(a[0], b[0]) for a, b in pairs)
    require(same, f"{trial.name} proposes other levels to a seed when another seed runs beside it")


def check_unfinished(trial: CurriculumTrial, keys: jax.Array) -> None:
    """Batches on which no episode ends leave no NaN behind."""
    state = run(trial, keys, n=2, finishes=False)[1]
    bad = any(np.isnan(x).any() for x in numbers(state) if x.dtype.kind == "f")
    require(not bad, f"{trial.name} remembers NaN after batches on which no episode ended")

"""The compiled functions of a `LevelHost`. Each is compiled once for all hosts with the same curriculum."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.base import Attempts, Curriculum, LevelBatch, Students
from minimax_lib.curricula.outcome import Outcome, RolloutOutcome
from minimax_lib.envs.base import Environment, Level
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.playing.students import optimal_returns
from minimax_lib.portable.numbers import checked


@dataclasses.dataclass(frozen=True)
class Trainer:
    """All that scores of rollouts need to know of the agent that a trainer trains."""

    gamma: float
    gae_lambda: float
    n_values = 1
    bootstrap_truncated = False
    n_total_updates = None

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            checked(name, getattr(self, name), (), 0, 1)


def student(trainer: Trainer) -> AgentPop:
    """The one student there is."""
    agent: Any = trainer  # it neither acts nor learns here
    return AgentPop(agent)


class Absent(Students):
    """Students that cannot play here."""

    @property
    def params(self) -> Any:
        raise needs_students()

    def play(self, key: jax.Array, batch: LevelBatch) -> Outcome:
        raise needs_students()

    def attempts(self, key: jax.Array, levels: Level, n_episodes: int, discount: float | None = None) -> Attempts:
        raise needs_students()

    def facing(self, duel: Any) -> Students:
        raise needs_students()


def needs_students() -> ValueError:
    """The refusal of a curriculum that asks for them."""
    return ValueError(
        "the curriculum plays with the student before it proposes levels, which only compiled training can do: "
        "choose another, such as plr or accel"
    )


class Told(struct.PyTreeNode):
    """A trainer's rollout, [T, B]."""

    reward: Any  # f32
    value: Any  # f32, of the observation before the action
    done: Any  # bool, the episode ended with the action
    last_value: Any  # f32[B], of the observation after the last action
    progress: Any = None  # f32, read where an episode ends; None: a return above 0 is success


@functools.partial(jax.jit, static_argnums=0)
def begin(curriculum: Curriculum, key: jax.Array) -> Any:
    """What the curriculum remembers at the start."""
    return curriculum.init(key)


@functools.partial(jax.jit, static_argnums=0)
def propose(curriculum: Curriculum, key: jax.Array, clock: jax.Array, state: Any) -> tuple[Any, LevelBatch]:
    """(state, batch) of step `clock`. `key` is the host's."""
    k_shared, k_own, _ = jax.random.split(jax.random.fold_in(key, clock), 3)
    return curriculum.propose(k_shared, k_own, clock, state, Absent())


@functools.partial(jax.jit, static_argnums=(0, 1))
def observe(
    curriculum: Curriculum,
    where: tuple[Environment, Trainer],
    key: jax.Array,
    clock: jax.Array,
    state: Any,
    batch: Any,
    told: Told,
) -> tuple[Any, dict[str, jax.Array]]:
    """(state, metrics) after the trainer's rollout on `batch`, whose levels are those of the environment."""
    env, trainer = where
    _, _, k_observe = jax.random.split(jax.random.fold_in(key, clock), 3)
    optima = optimal_returns(env, batch.levels)
    outcome = RolloutOutcome(student(trainer), (), rollout_of(told), optimal_returns=optima)
    return curriculum.observe(k_observe, clock, state, batch, outcome)


def rollout_of(told: Told) -> Rollout:
    """The rollout [T, 1, B], of one student. Parts that the trainer does not tell are left out."""
    steps = jax.tree.map(lambda x: x[:, None], told.replace(last_value=()))
    done, returns = steps.done, running_returns(steps.reward, steps.done)
    progress = (done & (returns > 0)).astype(jnp.float32) if steps.progress is None else steps.progress
    nothing: Any = ()
    return Rollout(
        steps=Transition(
            obs=nothing,
            action=nothing,
            reward=steps.reward,
            done=done,
            episode_return=returns,
            discount=1.0 - done.astype(jnp.float32),
            first=jnp.concatenate([jnp.ones_like(done[:1]), done[:-1]]),
            log_prob=nothing,
            value=steps.value,
            truncation_value=None,
            progress=progress,
            facts={},
        ),
        carry=nothing,
        last_value=told.last_value[None],
        final=None,
    )


def running_returns(reward: jax.Array, done: jax.Array) -> jax.Array:
    """f32[T, ...], undiscounted, of the episode so far."""

    def one_step(before: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reward, done = step
        total = before + reward
        return jnp.where(done, 0.0, total), total

    return jax.lax.scan(one_step, jnp.zeros_like(reward[0]), (reward, done))[1]

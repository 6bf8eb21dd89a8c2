"""TRACED: ACCEL with transition error and co-learnability (Cho et al. 2026)."""

import dataclasses
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import REPLAY, Curriculum, LevelBatch, Plan, Students
from minimax_lib.curricula.experience import comparable
from minimax_lib.curricula.level_buffer import LevelBuffer
from minimax_lib.curricula.levels.accel import ACCEL, ACCELCurriculum, ACCELState
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.score_checks import check_modelled
from minimax_lib.curricula.scores import SCORES, with_transition_error
from minimax_lib.curricula.transition_error import next_observation
from minimax_lib.envs.base import Environment


class CoLearning(struct.PyTreeNode):
    """What co-learnability remembers of the C slots of a level buffer, whose `scores` are priorities here."""

    scores: jax.Array  # f32[C], what each level scored when it was last played
    previous: jax.Array  # bool[C], replayed in the last batch of replay, and still there

    @classmethod
    def none(cls, capacity: int) -> "CoLearning":
        return cls(scores=jnp.full(capacity, -jnp.inf, jnp.float32), previous=jnp.zeros(capacity, bool))


def with_co_learnability(
    weight: float, memory: CoLearning, before: LevelBuffer, after: LevelBuffer, scored: jax.Array, replayed: jax.Array
) -> tuple[CoLearning, LevelBuffer, jax.Array]:
    """(what is remembered, the buffer with the new priorities, f32[] the mean fall of the scores) after a batch.

    `scored` (bool[C]) are the slots whose level has just been scored, `replayed` (bool[C]) those among them that were
    drawn from the buffer. If the scores of these have fallen, the levels of the batch of replay before have taught the
    students something for them, and become more likely.
    """
    scores = jnp.where(scored, after.scores, memory.scores)
    fall = jnp.where(replayed, memory.scores - scores, 0.0).sum() / jnp.maximum(replayed.sum(dtype=jnp.float32), 1.0)
    # A slot that has been given to another level has taught nothing.
    previous = memory.previous & (before.fingerprints == after.fingerprints).all(axis=1)
    # Only on a batch of replay, which the students learn from.
    gain = weight * jnp.where(replayed.any(), fall, 0.0)
    priorities = jnp.where(previous, after.scores + gain, after.scores)
    memory = CoLearning(scores=scores, previous=jnp.where(replayed.any(), replayed, previous))
    return memory, after.replace(scores=priorities), fall


class TRACEDState(struct.PyTreeNode):
    """ACCEL's state, and what co-learnability adds to it."""

    inner: ACCELState
    memory: CoLearning


@dataclasses.dataclass(frozen=True)
class TRACEDCurriculum(Curriculum):
    """`accel`, where a level that was replayed gains priority if the levels that are replayed next have become easier.

    The priority of a level is its score again as soon as it is scored again.
    """

    accel: ACCELCurriculum
    weight: float

    @property
    def plan(self) -> Plan:
        return self.accel.plan

    def extra_env_steps(self, state: TRACEDState) -> Count:
        return self.accel.extra_env_steps(state.inner)

    def init(self, key: jax.Array) -> TRACEDState:
        inner = self.accel.init(key)
        return TRACEDState(inner=inner, memory=CoLearning.none(len(inner.inner.buffer.filled)))

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: TRACEDState, students: Students
    ) -> tuple[TRACEDState, LevelBatch]:
        inner, batch = self.accel.propose(shared_key, key, clock, state.inner, students)
        return state.replace(inner=inner), batch

    def observe(
        self, key: jax.Array, clock: jax.Array, state: TRACEDState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[TRACEDState, dict[str, jax.Array]]:
        before = state.inner.inner.buffer
        inner, metrics = self.accel.observe(key, clock, state.inner, batch, outcome)
        after, known = inner.inner.buffer, comparable(outcome.episodes)
        homes = level_buffer.homes_of(after, batch.levels, self.accel.inner.identity)
        at_home = known & (homes >= 0)
        # Each level has one slot, since the buffer is without duplicates.
        nothing, nowhere = jnp.zeros(len(after.filled), bool), len(after.filled)
        scored = nothing.at[jnp.where(at_home, homes, nowhere)].set(True, mode="drop")
        replayed = at_home & (batch.source == REPLAY) & (homes == batch.slots)
        drawn = nothing.at[jnp.where(replayed, homes, nowhere)].set(True, mode="drop")
        memory, after, fall = with_co_learnability(self.weight, state.memory, before, after, scored, drawn)
        inner = inner.replace(inner=inner.inner.replace(buffer=after))
        is_replay = drawn.any()
        metrics["traced/co_learnability"] = jnp.where(is_replay, fall, jnp.nan)
        return TRACEDState(inner=inner, memory=memory), metrics


@dataclasses.dataclass(frozen=True)
class TRACED(ACCEL):
    """TRACED: ACCEL with transition error and co-learnability."""

    unique: ClassVar[bool] = True  # type: ignore[misc]  # what is remembered of a level belongs to one slot
    parallel: ClassVar[bool] = False  # type: ignore[misc]

    score: Annotated[str, SCORES] = "positive_value_loss"
    """What a level's replay weight is made of, by name, beside the transition error."""
    n_edits: int = 5
    """Edits that make a child of its parent."""
    transition_weight: float = 1.0
    """Weight of the transition error in the score: how badly a model predicts the students' next observation, mean over
    the steps. It is high where the next observation is random, too."""
    co_weight: float = 1.0
    """Weight of co-learnability: a level that was replayed gains this many times the mean fall of the scores of the
    levels that are replayed next."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("transition_weight", "co_weight"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"runner.{name} is {getattr(self, name)}: it must be at least 0 and finite")

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        if self.transition_weight:
            check_modelled("runner is 'traced'", env.action_space)
        accel = super().build(env, agent, n_rows)
        assert isinstance(accel, ACCELCurriculum)  # it is not parallel
        if accel.inner.score.model not in (None, next_observation):
            raise ValueError(
                f"runner.score is {self.score!r}, which has a model of its own: TRACED has another, choose one such "
                "as positive_value_loss"
            )
        if self.transition_weight:
            score = with_transition_error(accel.inner.score, self.transition_weight)
            accel = dataclasses.replace(
                accel, inner=dataclasses.replace(accel.inner, score=score, model=next_observation(env))
            )
        return TRACEDCurriculum(accel, self.co_weight)

"""CENIE: half of the replay weight is for levels on which students see and do new things (Teoh et al. 2024)."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students
from minimax_lib.curricula.level_buffer.buffer import Prioritisation
from minimax_lib.curricula.levels.plr import PLRCurriculum, PLRSettings, PLRState
from minimax_lib.curricula.mixture import Novelty, novelty
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.score_checks import check_modelled
from minimax_lib.curricula.score_models import ScoreModel
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment
from minimax_lib.priorities import highest_first, rank_powers, ranks_of


class SlotScores(struct.PyTreeNode):
    """What the levels in C slots scored when they were last played; -inf in empty slots."""

    scores: jax.Array  # f32[C]
    novelty: jax.Array  # f32[C]

    @classmethod
    def none(cls, capacity: int) -> "SlotScores":
        return cls(*(jnp.full(capacity, -jnp.inf, jnp.float32) for _ in range(2)))


@dataclasses.dataclass(frozen=True)
class TwoRanks:
    """The strength of a level: (1 - share) of it by the rank of its score, and `share` by the rank of its novelty.

    Each part is (1 / rank)^(1 / temperature), and sums to its share over the filled slots, as in PLR.
    """

    temperature: float
    share: float

    def of_slots(self, standing: SlotScores, filled: jax.Array) -> jax.Array:
        """f32[C], -inf where not `filled` (bool[C])."""
        first, second = (ranks_of(highest_first(values)) for values in (standing.scores, standing.novelty))
        return jnp.where(filled, self._mixed(first, second, filled), -jnp.inf)

    def of_rows(self, standing: SlotScores, filled: jax.Array, scores: jax.Array, novelty: jax.Array) -> jax.Array:
        """f32[B], of levels with these scores (f32[B] each), if each of them came alone; -inf where one is."""

        def rank(values: jax.Array, own: jax.Array) -> jax.Array:
            return 1 + (values[None] > own[:, None]).sum(axis=1, dtype=jnp.int32)

        mixed = self._mixed(rank(standing.scores, scores), rank(standing.novelty, novelty), filled)
        return jnp.where(jnp.isfinite(scores) & jnp.isfinite(novelty), mixed, -jnp.inf)

    def _mixed(self, first: jax.Array, second: jax.Array, filled: jax.Array) -> jax.Array:
        # One rank more than there are slots: of a row that comes behind all levels of a full buffer. With the rank of
        # the last of them, it would be as strong, and take its place.
        table = rank_powers(len(filled) + 1, self.temperature)
        totals = jnp.asarray(np.cumsum(table), jnp.float32)
        # At a low temperature the last powers are 0 in float32. The floor still falls from rank to rank.
        floor = np.arange(len(table), 0.0, -1.0) * 1e-30
        powers = jnp.asarray(np.maximum(table, floor), jnp.float32)
        total = totals[jnp.maximum(filled.sum(dtype=jnp.int32), 1) - 1]
        return ((1.0 - self.share) * powers[first - 1] + self.share * powers[second - 1]) / total


class CENIEState(struct.PyTreeNode):
    """A replay curriculum whose buffer has strengths in place of scores, what these are made of, and the mixture."""

    inner: PLRState
    standing: SlotScores
    model: Any


@dataclasses.dataclass(frozen=True)
class CENIECurriculum(Curriculum):
    """`plr`, whose replay weights come from the ranks of two scores: its own, and novelty."""

    plr: PLRCurriculum
    ranks: TwoRanks
    model: ScoreModel
    novelty: Score

    @property
    def plan(self) -> Plan:
        return self.plr.plan

    def extra_env_steps(self, state: CENIEState) -> Count:
        return self.plr.extra_env_steps(state.inner)

    def init(self, key: jax.Array) -> CENIEState:
        k_inner, k_model = jax.random.split(key)
        inner = self.plr.init(k_inner)
        return CENIEState(
            inner=inner, standing=SlotScores.none(len(inner.buffer.filled)), model=self.model.init(k_model)
        )

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: CENIEState, students: Students
    ) -> tuple[CENIEState, LevelBatch]:
        inner, batch = self.plr.propose(shared_key, key, clock, state.inner, students)
        return state.replace(inner=inner), batch

    def observe(
        self, key: jax.Array, clock: jax.Array, state: CENIEState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[CENIEState, dict[str, jax.Array]]:
        k_inner, k_fit = jax.random.split(key)
        plr, before = self.plr, state.inner.buffer
        aged, rows, best, scores = plr.measured(before, batch, outcome)
        new = outcome.score(self.novelty, best, self.model.measure(state.model, outcome.transitions))
        strengths = self.ranks.of_rows(state.standing, before.filled, scores, new)
        buffer = level_buffer.insert(plr.settings, aged, rows, strengths, best, batch.n_mutations, batch.ancestors)
        homes = level_buffer.homes_of(buffer, batch.levels, plr.identity)
        standing = with_rows(state.standing, homes, scores, new)
        buffer = buffer.replace(scores=self.ranks.of_slots(standing, buffer.filled))
        generator, report = plr.taught(k_inner, clock, state.inner.generator, batch, outcome)
        known = jnp.isfinite(scores)
        report = report | plr.metrics(buffer, batch, scores)
        report["cenie/novelty"] = axes.mean_where(known, new)
        return CENIEState(
            inner=state.inner.replace(generator=generator, buffer=buffer),
            standing=standing,
            model=self.model.fit(k_fit, state.model, outcome.transitions),
        ), report


def with_rows(standing: SlotScores, homes: jax.Array, scores: jax.Array, novelty: jax.Array) -> SlotScores:
    """The standing after B rows, whose levels are in the slots `homes` (i32[B], -1: in none). The last row counts."""
    index, n_slots = jnp.arange(len(homes), dtype=jnp.int32), len(standing.scores)
    counts = (homes >= 0) & jnp.isfinite(scores) & jnp.isfinite(novelty)
    # A scatter promises no order where several rows write to one slot. A maximum needs none.
    last = jnp.full(n_slots, -1, jnp.int32).at[jnp.where(counts, homes, n_slots)].max(index, mode="drop")
    return SlotScores(
        scores=jnp.where(last >= 0, scores[last], standing.scores),
        novelty=jnp.where(last >= 0, novelty[last], standing.novelty),
    )


@dataclasses.dataclass(frozen=True)
class CENIE(RestartedRollouts, PLRSettings):
    """CENIE: PLR, where half of the replay weight is for novelty under a mixture of what was seen and done before."""

    # The buffer holds strengths that are made of ranks already.
    prioritisation: ClassVar[Prioritisation] = "proportional"  # type: ignore[misc]
    temperature: ClassVar[float] = 1.0  # type: ignore[misc]
    unique: ClassVar[bool] = True  # type: ignore[misc]  # what is remembered of a level belongs to one slot
    parallel: ClassVar[bool] = False  # type: ignore[misc]

    n_students: int = 1
    """Students that play every level side by side; a teacher that is paid regret needs two."""
    rank_temperature: float = 0.3
    """Weights are the ranks to the power -1 / rank_temperature: low values favour the highest ranks more."""
    novelty_share: float = 0.5
    """Share of the replay weight, staleness aside, that goes by the rank of novelty. The rest goes by the score's."""

    n_listed = PLRSettings.n_listed  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.rank_temperature < float("inf"):
            raise ValueError(f"runner.rank_temperature is {self.rank_temperature}: it must be positive and finite")
        if not 0 <= self.novelty_share <= 1:
            raise ValueError(f"runner.novelty_share is {self.novelty_share}: it must be between 0 and 1")
        if SCORES[self.score].model is not None:
            raise ValueError(
                f"runner.score is {self.score!r}, which has a model of its own: CENIE has another, choose one such as "
                "positive_value_loss"
            )

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        check_modelled("runner is 'cenie'", env.action_space)
        model: Novelty = novelty(env)
        ranks = TwoRanks(self.rank_temperature, self.novelty_share)
        return CENIECurriculum(self.plr(env, agent, n_rows), ranks, model, SCORES["novelty"])

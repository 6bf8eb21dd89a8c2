"""Replay by a distribution that is learnt: nonconvex-concave optimisation (NCC; Monette et al. 2025)."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.counts import Count
from minimax_lib.curricula.base import REPLAY, Attempts, Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.levels.sfl import learnability_of
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.settings import MOST_EPISODES, RestartedRollouts, check_levels
from minimax_lib.envs.base import Environment, Level, sample_levels
from minimax_lib.registry import unknown_name
from minimax_lib.tasks import draw

LevelScore = Literal["learnability", "exact_regret"]
FLOOR = 1e-5  # the least weight of a level, as published
FIRST_MOMENT, POWER = 0.1, 0.4  # of the step sizes, as in the released code


class NCCState(struct.PyTreeNode):
    """K levels, what they scored when they were last played, and how likely each is to be drawn."""

    levels: Level  # [K, ...]
    scores: jax.Array  # f32[K], -inf where a level has not been scored yet
    weights: jax.Array  # f32[K], on the simplex, each at least FLOOR
    moment: jax.Array  # f32[], the sum of the mean squared gradients of the weights
    wait: jax.Array  # i32[], batches before the next scoring; the same on every seed
    env_steps: Count  # of all scorings


@dataclasses.dataclass(frozen=True)
class Ascent:
    """One step of an adversary that chooses the weights y of K levels with scores s.

    It ascends y.s - rho sum_i y_i log y_i, whose maximum on the simplex is softmax(s / rho).
    """

    step_size: float  # eta
    entropy_weight: float  # rho

    def step(self, weights: jax.Array, moment: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(weights f32[K], moment f32[]) after a step up the gradient. `scores` (f32[K]) are finite."""
        gradient = scores - self.entropy_weight * (jnp.log(weights) + 1.0)
        # One step size for all levels. The released code keeps a moment for each of them. But what all gradients have
        # in common changes nothing on the simplex, and is most of these moments: with a step size for each level, the
        # weights come to rest elsewhere (the tests have an example).
        moment = moment + (gradient**2).mean()
        # Up, as in the paper. The released maze code goes down, and puts all weight on the lowest score.
        rate = self.step_size * (moment + 1e-7) ** -POWER
        return projected(weights + rate * gradient, FLOOR), moment


def projected(values: jax.Array, floor: float) -> jax.Array:
    """f32[K], the point nearest to `values` (f32[K]) whose entries sum to 1 and are at least `floor`."""
    # The bound of 1 from above never matters: all others have a floor of at least 0.
    above = values - floor
    highest = above.max()
    descending = jnp.sort(above - highest, descending=True)  # shifted, so that the sums keep their digits
    total, count = 1.0 - len(values) * floor, jnp.arange(1, len(values) + 1, dtype=jnp.float32)
    shifts = (jnp.cumsum(descending) - total) / count
    # So many entries stay above the floor (Held, Wolfe and Crowder 1974).
    n_above = (descending > shifts).sum(dtype=jnp.int32)
    return jnp.maximum(above - highest - shifts[n_above - 1], 0.0) + floor


@dataclasses.dataclass(frozen=True)
class EpisodeScoring:
    """How levels are scored: by whole episodes of the current students, `n_rows` levels at a time."""

    env: Environment
    kind: LevelScore
    n_rows: int
    n_episodes: int
    gamma: float

    def n_played(self, n_levels: int) -> int:
        """Levels that are played to score `n_levels`: parts of equal size, the last filled up with the first levels."""
        n_parts = -(-n_levels // self.n_rows)
        return n_parts * -(-n_levels // n_parts)

    def scored(self, key: jax.Array, levels: Level, n: int, students: Students) -> tuple[jax.Array, jax.Array]:
        """(f32[n] scores of `levels` [n, ...], u32[] environment steps that it took)."""
        n_parts = -(-n // self.n_rows)
        places = (jnp.arange(self.n_played(n), dtype=jnp.int32) % n).reshape(n_parts, -1)

        def part(some: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            key, place = some
            own = jax.tree.map(lambda x: x[place], levels)
            if self.kind == "learnability":
                attempts = students.attempts(key, own, self.n_episodes)
                return learnability_of(attempts), attempts.env_steps
            attempts = students.attempts(key, own, self.n_episodes, self.gamma)
            return self.regret(own, attempts), attempts.env_steps

        # One part after another, so that memory does not grow with the number of levels.
        scores, env_steps = jax.lax.map(part, (jax.random.split(key, n_parts), places))
        return scores.reshape(-1)[:n], env_steps.sum(dtype=jnp.uint32)

    def regret(self, levels: Level, attempts: Attempts) -> jax.Array:
        """f32[B], the best discounted return above that of the students, at least 0; the mean over the students."""
        best = jax.vmap(lambda level: self.env.optimal_return(level, self.gamma))(levels)  # type: ignore[misc]
        return jnp.maximum(best[None] - attempts.episodes.discounted.mean(axis=2), 0.0).mean(axis=0)


def replaced(
    levels: Level, scores: jax.Array, new_levels: Level, new_scores: jax.Array
) -> tuple[Level, jax.Array, jax.Array]:
    """(levels, f32[K] scores, i32[] number of new levels that were taken), as if the new ones came one by one.

    A new level takes the slot with the lowest score if its own is higher.
    """
    n_slots = len(scores)

    def one(kept: tuple[jax.Array, jax.Array], new: tuple[jax.Array, jax.Array]) -> tuple[tuple, None]:
        scores, origins = kept
        score, number = new
        slot = jnp.argmin(scores)
        takes = score > scores[slot]
        return (
            scores.at[slot].set(jnp.where(takes, score, scores[slot])),
            origins.at[slot].set(jnp.where(takes, number, origins[slot])),
        ), None

    numbers = n_slots + jnp.arange(len(new_scores), dtype=jnp.int32)
    start = scores, jnp.arange(n_slots, dtype=jnp.int32)
    (scores, origins), _ = jax.lax.scan(one, start, (new_scores, numbers))
    # Levels are large: they are written once, when it is known which of them stay.
    levels = jax.tree.map(lambda old, new: jnp.concatenate([old, new])[origins], levels, new_levels)
    return levels, scores, (origins >= n_slots).sum(dtype=jnp.int32)


@dataclasses.dataclass(frozen=True)
class NCCCurriculum(Curriculum):
    """All levels of a batch are drawn from the weights, and the weights ascend once a batch.

    Every `every` batches, the current students play `n_scored` of the levels, drawn at random, and `n_new` others.
    """

    env: Environment
    n_rows: int
    capacity: int
    scoring: EpisodeScoring
    ascent: Ascent
    every: int
    n_scored: int
    n_new: int
    delayed: bool = True

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, sources=(REPLAY,))

    def extra_env_steps(self, state: NCCState) -> Count:
        return state.env_steps

    def init(self, key: jax.Array) -> NCCState:
        return NCCState(
            levels=sample_levels(self.env, axes.device_key(key), self.capacity),
            scores=jnp.full(self.capacity, -jnp.inf, jnp.float32),
            weights=jnp.full(self.capacity, 1.0 / self.capacity, jnp.float32),
            moment=jnp.float32(FIRST_MOMENT),
            wait=jnp.zeros((), jnp.int32),
            env_steps=Count.zero(),
        )

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: NCCState, students: Students
    ) -> tuple[NCCState, LevelBatch]:
        k_score, k_draw = jax.random.split(key)
        before, due = state, axes.common(state.wait) == 0
        state = state.replace(wait=jnp.where(due, self.every, state.wait) - 1)
        nothing_new = jnp.zeros((), jnp.int32)
        state, n_taken = jax.lax.cond(
            due, lambda: self.rescored(k_score, state, students), lambda: (state, nothing_new)
        )
        state = self.ascended(state)
        slots = draw(k_draw, (before if self.delayed else state).weights, self.n_rows)
        batch = level_batch(jax.tree.map(lambda x: x[slots], state.levels), REPLAY)
        # The difference is modulo 2**32. It is right as long as one scoring takes fewer steps than that.
        n_steps = (state.env_steps.low - before.env_steps.low).astype(jnp.float32)
        return state, batch.replace(slots=slots, context=(n_steps, n_taken.astype(jnp.float32)))

    def rescored(self, key: jax.Array, state: NCCState, students: Students) -> tuple[NCCState, jax.Array]:
        """(the state with new scores, and with new levels in place of the lowest; i32[] how many of these)."""
        k_slots, k_levels, k_play = jax.random.split(key, 3)
        slots = jax.random.permutation(k_slots, jnp.arange(self.capacity, dtype=jnp.int32))[: self.n_scored]
        levels = jax.tree.map(lambda x: x[slots], state.levels)
        new = sample_levels(self.env, k_levels, self.n_new) if self.n_new else None
        if new is not None:
            levels = jax.tree.map(lambda *xs: jnp.concatenate(xs), levels, new)
        found, env_steps = self.scoring.scored(k_play, levels, self.n_scored + self.n_new, students)
        state = state.replace(
            scores=state.scores.at[slots].set(found[: self.n_scored]), env_steps=state.env_steps.plus(env_steps)
        )
        if new is None:
            return state, jnp.zeros((), jnp.int32)
        # The weight of a slot stays as it is when its level is replaced, as in the released code.
        levels, scores, n_taken = replaced(state.levels, state.scores, new, found[self.n_scored :])
        return state.replace(levels=levels, scores=scores), n_taken

    def ascended(self, state: NCCState) -> NCCState:
        """The state after a step of the weights."""
        known = jnp.isfinite(state.scores)
        total = jnp.where(known, state.scores, 0.0).sum()
        # What has no score yet counts as the mean of the others, so that its weight neither rises nor falls with it.
        mean = total / jnp.maximum(known.sum(dtype=jnp.float32), 1.0)
        weights, moment = self.ascent.step(state.weights, state.moment, jnp.where(known, state.scores, mean))
        return state.replace(weights=weights, moment=moment)

    def observe(
        self, key: jax.Array, clock: jax.Array, state: NCCState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[NCCState, dict[str, jax.Array]]:
        n_steps, n_taken = batch.context
        known, weights = jnp.isfinite(state.scores), state.weights
        return state, {
            "ncc/score": axes.mean_where(known, state.scores),
            "ncc/weighted_score": jnp.where(known, weights * state.scores, 0.0).sum(),
            "ncc/effective": jnp.exp(-(weights * jnp.log(weights)).sum()) / self.capacity,
            "ncc/taken": axes.device_sum(n_taken),
            "ncc/scoring_steps": axes.device_sum(n_steps),
        }


@dataclasses.dataclass(frozen=True)
class NCCMethod(RestartedRollouts):
    """NCC: an adversary learns how often each level of a buffer is trained on, by gradient ascent on their scores."""

    capacity: int = 4000
    """Levels that are kept. Each of several devices has a part of them, and weights of its own."""
    score: LevelScore = "learnability"
    """What the adversary wants, from whole episodes: p (1 - p), p the rate of solved ones; or the best discounted
    return of the level minus the students' (environments that know it, such as AMaze)."""
    step_size: float = 0.1
    """Step size of the adversary (eta). It falls as the squared gradients add up."""
    entropy_weight: float = 0.05
    """Weight of the entropy of the distribution (rho). If scores stayed as they are, it would become softmax(scores /
    entropy_weight); with 0, the best level would get all of it."""
    n_episodes: int = 5
    """Whole episodes of each student on a scored level; at least 2 for learnability."""
    every: int | None = None
    """Batches between two scorings with the current students. None: as few as let scoring take no more environment
    steps than training, if every scored episode is as long as it may be. As published: 1."""
    score_share: float = 0.1
    """Share of the levels that a scoring plays again, drawn at random. As published: 1."""
    n_new: int = 32
    """Random levels in a scoring. Each takes the place of the level with the lowest score if its own is higher."""
    delayed: bool = True
    """Draw a batch from the distribution as it was before the adversary's latest step, as published."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.score not in get_args(LevelScore):
            raise unknown_name("runner.score", self.score, get_args(LevelScore))
        if not 2 <= self.capacity < 1 / FLOOR:
            raise ValueError(
                f"runner.capacity is {self.capacity}: it must be between 2 and {round(1 / FLOOR) - 1}, since every "
                f"level has a weight of at least {FLOOR}"
            )
        least = 2 if self.score == "learnability" else 1
        for name, bound in (("n_episodes", least), ("n_new", 0), ("every", 1)):
            value = getattr(self, name)
            if value is not None and value < bound:
                raise ValueError(f"runner.{name} is {value}: it must be at least {bound}")
        check_levels("n_new", self.n_new)
        if self.n_episodes > MOST_EPISODES:
            raise ValueError(f"runner.n_episodes is {self.n_episodes}: it must be at most {MOST_EPISODES}")
        if not 0 < self.score_share <= 1:
            raise ValueError(f"runner.score_share is {self.score_share}: it must be above 0, and at most 1")
        if not 0 < self.step_size < float("inf"):
            raise ValueError(f"runner.step_size is {self.step_size}: it must be positive and finite")
        if not 0 <= self.entropy_weight < float("inf"):
            raise ValueError(f"runner.entropy_weight is {self.entropy_weight}: it must be at least 0 and finite")

    @property
    def divided(self) -> tuple[str, ...]:
        return (*super().divided, "capacity", "n_new")

    @property
    def n_rescored(self) -> int:
        """Levels of the buffer that a scoring plays again."""
        return max(1, round(self.score_share * self.capacity))

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        if self.score == "exact_regret" and (env.optimal_return is None or env.multi_agent):
            raise ValueError(
                f"runner.score is 'exact_regret', which needs the method optimal_return, and {type(env).__name__} has "
                "none: write it, or choose learnability"
            )
        scoring = EpisodeScoring(env, self.score, n_rows, self.n_episodes, agent.gamma)
        ascent = Ascent(self.step_size, self.entropy_weight)
        n_steps = scoring.n_played(self.n_rescored + self.n_new) * self.n_episodes * env.max_steps
        every = self.every or -(-n_steps // self.steps_of_batch(env.max_steps))
        return NCCCurriculum(
            env, n_rows, self.capacity, scoring, ascent, every, self.n_rescored, self.n_new, self.delayed
        )

    def steps_of_batch(self, max_steps: int) -> int:
        """Environment steps of a student in the rollouts of a batch."""
        return self.n_parallel * self.n_evals * self.n_steps * self.n_rollouts(max_steps, scored=False)

"""Prioritised level replay (Jiang et al. 2021a) and its robust form (Jiang et al. 2021b)."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import SCHEDULES
from minimax_lib.counts import Count
from minimax_lib.curricula import level_buffer
from minimax_lib.curricula.base import NEW, REPLAY, Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.level_buffer import LevelBuffer, LocatedBatch, ReplaySettings
from minimax_lib.curricula.levels.designed import Teacher
from minimax_lib.curricula.levels.dr import RandomLevels
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.levels.parallel import Parallel
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.score_checks import check_score
from minimax_lib.curricula.score_models import ScoreModel
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.registry import identity_of
from minimax_lib.envs.restarts import QueuedLevels
from minimax_lib.trees import zeros


class PLRState(struct.PyTreeNode):
    """What a replay curriculum remembers."""

    generator: Any
    buffer: LevelBuffer
    model: Any = ()  # the state of the score's own model; () where it has none


@dataclasses.dataclass(frozen=True)
class PLRCurriculum(Curriculum):
    """A batch is either replayed from the level buffer or new, from `generator`. Every batch is scored.

    Students learn from replayed batches. With `train_on_new` (PLR), they learn from new ones too; without it, this is
    robust PLR.
    """

    env: Environment
    generator: Curriculum
    settings: ReplaySettings
    score: Score
    train_on_new: bool = False
    identity: Callable[[Level], Any] = level_buffer.whole_level
    n_ancestors: int = 0
    model: ScoreModel | None = None  # the score's own

    @property
    def n_rows(self) -> int:
        return self.generator.plan.n_rows

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, sources=(NEW, REPLAY), scores=(self.score, *self.generator.plan.scores))

    def extra_env_steps(self, state: PLRState) -> Count:
        return self.generator.extra_env_steps(state.generator)

    def init(self, key: jax.Array) -> PLRState:
        placeholder = zeros(jax.eval_shape(self.env.sample_level, key))
        buffer = level_buffer.init(placeholder, self.settings.capacity, self.n_ancestors)
        model: Any = ()
        if self.model is not None:
            key, k_model = jax.random.split(key)
            model = self.model.init(k_model)
        return PLRState(generator=self.generator.init(key), buffer=buffer, model=model)

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: PLRState, students: Students
    ) -> tuple[PLRState, LevelBatch]:
        k_coin, k_generator = jax.random.split(shared_key)
        k_new, k_replay = jax.random.split(key)
        replay = self.replays(k_coin, state.buffer)

        def generated() -> tuple[Any, LevelBatch]:
            generator, batch = self.generator.propose(k_generator, k_new, clock, state.generator, students)
            return generator, self.orphaned(adopted(batch))

        def replayed() -> tuple[Any, LevelBatch]:
            # Both branches must return the same types. So a replayed batch has zeros in place of a generator's context.
            return state.generator, self.replayed(k_replay, state.buffer, context=zeros(fresh.context))

        fresh = jax.eval_shape(generated)[1]
        # The buffer does not leave the branch: its levels would be copied.
        generator, batch = jax.lax.cond(replay, replayed, generated)
        return state.replace(generator=generator), batch.replace(train=replay | self.train_on_new)

    def orphaned(self, batch: LevelBatch) -> LevelBatch:
        """A batch of levels that have no parents."""
        return batch.replace(ancestors=level_buffer.no_ancestors(batch.levels, self.n_ancestors))

    def is_ready(self, buffer: LevelBuffer) -> jax.Array:
        """bool[], the same on every seed and device: all buffers are full enough for replay."""
        return axes.everywhere_all(level_buffer.replay_probability(self.settings, buffer) > 0)

    def replays(self, key: jax.Array, buffer: LevelBuffer) -> jax.Array:
        """bool[], the same on every seed and device: the coin says so, and all buffers are full enough."""
        probability = level_buffer.replay_probability(self.settings, buffer)
        return axes.everywhere_all(jax.random.uniform(key) < probability)

    def replayed(self, key: jax.Array, buffer: LevelBuffer, context: Any = ()) -> LevelBatch:
        """A batch from the buffer. The ages change when it is known which of its levels were played (`scored`)."""
        _, slots = level_buffer.sample(key, self.settings, buffer, self.n_rows)
        return LevelBatch(
            levels=level_buffer.levels_at(buffer, slots),
            slots=slots,
            source=jnp.full_like(slots, REPLAY),
            n_mutations=buffer.n_mutations[slots],
            ancestors=jax.tree.map(lambda x: x[slots], buffer.ancestors),
            train=jnp.ones((), bool),
            context=context,
        )

    def observe(
        self, key: jax.Array, clock: jax.Array, state: PLRState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[PLRState, dict[str, jax.Array]]:
        key, model = self.fitted(key, state.model, outcome)
        buffer, scores = self.scored(state.buffer, batch, outcome, state.model)
        generator, report = self.taught(key, clock, state.generator, batch, outcome)
        report = report | self.metrics(buffer, batch, scores)
        return PLRState(generator=generator, buffer=buffer, model=model), report

    def taught(
        self, key: jax.Array, clock: jax.Array, generator: Any, batch: LevelBatch, outcome: Outcome
    ) -> tuple[Any, dict[str, jax.Array]]:
        """(the generator's state after it has observed the batch, its metrics); NaN if the batch is not its own."""
        is_new = axes.everywhere_all((batch.source == NEW).all())

        def taught() -> tuple[Any, dict[str, jax.Array]]:
            return self.generator.observe(key, clock, generator, handed_back(batch), outcome)

        def untaught() -> tuple[Any, dict[str, jax.Array]]:
            return generator, jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan, x.dtype), report_shape)

        report_shape = jax.eval_shape(taught)[1]
        return jax.lax.cond(is_new, taught, untaught)

    def fitted(self, key: jax.Array, model: Any, outcome: Outcome) -> tuple[jax.Array, Any]:
        """(a key for all else, the state of the score's model after it has learnt from the batch)."""
        if self.model is None:
            return key, model
        key, k_fit = jax.random.split(key)
        return key, self.model.fit(k_fit, model, outcome.transitions)

    def scored(
        self, buffer: LevelBuffer, batch: LevelBatch, outcome: Outcome, model: Any = ()
    ) -> tuple[LevelBuffer, jax.Array]:
        """(the buffer with the batch in it where it is worth keeping, f32[B] scores).

        `model` is the state of the score's own model, before it is fitted to the batch.
        """
        buffer, rows, best, scores = self.measured(buffer, batch, outcome, model)
        kept = level_buffer.insert(self.settings, buffer, rows, scores, best, batch.n_mutations, batch.ancestors)
        return kept, scores

    def measured(
        self, buffer: LevelBuffer, batch: LevelBatch, outcome: Outcome, model: Any = ()
    ) -> tuple[LevelBuffer, LocatedBatch, jax.Array, jax.Array]:
        """(the buffer with the ages after the batch, the batch's levels in it, f32[B] best returns, f32[B] scores)."""
        rows = level_buffer.locate(self.settings, buffer, batch.levels, batch.slots, self.identity)
        episodes = outcome.episodes
        # Where rows play several levels in turn, they may not come to the last of them. Those change no age.
        begun = episodes.begun.any(axis=0)
        buffer = buffer.replace(ages=level_buffer.aged(buffer.ages, buffer.filled, batch.slots, begun & ~rows.is_new))
        rows = rows.replace(begun=begun)
        # A score may depend on the best return, which includes this batch. So the returns come before the scores.
        best = level_buffer.best_returns(buffer, rows, episodes.best.max(axis=0))
        modelled = None if self.model is None else self.model.measure(model, outcome.transitions)
        return buffer, rows, best, outcome.score(self.score, best, modelled)

    def metrics(self, buffer: LevelBuffer, batch: LevelBatch, scores: jax.Array) -> dict[str, jax.Array]:
        """The state of the buffer, weighted by how likely its levels are to be replayed, and the batch's scores."""
        known = jnp.isfinite(scores)
        return level_buffer.buffer_metrics(self.settings, buffer) | {
            "replay_share": (batch.source == REPLAY).mean(dtype=jnp.float32),
            "batch/score": axes.mean_where(known, scores),
            "batch/unfinished": 1.0 - known.mean(dtype=jnp.float32),
        }


def adopted(batch: LevelBatch) -> LevelBatch:
    """A generator's batch, as new levels of the outer curriculum. The generator's own view of it is the context."""
    ours = level_batch(batch.levels, NEW)
    return ours.replace(n_mutations=batch.n_mutations, context=batch.replace(levels=()))


def handed_back(batch: LevelBatch) -> LevelBatch:
    """The batch as the generator proposed it: undoes `adopted`."""
    return batch.context.replace(levels=batch.levels)


@dataclasses.dataclass(frozen=True)
class PLRSettings(ReplaySettings):
    """Prioritised level replay: levels with a high score come back."""

    generator: Annotated[Any, GENERATORS] = RandomLevels()
    """Where new levels come from."""
    score: Annotated[str, SCORES] = "max_mc"
    """What a level's replay weight is made of, by name."""
    robust: bool = True
    """Score new levels without learning from them (robust PLR). Otherwise, learn from them too."""
    parallel: bool = False
    """Replayed and new levels (and mutations) side by side in one wider batch, with an update on every step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        SCORES[self.score]  # ValueError for an unknown name
        if self.parallel and not self.robust:
            raise ValueError("runner.robust is False with runner.parallel: parallel PLR learns from replay only")
        if self.robust and self.schedule == "fixed" and self.replay_prob == 0:
            raise ValueError(
                "runner.replay_prob is 0 with runner.robust: nothing would ever be learnt, since only replayed levels "
                "are learnt from. It must be above 0, or choose --runner.no-robust"
            )
        if isinstance(self.generator, Teacher):
            for name in SCHEDULES:
                if (value := getattr(self.generator.ppo, name)) is not None:
                    raise ValueError(
                        f"runner.generator.ppo.{name} is {value}: with replay, how often the teacher learns is not "
                        "known beforehand, choose none"
                    )

    @property
    def divided(self) -> tuple[str, ...]:
        """With a fixed list, the buffer's slots are as many as a device has of the list."""
        return () if isinstance(self.generator, FiniteList) else ("capacity",)

    @property
    def n_listed(self) -> int:
        """See `RolloutSettings`. If new levels come from a list, there are no others."""
        return getattr(self.generator, "n_listed", 0)

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        plr = self.plr(env, agent, n_rows)
        return Parallel(plr) if self.parallel else plr

    def plr(self, env: Environment, agent: AgentPop, n_rows: int) -> PLRCurriculum:
        """The curriculum that replays what the generator has made."""
        check_score("runner.score", self.score, env.action_space, agent.n, agent.n_values, keeps_model=True)
        generator = self.generator.build(env, agent, n_rows)
        check_generator(GENERATORS.name_of(type(self.generator)), generator, n_rows, self.parallel)
        replay: ReplaySettings = self
        if isinstance(self.generator, FiniteList):
            replay = dataclasses.replace(self, capacity=self.generator.n_levels)
        score = SCORES[self.score]
        model = score.model(env) if score.model else None
        return PLRCurriculum(env, generator, replay, score, not self.robust, identity_of(env), model=model)


def check_generator(name: str, generator: Curriculum, n_rows: int, parallel: bool) -> None:
    """ValueError where new levels cannot come from the curriculum called `name`."""
    if generator.plan.n_rows != n_rows:
        raise ValueError(
            f"runner.generator is {name!r}, which makes {generator.plan.n_rows} levels a batch: {n_rows} are wanted, "
            "choose one that is not parallel"
        )
    if isinstance(generator.plan.restart, QueuedLevels):
        raise ValueError(
            f"runner.generator is {name!r}, whose rows take levels from a queue: replayed levels are played one a row, "
            "choose a generator that has no queue, such as random"
        )
    if parallel and jax.tree.leaves(jax.eval_shape(generator.init, jax.random.key(0))):
        raise ValueError(
            f"runner.generator is {name!r} with runner.parallel, which draws several batches of new levels in a step: "
            "choose a generator without memory, such as random"
        )


@dataclasses.dataclass(frozen=True)
class PLR(RestartedRollouts, PLRSettings):
    """Prioritised level replay: levels with a high score come back. With a teacher as the generator, REPAIRED."""

    n_students: int = 1
    """Students that play every level side by side; a teacher that is paid regret needs two."""

    n_listed = PLRSettings.n_listed  # type: ignore[assignment]

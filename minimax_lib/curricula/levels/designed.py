"""Levels designed by a teacher that learns: PAIRED (Dennis et al. 2020) and its relatives.

The teacher's payment and the number of students decide which game it is:

    PAIRED                 the regret of two students
    population PAIRED      the regret of two or more
    minimax adversary      minus the return of one
"""

import dataclasses
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from minimax_lib import axes
from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.base import Curriculum, LevelBatch, Plan, Students, level_batch
from minimax_lib.curricula.outcome import Outcome
from minimax_lib.curricula.score_checks import check_score
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import RestartedRollouts
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.registry import TEACHERS, OwnTeacher, teacher_of
from minimax_lib.envs.ued import BatchUEDEnv, UEDEnvironment
from minimax_lib.envs.wrappers import unwrapped
from minimax_lib.models.network import check_network
from minimax_lib.models.registry import MODELS
from minimax_lib.models.settings import LSTM
from minimax_lib.playing.rollout import Rollout, rollout


@dataclasses.dataclass(frozen=True)
class DesignedLevels(Curriculum):
    """The teacher designs every level, in its own MDP. It begins each design with an empty memory.

    When the students have played a level, its `score` is paid on the last step of the design. Then the teacher learns,
    with its own settings. It learns nothing from a design that has no score, because no episode finished on it.
    """

    env: BatchUEDEnv
    agent: AgentPop  # the teacher, a population of one
    n_rows: int
    score: Score

    @property
    def plan(self) -> Plan:
        return Plan(self.n_rows, scores=(self.score,))

    def init(self, key: jax.Array) -> TrainState:
        k_canvas, k_reset, k_agent = jax.random.split(key, 3)
        teacher = self.env.env.teacher
        _, ts = teacher.reset(k_reset, teacher.sample_level(k_canvas))
        return self.agent.init(k_agent, ts.obs)

    def propose(
        self, shared_key: jax.Array, key: jax.Array, clock: jax.Array, state: TrainState, students: Students
    ) -> tuple[TrainState, LevelBatch]:
        k_canvas, k_rollout = jax.random.split(key)
        canvases = self.env.canvases(k_canvas, self.n_rows)
        n_steps, bootstraps = self.env.env.teacher.max_steps, self.agent.bootstrap_truncated
        design = rollout(k_rollout, self.env.teacher, self.agent, state.params, canvases, n_steps, bootstraps)
        assert design.final is not None
        # The teacher learns after the students have played. Until then, its rollout waits in the batch.
        batch = level_batch(self.env.designs(design.final.state))
        return state, batch.replace(context=design.replace(final=None))

    def observe(
        self, key: jax.Array, clock: jax.Array, state: TrainState, batch: LevelBatch, outcome: Outcome
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        scores = outcome.score(self.score, outcome.episodes.best.max(axis=0))
        known = jnp.isfinite(scores)
        state, metrics = self.agent.update(key, state, paid(batch.context, scores))
        metrics = metrics | {
            "reward": axes.mean_where(known, scores),
            "unpaid": 1.0 - known.mean(dtype=jnp.float32),
            "diversity": mean_hamming_distance(batch.levels),
        }
        return state, {f"teacher/{name}": value for name, value in metrics.items()}


def paid(design: Rollout, scores: jax.Array) -> Rollout:
    """The teacher's rollout [T, 1, B], with the design's score (f32[B]) as the reward of its last step.

    Where the score is -inf, no step is valid. A score of 0 would be wrong: where rows play several levels in turn, most
    of these designs have not been played.
    """
    steps, known = design.steps, jnp.isfinite(scores)[None, None]
    assert steps.valid is not None  # its environment restarts nothing
    last = steps.done & steps.valid  # a finished design is `done` in every later step too
    reward = jnp.where(last & known, scores[None, None], 0.0)
    return design.replace(steps=steps.replace(reward=reward, valid=steps.valid & known))


def mean_hamming_distance(levels: Level) -> jax.Array:
    """f32[]: in how many entries (cells, coordinates) two different rows of `levels` [B, ...] differ; NaN if B is 1."""
    rows = [x.reshape(x.shape[0], -1) for x in jax.tree.leaves(levels)]
    n = rows[0].shape[0]

    def differing(i: jax.Array) -> jax.Array:
        return sum((x != x[i][None]).sum(dtype=jnp.float32) for x in rows)

    total = jax.lax.map(differing, jnp.arange(n, dtype=jnp.int32)).sum()  # one row at a time: no B x B levels in memory
    return total / jnp.float32(n * (n - 1))


@dataclasses.dataclass(frozen=True)
class Teacher:
    """Levels designed by a teacher that is paid for what the students make of them."""

    score: Annotated[str, SCORES] = "relative_regret"
    """What the teacher is paid on the last step of a design, by name."""
    design: Annotated[Any, TEACHERS] = OwnTeacher()
    """The environment in which the teacher designs levels; auto: the one that is registered with the students'."""
    model: Annotated[Any, MODELS] = LSTM(conv_filters=128, embedding_width=10)
    """The teacher's network."""
    ppo: PPO = PPO(entropy_coef=0.05)
    """How the teacher learns. The default entropy bonus is the high one of Mediratta et al. 2023."""

    def __post_init__(self) -> None:
        SCORES[self.score]  # ValueError for an unknown name
        if self.ppo.ema_decay:
            raise ValueError(
                f"teacher.ppo.ema_decay is {self.ppo.ema_decay}: it must be 0 for a teacher, which is never evaluated "
                "(--ppo.ema-decay is the students')"
            )

    def build(self, env: Environment, agent: AgentPop, n_rows: int, n_rollouts: int = 1) -> Curriculum:
        """The curriculum, whose batches are played in `n_rollouts` each.

        ValueError where the teacher, the students and the environment do not fit together.
        """
        check_score("the teacher's score", self.score, env.action_space, agent.n, agent.n_values)
        pair = UEDEnvironment(env, self.design.build(unwrapped(env)))
        network = self.model.build(pair.teacher.observation_space, pair.teacher.action_space)
        check_network(network, self.model)
        # The students learn after every rollout, the teacher after every batch. Its schedule ends with the run too.
        n_updates = agent.n_total_updates and max(agent.n_total_updates // n_rollouts, 1)
        teacher = AgentPop(PPOAgent(network, self.ppo, n_updates))
        try:
            teacher.check_batch(n_rows, pair.teacher.max_steps)
        except ValueError as error:
            raise ValueError(f"the teacher's {error}") from None
        return DesignedLevels(BatchUEDEnv(pair, agent.n), teacher, n_rows, SCORES[self.score])


@dataclasses.dataclass(frozen=True)
class PAIRED(RestartedRollouts):
    """PAIRED: a teacher designs every level and is paid the regret of two students (protagonist, antagonist).

    With `teacher.score` population_regret and 2 or more `n_students`, this is population PAIRED. With neg_return and
    one student, it is the minimax adversary. The first student is the one that is evaluated.
    """

    n_students: int = 2
    """Students that play every level side by side."""
    teacher: Teacher = Teacher()
    """The teacher, which designs the levels."""

    def build(self, env: Environment, agent: AgentPop, n_rows: int) -> Curriculum:
        return self.teacher.build(env, agent, n_rows, self.n_rollouts(env.max_steps))


def with_own_teacher(settings: Any, env: Environment) -> Any:
    """`settings` and the groups in it, with the teacher that is registered with `env` in place of "auto"."""
    if isinstance(settings, OwnTeacher):
        return teacher_of(env) or settings
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings) if field.init}
    groups = {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}
    found = {name: with_own_teacher(value, env) for name, value in groups.items()}
    changes = {name: value for name, value in found.items() if value is not groups[name]}
    return dataclasses.replace(settings, **changes) if changes else settings

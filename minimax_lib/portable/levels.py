"""PLR and ACCEL over levels, for other people's training.

host = LevelHost(ACCELSettings(capacity=500), env, n_rows=16)
levels, train = host.propose()[:2]                  a level for each row, and which rows to learn from
host.report(reward, value, done, last_value)        what became of them
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from minimax_lib.curricula.base import Curriculum, LevelBatch
from minimax_lib.curricula.level_buffer.buffer import LevelBuffer
from minimax_lib.curricula.scores import SCORES, Score
from minimax_lib.curricula.settings import CurriculumSettings
from minimax_lib.envs.base import Environment, Level
from minimax_lib.envs.given import check_levels
from minimax_lib.envs.restarts import QueuedLevels
from minimax_lib.messages import shown
from minimax_lib.portable import level_programs as programs
from minimax_lib.portable.forks import refuse_copies
from minimax_lib.portable.host_programs import cpu
from minimax_lib.portable.host_state import Saved, flat, sealed, settings
from minimax_lib.portable.level_programs import Told, Trainer
from minimax_lib.portable.numbers import checked, checked_count, checked_seed
from minimax_lib.trees import parts_of, zeros


class Proposal(NamedTuple):
    """Levels for the B rows of a rollout, as NumPy arrays."""

    levels: Level  # [B, ...]
    train: np.ndarray  # bool[B], whether to learn from the row
    source: np.ndarray  # i32[B], NEW, REPLAY or MUTATION of `curricula.base`


class LevelHost:
    """A curriculum over levels outside of compiled training: it proposes levels, and is told what became of them.

    `curriculum` has the settings of one of this package (`PLRSettings`, `ACCELSettings`, or one of yours), and `env` is
    the environment of this package whose levels they are. It makes and mutates levels here, and is never stepped. So
    your environment may be any that can build these levels. All is computed on the CPU.

    Each rollout begins with a reset of all rows to the levels proposed. A row that ends an episode begins the next one
    on the same level. `gamma` and `gae_lambda` are those of the trainer; scores are made with them.
    """

    def __init__(
        self,
        curriculum: CurriculumSettings,
        env: Environment,
        n_rows: int,
        seed: int = 0,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
    ):
        refuse_copies()
        n_rows, seed = checked_count("n_rows", n_rows), checked_seed(seed)
        if isinstance(curriculum, type) or not hasattr(curriculum, "build"):
            raise ValueError(
                f"curriculum is {shown(curriculum)}: it must be the settings of one over levels, such as PLRSettings()"
            )
        if not isinstance(env, Environment):
            raise ValueError(f"env is {shown(env)}: it must be an environment, such as make_env('AMaze')")
        self.env, self.trainer = env, Trainer(gamma, gae_lambda)
        self.curriculum = curriculum.build(env, programs.student(self.trainer), n_rows)
        check_curriculum(self.curriculum, env)
        self._settings = settings("curriculum", curriculum) | settings("env", env) | settings("trainer", self.trainer)
        self._settings |= {"n_rows": repr(n_rows), "seed": repr(seed)}
        with jax.default_device(cpu()):
            k_init, k_steps = jax.random.split(jax.random.key(seed))
        self._key = jax.device_put(k_steps, cpu())
        clock = np.int32(0)
        # An impossible curriculum is refused before anything is compiled.
        begun = jax.eval_shape(lambda key: self.curriculum.init(key), k_init)
        self._form = jax.eval_shape(lambda *given: programs.propose(self.curriculum, *given), k_steps, clock, begun)[1]
        self._state = programs.begin(self.curriculum, jax.device_put(k_init, cpu()))
        self._batch: LevelBatch | None = None  # that is proposed and not reported yet
        self.n_reported = 0  # rollouts so far

    @property
    def n_rows(self) -> int:
        """B, levels of a proposal: those asked for, and more where replayed and new ones are played side by side."""
        return self.curriculum.plan.n_rows

    def propose(self) -> Proposal:
        """The levels of the next rollout.

        ValueError if the last one was not reported, or if one is no level of `env`.
        """
        if self._batch is not None:
            raise ValueError("levels are proposed, and nothing was reported of them: call report after each rollout")
        clock = np.int32(self.n_reported)
        state, batch = programs.propose(self.curriculum, self._key, clock, self._state)
        levels, source = jax.tree.map(np.array, (batch.levels, batch.source))
        check_levels(self.env, levels)  # a generator may be somebody else's
        self._state, self._batch = state, batch
        n_learnt = self.curriculum.plan.n_train_rows
        train = np.arange(self.n_rows) < (self.n_rows if n_learnt is None else n_learnt)
        return Proposal(levels, train & np.asarray(batch.train), source)

    def report(
        self, reward: Any, value: Any, done: Any, last_value: Any, counts: Any = None, progress: Any = None
    ) -> dict[str, float]:
        """T steps of the B rows on the levels proposed have been played. Returns numbers for the trainer's log.

        All are [T, B]. `value` is of the observation before the action, and `done` says that the episode ended with the
        action. (In many trainers, the flag of step t says that observation t opens an episode. That is one step later.)
        `last_value` [B] is of the observation after the last action. `counts` is False where a step only opened an
        episode. `progress` is read where an episode ends, and 1 means solved; without it, a return above 0 does.
        Rewards are the environment's own.
        """
        if self._batch is None:
            raise ValueError("a rollout was reported, and no levels are proposed for it: call propose before it")
        done = self._checked("done", np.asarray(done, bool), np.shape(done)[:1])
        rollout = done.shape[:1]
        if rollout == (0,):
            raise ValueError(f"done is {list(done.shape)}: a rollout has at least one step")
        told = Told(
            reward=self._checked("reward", checked("reward", reward), rollout),
            value=self._checked("value", checked("value", value), rollout),
            done=done,
            last_value=self._checked("last_value", checked("last_value", last_value), ()),
            progress=None
            if progress is None
            else self._checked("progress", checked("progress", progress, None, 0, 1), rollout),
        )
        if counts is not None:
            told = without_openings(told, self._checked("counts", np.asarray(counts, bool), rollout))
        given = self._key, np.int32(self.n_reported), self._state, self._batch, told
        self._state, metrics = programs.observe(self.curriculum, (self.env, self.trainer), *given)
        self._batch, self.n_reported = None, self.n_reported + 1
        return {name: float(x) for name, x in metrics.items()}

    def state_dict(self) -> dict[str, np.ndarray]:
        """All that a later proposal depends on, as NumPy arrays by name: for `numpy.savez(file, **host.state_dict())`.

        Between `propose` and `report`, the levels proposed are part of it.
        """
        arrays = flat("state", self._state) | flat("n", {"reported": np.array(self.n_reported)})
        batch = {} if self._batch is None else flat("batch", self._batch)
        return sealed(self._settings, arrays | batch)

    def load_state_dict(self, arrays: Mapping[str, Any]) -> None:
        """Goes on from `state_dict`. ValueError in one line if it is another's or damaged; then nothing changes."""
        saved = Saved(arrays, self._settings)
        state, n_reported = saved.take("state", self._state), saved.count("n['reported']")
        batch = saved.take("batch", zeros(self._form)) if saved.has("batch") else None
        saved.done()
        for buffer in parts_of(state, LevelBuffer):
            filled = np.asarray(buffer.filled)
            check_levels(self.env, jax.tree.map(lambda x, filled=filled: np.asarray(x)[filled], buffer.levels))
        if batch is not None:
            check_levels(self.env, batch.levels)
        self._state, self._batch = jax.device_put((state, batch), cpu())
        self.n_reported = n_reported

    def _checked(self, name: str, array: np.ndarray, steps: tuple[int, ...]) -> np.ndarray:
        """`array`, which must be [*steps, B]. ValueError in one line if it is not."""
        if array.shape != (*steps, self.n_rows):
            raise ValueError(f"{name} is {list(array.shape)}: it must be {[*steps, self.n_rows]}, with a column a row")
        return array


def check_curriculum(curriculum: Curriculum, env: Environment) -> None:
    """ValueError in one line where a trainer's rollouts on levels of `env` are not enough for `curriculum`."""
    if isinstance(curriculum.plan.restart, QueuedLevels):
        raise ValueError("the curriculum changes levels within a rollout: choose plr or accel, or a Host for tasks")
    for score in curriculum.plan.scores:
        if reads_more(score):
            able = [name for name in SCORES.names() if not reads_more(SCORES[name])]
            named = next((name for name in SCORES.names() if SCORES[name] == score), "one of yours")
            raise ValueError(
                f"the score is {named!r}, which reads more than rewards, values and ends: choose from {', '.join(able)}"
            )
        if score.needs_optimum and env.optimal_return is None:
            raise ValueError(
                f"a score needs the method optimal_return, and {type(env).__name__} has none: write it, or choose "
                "another score, such as max_mc"
            )


def reads_more(score: Score) -> bool:
    """Whether one rollout of one student, without its network, is not enough."""
    one = max(score.n_students, score.n_values, score.n_evals) == 1
    return score.needs_network or score.needs_update or score.model is not None or not one


def without_openings(told: Told, counts: np.ndarray) -> Told:
    """The rollout with the steps that do not count [T, B] at its end, as an episode that never ends."""
    order = np.argsort(~counts, axis=0, kind="stable")

    def moved(x: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x, order, axis=0)

    done = told.done & counts
    progress = None if told.progress is None else moved(told.progress)
    # A score is over finished episodes. So it does not matter what is behind the last of them.
    return told.replace(
        reward=moved(np.where(counts, told.reward, np.float32(0))),
        value=moved(told.value),
        done=moved(done),
        progress=progress,
    )

"""A student's environment and the MDP in which a teacher designs its levels, as one underspecified environment."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from minimax_lib.envs.base import Environment, EnvState, Level, TimeStep
from minimax_lib.envs.batch import BatchEnv, BatchState, BatchTimeStep
from minimax_lib.envs.restarts import FreshLevels, NoRestart, SameLevel


class TeacherEnvironment(Environment):
    """An environment whose episodes design a level of another one (a teacher MDP, Dennis et al. 2020).

    It pays nothing: the worth of a design is not known before students have played it. A finished episode stays
    as it is, whatever is done next. Check your own with `minimax_lib.testing.envs.check_teacher`.
    """

    def to_level(self, state: EnvState) -> Level:
        """The level that has been designed; valid once the episode is over, whatever the actions were."""
        ...


@contextlib.contextmanager
def designing(design: Any, env: Environment, kind: type) -> Iterator[None]:
    """Around the making of a teacher of `env` from the settings `design`: its errors name those settings.

    ValueError if the environment is not of the `kind` whose levels they design.
    """
    if not isinstance(env, kind):
        raise ValueError(
            f"{type(design).__name__} designs levels of {kind.__name__}, not of {type(env).__name__} "
            "(teacher.design=auto is the teacher that is registered with the environment)"
        )
    try:
        yield
    except ValueError as error:
        raise ValueError(f"design.{error}") from None  # the message begins with the setting's name


@dataclasses.dataclass(frozen=True)
class UEDEnvironment:
    """The pair, for one instance; ValueError where the teacher designs levels of another kind or size."""

    student: Environment
    teacher: TeacherEnvironment

    def __post_init__(self) -> None:
        def design(key: jax.Array) -> Level:
            k_canvas, k_reset = jax.random.split(key)
            return self.teacher.to_level(self.teacher.reset(k_reset, self.teacher.sample_level(k_canvas))[0])

        # Shapes and types tell whether the two fit. So nothing has to be played or compiled.
        designed, played = (describe(jax.eval_shape(f, jax.random.key(0))) for f in (design, self.student.sample_level))
        if designed != played:
            raise ValueError(
                f"{type(self.teacher).__name__} designs levels {designed}, "
                f"but {type(self.student).__name__} plays levels {played}"
            )

    def reset_student(self, key: jax.Array, design: EnvState) -> tuple[EnvState, TimeStep]:
        """Starts a student on the level of a finished `design`, a state of the teacher."""
        return self.student.reset(key, self.teacher.to_level(design))


def describe(level: Any) -> str:
    """The kind of a level, for people: its type, and the type and shape of every part."""
    parts = jax.tree_util.tree_leaves_with_path(level)
    named = (f"{jax.tree_util.keystr(path, simple=True)} {x.dtype}{list(x.shape)}" for path, x in parts)
    return f"{type(level).__name__}({', '.join(named)})"


@dataclasses.dataclass(frozen=True)
class BatchUEDEnv:
    """Teachers that design B levels, and A students that play each of them `n_evals` times: [A, B * n_evals].

    Both sides are a `BatchEnv`. An episode of `teacher` [1, B] designs one level, and no other episode follows it.
    """

    env: UEDEnvironment
    n_students: int = 1
    n_evals: int = 1
    restart: SameLevel | FreshLevels | NoRestart = SameLevel()

    @property
    def teacher(self) -> BatchEnv:
        # A new episode would wipe out the design before the students can play it.
        return BatchEnv(self.env.teacher, restart=NoRestart())

    @property
    def student(self) -> BatchEnv:
        return BatchEnv(self.env.student, self.n_students, self.n_evals, self.restart)

    def canvases(self, key: jax.Array, n: int) -> Level:
        """What `n` designs start from, levels [n, ...] of the teacher."""
        return jax.vmap(self.env.teacher.sample_level)(jax.random.split(key, n))

    def designs(self, state: BatchState) -> Level:
        """The levels [B, ...] that the teachers have designed when all their episodes are over."""
        return jax.vmap(self.env.teacher.to_level)(state.env)

    def reset_student(self, key: jax.Array, state: BatchState) -> tuple[BatchState, BatchTimeStep]:
        """Starts all students on the teachers' designs."""
        return self.student.reset(key, self.designs(state))

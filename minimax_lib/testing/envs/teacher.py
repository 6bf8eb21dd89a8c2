"""What every teacher must do."""

import jax
import numpy as np

from minimax_lib.envs.base import Level
from minimax_lib.envs.spaces import sample_allowed
from minimax_lib.envs.ued import BatchUEDEnv, UEDEnvironment
from minimax_lib.testing.envs.environment import check_environment
from minimax_lib.testing.envs.parts import require, same_levels


def check_teacher(pair: UEDEnvironment, key: jax.Array, n_rows: int = 8) -> None:
    """Raises AssertionError, in a sentence, where the teacher of `pair` could not design levels for its student.

    The teacher is checked as an environment, then designs `n_rows` levels by random actions, which are to be levels
    that the student can be started on.
    """
    teacher, student = pair.teacher, pair.student
    check_environment(teacher, key, n_rows)
    batch_env = BatchUEDEnv(pair)

    def design(key: jax.Array) -> tuple[jax.Array, Level, Level, Level]:
        k_canvas, k_reset, k_steps, k_student = jax.random.split(key, 4)
        state, ts = batch_env.teacher.reset(k_reset, batch_env.canvases(k_canvas, n_rows))

        def one_step(loop: tuple, key: jax.Array) -> tuple[tuple, jax.Array]:
            state, obs = loop
            k_action, k_step = jax.random.split(key)
            allowed = jax.vmap(lambda key, obs: sample_allowed(teacher.action_space, key, obs))
            rows = jax.tree.map(lambda x: x[0], obs)  # a population of one
            action = jax.tree.map(lambda x: x[None], allowed(jax.random.split(k_action, n_rows), rows))
            state, ts = batch_env.teacher.step(k_step, state, action)
            return (state, ts.obs), ts.reward

        keys = jax.random.split(k_steps, teacher.max_steps)
        (state, obs), rewards = jax.lax.scan(one_step, (state, ts.obs), keys)
        designed = batch_env.designs(state)
        (later, _), _ = one_step((state, obs), k_steps)
        started, _ = batch_env.reset_student(k_student, state)
        played = jax.tree.map(lambda x: x[0], batch_env.student.levels(started))
        return rewards, designed, batch_env.designs(later), played

    rewards, designed, later, played = jax.device_get(jax.jit(design)(key))
    name = type(teacher).__name__
    require(not np.any(rewards), f"{name} pays a reward: what a design is worth is known when students have played it")
    same_levels(designed, later, f"{name} changes a design that is finished")
    same_levels(designed, played, f"{type(student).__name__} is started on another level than {name} has designed")

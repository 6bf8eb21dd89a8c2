"""The fixed list of levels that a run may be trained on, as held-out tasks for its evaluation.

The list of n levels of an environment is the same for every run, so that a name says all: "TrainingListN" is a
random level of the first N for each episode. If these have several difficulties (a level metric), it is a group:
"TrainingListN-0", "TrainingListN-1", and so on, one for each.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.base import Level
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.task_names import LIST

OF_RUN = "training_list"  # the list of a run, whose length is that of its runner
DIFFICULTY = "difficulty"  # the level metric
MOST_LEVELS = 2**24


def list_called(n_levels: int) -> str:
    """The name of the held-out tasks on a list of so many levels."""
    return f"TrainingList{n_levels}"


def tasks_on_list(env: Any, name: str) -> tuple[str, ...]:
    """The held-out tasks that the name of a list, or of one of its difficulties, stands for; ValueError for none."""
    n_levels, chosen = _parts(name)
    if not 1 <= n_levels <= MOST_LEVELS:
        raise ValueError(f"held-out task {name!r}: a list must have at least 1 and at most {MOST_LEVELS} levels")
    found = sorted(set(difficulties(env, n_levels).tolist()))
    known = [f"{list_called(n_levels)}-{i}" for i in found] if len(found) > 1 else [list_called(n_levels)]
    if chosen is None:
        return tuple(known)
    if name not in known:
        raise ValueError(f"held-out task {name!r}: the levels of this list are called {', '.join(known)}")
    return (name,)


def sampler_of(env: Any, name: str) -> Callable[[jax.Array], Level]:
    """What draws a random level of the list, of the difficulty that the name says."""
    n_levels, chosen = _parts(name)
    numbers = np.arange(n_levels, dtype=np.int32)
    if chosen is not None:
        numbers = numbers[difficulties(env, n_levels) == chosen]

    def sample_level(key: jax.Array) -> Level:
        place = jax.random.randint(key, (), 0, len(numbers))
        return level_of_list(env, jnp.asarray(numbers)[place])

    return sample_level


def _parts(name: str) -> tuple[int, int | None]:
    """(levels of the list, the difficulty)"""
    found = LIST.fullmatch(name)
    assert found
    return int(found[1]), None if found[2] is None else int(found[2])


@functools.lru_cache(maxsize=8)
def difficulties(env: Any, n_levels: int) -> np.ndarray:
    """i32[n_levels], the difficulty of each level of the list; 0 if there is no such metric of whole numbers."""
    level = jax.eval_shape(env.sample_level, jax.eval_shape(lambda: jax.random.key(0)))
    if DIFFICULTY not in jax.eval_shape(env.level_metrics, level):
        return np.zeros(n_levels, np.int32)

    def described(number: jax.Array) -> jax.Array:
        return env.level_metrics(level_of_list(env, number))[DIFFICULTY]

    with jax.ensure_compile_time_eval():  # also where it is asked for while a program is traced
        numbers = jnp.arange(n_levels, dtype=jnp.int32)
        found = np.asarray(jax.jit(jax.vmap(described))(numbers))
    whole = found.astype(np.int32)
    return whole if (whole == found).all() else np.zeros(n_levels, np.int32)

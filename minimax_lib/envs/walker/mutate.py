"""ACCEL's edits of a world of the walker (Parker-Holder et al. 2022, `mutate_level` in dcd)."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.walker.level import FULL, Level, draw_seed, make_level

NUDGES = np.array([0.6, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 1.0], np.float32)  # of each number


def mutate(ranges: np.ndarray, key: jax.Array, level: Level, n_edits: int) -> Level:
    """A child of `level` after `n_edits` edits, with a new seed.

    Each edit chooses one of the numbers that have a range in `ranges` (f32[8, 2]), and adds its nudge, or subtracts it,
    or leaves it. The roughness moves by a random share of its nudge. Numbers stay in the full range, even if random
    levels come from a smaller one.
    """
    k_which, k_direction, k_share, k_seed = jax.random.split(key, 4)
    editable = np.flatnonzero(ranges[:, 0] < ranges[:, 1])
    which = jnp.asarray(editable, jnp.int32)[jax.random.randint(k_which, (n_edits,), 0, len(editable))]
    direction = jax.random.randint(k_direction, (n_edits,), -1, 2).astype(jnp.float32)
    share = jnp.where(which == 0, jax.random.uniform(k_share, (n_edits,), jnp.float32), 1.0)
    steps = direction * share * jnp.asarray(NUDGES)[which]
    low, high = jnp.asarray(FULL[:, 0]), jnp.asarray(FULL[:, 1])

    def edit(numbers: jax.Array, one: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        i, step = one
        return jnp.clip(numbers.at[i].add(step), low, high), None

    numbers = jax.lax.scan(edit, level.numbers, (which, steps))[0]
    return make_level(numbers, draw_seed(k_seed), level.hardcore)

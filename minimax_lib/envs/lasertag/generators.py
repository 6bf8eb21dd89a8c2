"""Random levels."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.lasertag.level import Level


def random_level(key: jax.Array, shape: tuple[int, int], sides: tuple[int, int], shares: tuple[float, float]) -> Level:
    """A square room in the upper left corner of a grid of `shape`, all else walls.

    Its side is uniform in `sides` (both ends are possible), and the share of walls in `shares`. Then each cell is a
    wall with that chance. The two starts are uniform over pairs of different cells, and are not walls. Facings are
    uniform. All free cells are spawns. The starts may not be connected.
    """
    k_side, k_share, k_walls, k_zero, k_one, k_facings = jax.random.split(key, 6)
    side = jax.random.randint(k_side, (), sides[0], sides[1] + 1)
    share = jax.random.uniform(k_share, (), jnp.float32, shares[0], shares[1])
    zero = jax.random.randint(k_zero, (), 0, side * side)
    one = jax.random.randint(k_one, (), 0, side * side - 1)
    one = one + (one >= zero)  # skips the cell of agent 0
    x, y = jnp.stack([zero, one]) % side, jnp.stack([zero, one]) // side
    columns, rows = jnp.arange(shape[1], dtype=jnp.int32), jnp.arange(shape[0], dtype=jnp.int32)
    outside = (columns >= side)[None, :] | (rows >= side)[:, None]
    is_start = jnp.any((columns[None] == x[:, None])[:, None, :] & (rows[None] == y[:, None])[:, :, None], axis=0)
    walls = outside | (jax.random.bernoulli(k_walls, share, shape) & ~is_start)
    facings = jax.random.randint(k_facings, (2,), 0, 4)
    return Level(walls=walls, starts=jnp.stack([x, y], axis=1), facings=facings, spawns=~walls)

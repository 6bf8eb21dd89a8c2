"""Facts about a level."""

import jax
import jax.numpy as jnp
import numpy as np

from minimax_lib.envs.cells.codes import STEPS
from minimax_lib.envs.cells.flood import bit_at, bits_of, moves_between
from minimax_lib.envs.lasertag.level import DRAWN, Level


def level_metrics(level: Level) -> dict[str, jax.Array]:
    """`n_walls`, `connected`, `distance` and `line_of_fire`, f32[] each.

    `n_walls` counts the walls in the smallest rectangle that holds all free cells, so that padding does not count.
    `distance` is the number of moves from start to start over free cells, 0 if there is no way (`connected` is 0).
    `line_of_fire` counts the cells that agent 0 can hit from its start, if it turns. Where the starts are left open,
    they are the first and the last spawn in reading order.
    """
    shape, starts = level.walls.shape, starts_of(level)
    distance, connected = moves_between(
        bit_at(starts[0], shape), bit_at(starts[1], shape), bits_of(~level.walls), shape[1]
    )
    return {
        "n_walls": walls_among(level.walls).astype(jnp.float32),
        "connected": connected.astype(jnp.float32),
        "distance": distance.astype(jnp.float32),
        "line_of_fire": line_of_fire(level.walls, starts[0]).astype(jnp.float32),
    }


def starts_of(level: Level) -> jax.Array:
    """i32[2, 2]: the starts; those that are left open are the first and the last spawn."""
    spawns, width = level.spawns.reshape(-1), level.walls.shape[1]
    cells = jnp.stack([jnp.argmax(spawns), spawns.size - 1 - jnp.argmax(spawns[::-1])]).astype(jnp.int32)
    return jnp.where(level.starts == DRAWN, jnp.stack([cells % width, cells // width], axis=1), level.starts)


def walls_among(walls: jax.Array) -> jax.Array:
    """i32[]: the walls in the smallest rectangle that holds all free cells of bool[h, w]."""

    def between(free: jax.Array) -> jax.Array:
        """bool[n]: the places from the first to the last that is `free`."""
        before, after = jnp.cumsum(free) > 0, jnp.cumsum(free[::-1])[::-1] > 0
        return before & after

    rows, columns = between(~walls.all(axis=1)), between(~walls.all(axis=0))
    return jnp.sum(walls & rows[:, None] & columns[None], dtype=jnp.int32)


def line_of_fire(walls: jax.Array, pos: jax.Array) -> jax.Array:
    """i32[]: the free cells that beams from `pos` (i32[2]) reach, in all four directions."""
    height, width = walls.shape
    distance = np.arange(1, max(height, width), dtype=np.int32)
    cells = pos[None, None] + distance[None, :, None] * jnp.asarray(STEPS, jnp.int32)[:, None]
    inside = jnp.all((cells >= 0) & (cells < jnp.array([[[width, height]]], jnp.int32)), axis=-1)
    free = inside & ~walls.at[cells[..., 1], cells[..., 0]].get(mode="clip")
    return jnp.sum(jnp.cumprod(free, axis=1, dtype=jnp.int32), dtype=jnp.int32)

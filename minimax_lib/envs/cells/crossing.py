"""MiniGrid's crossings: lines across a room, each with one opening."""

import jax
import jax.numpy as jnp
import numpy as np


def n_lines(inner: int) -> int:
    """Lines that fit into a room of `inner` x `inner` cells, both ways together."""
    return 2 * len(_places(inner))


def crossing_lines(key: jax.Array, inner: int, n_crossings: int) -> jax.Array:
    """bool[inner, inner]: `n_crossings` lines without their openings, which are all on one way to the far corner."""
    k_rivers, k_path, k_openings = jax.random.split(key, 3)
    places = _places(inner)
    # One permutation of columns and rows together, so that the number of columns among the lines is random too.
    drawn = jax.random.permutation(k_rivers, 2 * len(places)) < n_crossings
    columns = jnp.zeros(inner, bool).at[places].set(drawn[: len(places)])
    rows = jnp.zeros(inner, bool).at[places].set(drawn[len(places) :])
    # `path`: true where the next line to pass is a column.
    path = jax.random.permutation(k_path, jnp.arange(n_crossings) < columns.sum())
    column, row = passages(k_openings, path, columns, rows)
    return (columns[None, :] | rows[:, None]).at[row, column].set(False)


def _places(inner: int) -> np.ndarray:
    """The columns, or rows, that may be lines. The first and the last one are never among them."""
    return np.arange(1, inner - 1, 2)


def passages(key: jax.Array, path: jax.Array, columns: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(column, row) i32[K]: the openings of the K walls, in the order of `path` from the first room on."""

    def limits(walls: jax.Array) -> jax.Array:
        """The places of the walls in order, with a border before and after them."""
        inner = walls.shape[0]
        # Always K + 1 entries, for any number of columns among the K walls: shapes are fixed.
        found = jnp.nonzero(walls, size=path.shape[0] + 1, fill_value=inner)[0].astype(jnp.int32)
        return jnp.concatenate([jnp.full(1, -1, jnp.int32), found])

    column_limits, row_limits = limits(columns), limits(rows)

    def between(key: jax.Array, limits: jax.Array, room: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), limits[room] + 1, limits[room + 1])

    def pass_wall(room: tuple, step: tuple) -> tuple[tuple, tuple]:
        (i, j), (key, across_column) = room, step
        # Both draws have the same key, but only one of them is used.
        column = jnp.where(across_column, column_limits[i + 1], between(key, column_limits, i))
        row = jnp.where(across_column, between(key, row_limits, j), row_limits[j + 1])
        return (i + across_column, j + ~across_column), (column, row)

    room = (jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    return jax.lax.scan(pass_wall, room, (jax.random.split(key, path.shape[0]), path))[1]

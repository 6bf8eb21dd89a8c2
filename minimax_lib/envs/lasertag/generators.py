"""Random levels."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.cells.flood import bit_at, bits_of, moves_between
from minimax_lib.envs.lasertag.level import Level

N_CORRIDORS = (2, 16)  # in a level of corridors, least and most
WIDE = 0.3  # share of corridors that are halls, 2 to 4 cells wide
ON_THE_WAY = 0.3  # share of corridors that leave the one before between its ends, not at its end
N_CANDIDATES = 12  # cells of which `far_apart` takes two


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


def search_level(key: jax.Array, shape: tuple[int, int], sides: tuple[int, int], shares: tuple[float, float]) -> Level:
    """A level on which the other agent must be searched for: the starts are `far_apart`, with a way between them.

    The walls are those of `random_level` or `corridors`, with equal chances. Where they cut off one start from the
    other, an `elbow` is dug.
    """
    k_room, k_side, k_corridors, k_kind, k_starts = jax.random.split(key, 5)
    room = random_level(k_room, shape, sides, shares)
    side = jax.random.randint(k_side, (), sides[0], sides[1] + 1)
    free = jnp.where(jax.random.bernoulli(k_kind), corridors(k_corridors, shape, side), ~room.walls)
    starts = far_apart(k_starts, free)
    _, connected = moves_between(bit_at(starts[0], shape), bit_at(starts[1], shape), bits_of(free), shape[1])
    # An agent that meets many levels on which it cannot win learns to give up.
    free = free | (elbow(starts, shape) & ~connected)
    return Level(walls=~free, starts=starts, facings=room.facings, spawns=free)


def elbow(ends: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """bool[h, w], a corridor with one bend between two cells (i32[2, 2], [x, y]): along x at first, then along y."""
    x, y = jnp.arange(shape[1], dtype=jnp.int32)[None, :], jnp.arange(shape[0], dtype=jnp.int32)[:, None]
    low, high = jnp.min(ends, axis=0), jnp.max(ends, axis=0)
    along_x = (y == ends[0, 1]) & (low[0] <= x) & (x <= high[0])
    return along_x | ((x == ends[1, 0]) & (low[1] <= y) & (y <= high[1]))


def corridors(key: jax.Array, shape: tuple[int, int], side: jax.Array) -> jax.Array:
    """bool[h, w], the free cells: connected corridors in a square of `side` cells, in turns along x and along y.

    Their number is uniform in `N_CORRIDORS`. Each begins on the one before it, and ends in a uniform other column or
    row.
    """
    k_n, k_begin, k_axis, k_far, k_wide, k_width, k_place, k_leave = jax.random.split(key, 8)
    most = N_CORRIDORS[1]
    n = jax.random.randint(k_n, (), N_CORRIDORS[0], most + 1)
    axes = (jax.random.randint(k_axis, (), 0, 2) + jnp.arange(most)) % 2
    further = jax.random.randint(k_far, (most,), 1, side)  # never 0: then two cells are free in any case
    wider = jnp.where(jax.random.bernoulli(k_wide, WIDE, (most,)), jax.random.randint(k_width, (most,), 1, 4), 0)
    place = jax.random.uniform(k_place, (most,))
    leaves = jax.random.bernoulli(k_leave, ON_THE_WAY, (most,))
    x, y = jnp.arange(shape[1], dtype=jnp.int32)[None, :], jnp.arange(shape[0], dtype=jnp.int32)[:, None]

    def dig(i: jax.Array, dug: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        position, free = dug
        along = jnp.arange(2) == axes[i]
        end = jnp.where(along, (position + further[i]) % side, position)
        low, high = jnp.minimum(position, end), jnp.maximum(position, end)
        high = jnp.minimum(jnp.where(along, high, high + wider[i]), side - 1)
        inside = (low[0] <= x) & (x <= high[0]) & (low[1] <= y) & (y <= high[1])
        between = jnp.round(position + place[i] * (end - position)).astype(jnp.int32)
        return jnp.where(leaves[i], between, end), free | inside

    begin = jax.random.randint(k_begin, (2,), 0, side)
    return jax.lax.fori_loop(0, n, dig, (begin, jnp.zeros(shape, bool)))[1]


def far_apart(key: jax.Array, free: jax.Array) -> jax.Array:
    """i32[2, 2]: of `N_CANDIDATES` random `free` cells (bool[h, w]), the two with most rows and columns between them.

    Two cells at least must be free. Each is as likely the start of agent 0 as of agent 1.
    """
    k_cells, k_order = jax.random.split(key)
    height, width = free.shape
    at_random = jnp.where(free, jax.random.uniform(k_cells, free.shape), -1.0).reshape(-1)
    drawn, cells = jax.lax.top_k(at_random, min(N_CANDIDATES, height * width))
    places = jnp.stack([cells % width, cells // width], axis=1)
    is_free = drawn >= 0
    distance = jnp.abs(places[:, None] - places[None]).sum(axis=-1)
    pair = jnp.argmax(jnp.where(is_free[:, None] & is_free[None], distance, -1))
    starts = places[jnp.stack([pair // len(cells), pair % len(cells)])]
    return jnp.where(jax.random.bernoulli(k_order), starts, starts[::-1])

"""Steps along shortest paths to a goal in view, by a flood of bits.

The reference searches with A* and a limit of 100 nodes. A flood of a 15 x 15 view finds a shortest path about as often
and takes the same time for everybody.
"""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.tables import NPC_DIRECTIONS, STAY, VISION

SIDE = 2 * VISION + 1
ROUNDS = 16
FAR = 2**30  # more than any distance
NOWHERE = STAY  # in place of a direction


def views(windows: jax.Array, position: jax.Array) -> jax.Array:
    """u16[N, 15], the passable tiles round each place (i32[N, 2]): a word for each row, a bit for each column."""
    rows = position[:, 0][:, None] + jnp.arange(-VISION, VISION + 1, dtype=jnp.int32)[None, :]
    return windows[rows, position[:, 1][:, None]]


def beside_middle(words: jax.Array) -> jax.Array:
    """bool[N, 4], the bits north, south, west and east of the middle of views (u16[N, 15])."""
    at = [(VISION + int(row), VISION + int(column)) for row, column in NPC_DIRECTIONS]
    return jnp.stack([(words[:, row] >> column) & 1 for row, column in at], axis=1) == 1


def first_steps(view: jax.Array, goals: jax.Array) -> jax.Array:
    """bool[N, 4], the directions (north, south, west, east) in which a shortest path to the nearest goal begins.

    None where the flood does not get there, or the middle itself is a goal. `goals` are the bits of their tiles,
    u16[N, 15], as in `view`.
    """
    edge = jnp.zeros((len(view), 1), jnp.uint16)

    def one_round(_: int, loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        flood, found = loop
        found = jnp.where(found.any(axis=1)[:, None], found, beside_middle(flood))
        up, down = jnp.concatenate([flood[:, 1:], edge], axis=1), jnp.concatenate([edge, flood[:, :-1]], axis=1)
        return (flood | flood << 1 | flood >> 1 | up | down) & view, found

    start = (goals, jnp.zeros((len(view), 4), bool))
    found = jax.lax.fori_loop(0, ROUNDS, one_round, start)[1]
    return found & ~at_middle(goals)[:, None]


def at_middle(words: jax.Array) -> jax.Array:
    """bool[N], the bit in the middle of views (u16[N, 15])."""
    return (words[:, VISION] >> VISION) & 1 == 1


def step_to(view: jax.Array, offset: jax.Array) -> jax.Array:
    """i32[N], the direction (north, south, west, east) of the next step to a goal; 4: stay.

    `offset` is i32[N, 2], from the middle of the view to the goal. If the flood does not get there, it is the passable
    neighbour with the least L1 distance to the goal.
    """
    row, column = offset[:, 0] + VISION, offset[:, 1] + VISION
    seen = (jnp.abs(offset) <= VISION).all(axis=1)
    bit = jnp.where(seen, jnp.uint16(1) << jnp.clip(column, 0, SIDE - 1).astype(jnp.uint16), jnp.uint16(0))
    goal = jnp.where(jnp.arange(SIDE, dtype=jnp.int32)[None, :] == row[:, None], bit[:, None], jnp.uint16(0))
    found = first_steps(view, goal)
    direction = jnp.where(found.any(axis=1), found.argmax(axis=1), greedy_step(view, offset))
    return jnp.where((offset == 0).all(axis=1), NOWHERE, direction).astype(jnp.int32)


def greedy_step(view: jax.Array, offset: jax.Array) -> jax.Array:
    """i32[N], the direction of the passable neighbour with the least L1 distance to the goal; 4: walled in."""
    open_tiles = beside_middle(view)
    left = jnp.abs(offset[:, None, :] - jnp.asarray(NPC_DIRECTIONS)[None]).sum(axis=-1)
    nearest = jnp.where(open_tiles, left, FAR).argmin(axis=1)
    return jnp.where(open_tiles.any(axis=1), nearest, NOWHERE).astype(jnp.int32)


def wandering(bits: jax.Array, view: jax.Array) -> jax.Array:
    """i32[N], a direction: the first passable one in cyclic order from a random start (u32[N] bits); 4: walled in."""
    open_tiles = beside_middle(view)
    order = (bits[:, None] + jnp.arange(4, dtype=jnp.uint32)[None, :]) % 4
    there = jnp.take_along_axis(open_tiles, order.astype(jnp.int32), axis=1)
    chosen = jnp.take_along_axis(order, there.argmax(axis=1)[:, None], axis=1)[:, 0]
    return jnp.where(open_tiles.any(axis=1), chosen.astype(jnp.int32), NOWHERE)

"""Steps along shortest paths to a goal in view, by a flood of bits.

The reference searches with A* and a limit of 100 nodes. A flood of a 15 x 15 view finds a shortest path about as often
and takes the same time for everybody. Words of many views stand side by side, one row of each view after another:
so each operation works on many views at a time.
"""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.tables import NPC_DIRECTIONS, STAY, VISION

SIDE = 2 * VISION + 1
ROUNDS = 16
FAR = 2**30  # more than any distance
NOWHERE = STAY  # in place of a direction


def views(windows: jax.Array, position: jax.Array) -> jax.Array:
    """u16[15, N], the passable tiles round each place (i32[N, 2]): a word for each row, a bit for each column."""
    rows = position[:, 0][None, :] + jnp.arange(-VISION, VISION + 1, dtype=jnp.int32)[:, None]
    return windows[rows, position[:, 1][None, :]]


def beside_middle(words: jax.Array) -> jax.Array:
    """bool[4, N], the bits north, south, west and east of the middle of views (u16[15, N])."""
    at = [(VISION + int(row), VISION + int(column)) for row, column in NPC_DIRECTIONS]
    return jnp.stack([(words[row] >> column) & 1 for row, column in at]) == 1


def first_steps(view: jax.Array, goals: jax.Array) -> jax.Array:
    """bool[4, N], the directions (north, south, west, east) in which a shortest path to the nearest goal begins.

    None where the flood does not get there, or the middle itself is a goal. `goals` are the bits of their tiles,
    u16[15, N], as in `view`.
    """
    n = view.shape[1]
    edge = jnp.zeros((1, n), jnp.uint16)

    def one_round(_: int, loop: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        flood, found = loop
        found = jnp.where(found.any(axis=0)[None], found, beside_middle(flood))
        up, down = jnp.concatenate([flood[1:], edge]), jnp.concatenate([edge, flood[:-1]])
        return (flood | flood << 1 | flood >> 1 | up | down) & view, found

    start = (goals, jnp.zeros((4, n), bool))
    found = jax.lax.fori_loop(0, ROUNDS, one_round, start)[1]
    return found & ~at_middle(goals)[None]


def first_of(there: jax.Array) -> jax.Array:
    """i32[N], the first direction that is there (bool[4, N]); 3 if none is."""
    return jnp.where(there[0], 0, jnp.where(there[1], 1, jnp.where(there[2], 2, 3))).astype(jnp.int32)


def at_middle(words: jax.Array) -> jax.Array:
    """bool[N], the bit in the middle of views (u16[15, N])."""
    return (words[VISION] >> VISION) & 1 == 1


def step_to(view: jax.Array, offset: jax.Array) -> jax.Array:
    """i32[N], the direction (north, south, west, east) of the next step to a goal; 4: stay.

    `offset` is i32[N, 2], from the middle of the view to the goal. If the flood does not get there, it is the passable
    neighbour with the least L1 distance to the goal.
    """
    row, column = offset[:, 0] + VISION, offset[:, 1] + VISION
    seen = (jnp.abs(offset) <= VISION).all(axis=1)
    bit = jnp.where(seen, jnp.uint16(1) << jnp.clip(column, 0, SIDE - 1).astype(jnp.uint16), jnp.uint16(0))
    goal = jnp.where(jnp.arange(SIDE, dtype=jnp.int32)[:, None] == row[None, :], bit[None, :], jnp.uint16(0))
    found = first_steps(view, goal)
    direction = jnp.where(found.any(axis=0), first_of(found), greedy_step(view, offset))
    return jnp.where((offset == 0).all(axis=1), NOWHERE, direction).astype(jnp.int32)


def greedy_step(view: jax.Array, offset: jax.Array) -> jax.Array:
    """i32[N], the direction of the passable neighbour with the least L1 distance to the goal; 4: walled in."""
    open_tiles = beside_middle(view)
    left = jnp.abs(offset[None] - jnp.asarray(NPC_DIRECTIONS)[:, None, :]).sum(axis=-1)
    left = jnp.where(open_tiles, left, FAR)
    nearest = first_of(left == left.min(axis=0)[None])
    return jnp.where(open_tiles.any(axis=0), nearest, NOWHERE)


def wandering(bits: jax.Array, view: jax.Array) -> jax.Array:
    """i32[N], a direction: the first passable one in cyclic order from a random start (u32[N] bits); 4: walled in."""
    open_tiles = beside_middle(view)
    # Of each direction, how far it is from the start, in the cyclic order.
    turns = (jnp.arange(4, dtype=jnp.uint32)[:, None] - bits[None, :]) % 4
    turns = jnp.where(open_tiles, turns.astype(jnp.int32), 4)
    chosen = first_of(turns == turns.min(axis=0)[None])
    return jnp.where(open_tiles.any(axis=0), chosen, NOWHERE)

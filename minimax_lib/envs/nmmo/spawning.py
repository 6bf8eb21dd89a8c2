"""How NPCs come into the world: candidates, the dangers that dead ones leave, and what a new one is like."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.npcs import AGGRESSIVE, NEUTRAL, PASSIVE
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import NOBODY, Npcs, Queue
from minimax_lib.envs.nmmo.tables import FULL, N_STYLES

CANDIDATES = 25  # of a tick, and of a reset
NEUTRAL_FROM, AGGRESSIVE_FROM = 0.5, 0.8  # dangers
STRENGTH_A_LEVEL = 8
N_BITS = 6  # random words that a candidate takes


def uniform_int(bits: jax.Array, n: jax.Array | int) -> jax.Array:
    """i32[...], uniform in 0 .. n-1, from random words u32[...]. A bias of n / 2^24 is left."""
    return ((bits >> 8).astype(jnp.float32) * 2.0**-24 * n).astype(jnp.int32)


def places(bits: jax.Array, square: Square, danger: jax.Array, has_danger: jax.Array) -> jax.Array:
    """i32[c, 2], where candidates appear: anywhere, or at the distance from a side that a danger says (f32[c])."""
    half = square.centre // 2
    anywhere = square.border + uniform_int(bits[:, :2], square.centre)
    inward = jnp.round(danger * half).astype(jnp.int32)
    reach = half - inward
    along = square.border + half - reach + uniform_int(bits[:, 2], 2 * reach)
    side = bits[:, 3] % 4
    across = jnp.where(side % 2 == 0, square.border + inward, square.border + square.centre - 1 - inward)
    by_row = jnp.stack([across, along], axis=1)
    by_danger = jnp.where(side[:, None] < 2, by_row, by_row[:, ::-1])
    return jnp.where(has_danger[:, None], by_danger, anywhere)


def born(bits: jax.Array, square: Square, position: jax.Array, level_max: int) -> Npcs:
    """New NPCs at these places (i32[c, 2]). They are stronger towards the middle. `bits` is u32[c, 2]."""
    danger = square.danger(position)
    level = (danger * (level_max - 1) + 1).astype(jnp.int32)
    kind = jnp.where(danger >= AGGRESSIVE_FROM, AGGRESSIVE, jnp.where(danger >= NEUTRAL_FROM, NEUTRAL, PASSIVE))
    share = (bits[:, 1] >> 8).astype(jnp.float32) * 2.0**-24
    zero = jnp.zeros_like(level)
    return Npcs(
        position=position,
        alive=jnp.ones(len(position), bool),
        kind=kind.astype(jnp.int32),
        style=uniform_int(bits[:, 0], N_STYLES),
        level=level,
        strength=(STRENGTH_A_LEVEL * (level.astype(jnp.float32) - share)).astype(jnp.int32),
        danger=danger,
        health=zero + FULL,
        gold=level,
        damage=zero,
        attacker=zero + NOBODY,
        last_combat=zero,
        target=zero + NOBODY,
    )


def refilled(
    bits: jax.Array, npcs: Npcs, queue: Queue, square: Square, terrain: jax.Array, level_max: int
) -> tuple[Npcs, Queue]:
    """The NPCs with new ones in free slots, and the queue without the entries used up. `bits` is u32[25, 6].

    Candidates come one after another while slots are free. One on an impassable tile is lost, with the entry of the
    queue that it took.
    """
    n = len(npcs.alive)
    turn = jnp.arange(CANDIDATES, dtype=jnp.int32)
    has_danger = turn < queue.size
    danger = queue.dangers[(queue.first + turn) % n]
    position = places(bits, square, danger, has_danger)
    fits = passable(terrain[position[:, 0], position[:, 1]])
    before = jnp.cumsum(fits) - fits  # candidates that fitted earlier
    considered = before < n - npcs.alive.sum()
    fits &= considered
    # The k-th candidate that fits goes into the k-th free slot.
    candidate = jnp.zeros(CANDIDATES, jnp.int32).at[jnp.where(fits, before, CANDIDATES)].set(turn, mode="drop")
    slot = jnp.cumsum(~npcs.alive) - 1
    filled = ~npcs.alive & (slot < fits.sum())
    new = born(bits[:, 4:], square, position, level_max)
    chosen = candidate[jnp.clip(slot, 0, CANDIDATES - 1)]
    npcs = jax.tree.map(lambda old, x: jnp.where(filled.reshape(-1, *(1,) * (x.ndim - 1)), x[chosen], old), npcs, new)
    used = (considered & has_danger).sum(dtype=jnp.int32)
    return npcs, queue.replace(first=(queue.first + used) % n, size=queue.size - used)


def mourned(queue: Queue, danger: jax.Array, died: jax.Array) -> Queue:
    """The queue with the dangers (f32[N]) of those who died (bool[N]) at its end. One of the edge leaves none."""
    n = len(danger)
    joins = died & (danger > 0)
    place = (queue.first + queue.size + jnp.cumsum(joins) - joins) % n
    dangers = queue.dangers.at[jnp.where(joins, place, n)].set(danger, mode="drop")
    return queue.replace(dangers=dangers, size=queue.size + joins.sum(dtype=jnp.int32))

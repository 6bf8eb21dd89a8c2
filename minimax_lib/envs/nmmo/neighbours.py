"""Which entities an agent is told of."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.tables import REACH, VISION

WORD = 32


def neighbours(position: jax.Array, alive: jax.Array, n_players: int, n_listed: int) -> jax.Array:
    """i16[P, K], the living entities in view of each living player: those in reach first, then by index; -1: none.

    The player itself is among them. `position` is i32[E, 2], players first.
    """
    # Entities along the first axis, players along the second: so all that follows works on many players at a time.
    rows = jnp.abs(position[:, 0][:, None] - position[:n_players, 0][None, :])  # [E, P]
    columns = jnp.abs(position[:, 1][:, None] - position[:n_players, 1][None, :])
    distance = jnp.maximum(rows, columns)
    there = alive[:, None] & alive[None, :n_players]
    close, far = there & (distance <= REACH), there & (distance > REACH) & (distance <= VISION)
    words = jnp.concatenate([packed(close), packed(far)])
    word, place, rank = word_of(words, n_listed)
    entity = place % (len(words) // 2) * WORD + bit_at(word, rank)
    return jnp.where(word == 0, -1, entity).astype(jnp.int16)


def word_of(words: jax.Array, n_listed: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(u32[P, K], i32[P, K], i32[P, K]): where the k-th set bit of each column of `words` (u32[n, P]) is: the word, its
    place, and how many bits of it come before. Beyond the last bit, the word is 0.
    """
    # To select with a sort costs many times as much as to count the bits of a few words.
    counts = jax.lax.population_count(words).astype(jnp.int32)
    before = jnp.cumsum(counts, axis=0) - counts
    k = jnp.arange(n_listed, dtype=jnp.int32)[None, None, :]
    there = (before[..., None] <= k) & (k < (before + counts)[..., None])  # [n, P, K], at most one of n
    number = jnp.arange(len(words), dtype=jnp.int32)[:, None, None]
    word = jnp.where(there, words[..., None], jnp.uint32(0)).sum(axis=0, dtype=jnp.uint32)
    place = jnp.where(there, number, 0).sum(axis=0, dtype=jnp.int32)
    return word, place, k[0] - jnp.where(there, before[..., None], 0).sum(axis=0, dtype=jnp.int32)


def bit_at(word: jax.Array, rank: jax.Array) -> jax.Array:
    """i32[...], the place of the set bit of `word` (u32[...]) that has `rank` (i32[...]) set bits below it."""
    place = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):  # halves the bits in which it may be
        low = (word >> place.astype(jnp.uint32)) & jnp.uint32((1 << width) - 1)
        n_low = jax.lax.population_count(low).astype(jnp.int32)
        above = rank >= n_low
        place, rank = place + jnp.where(above, width, 0), rank - jnp.where(above, n_low, 0)
    return place


def packed(there: jax.Array) -> jax.Array:
    """u32[E / 32, P], the bits of each column (bool[E, P]), the first one lowest."""
    wide = jnp.pad(there, ((0, -len(there) % WORD), (0, 0))).reshape(-1, WORD, there.shape[1])
    bits = jnp.left_shift(jnp.uint32(1), jnp.arange(WORD, dtype=jnp.uint32))
    return jnp.where(wide, bits[None, :, None], jnp.uint32(0)).sum(axis=1, dtype=jnp.uint32)

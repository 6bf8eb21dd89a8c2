"""Which entities an agent is told of."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.tables import REACH, VISION

WORD = 32


def neighbours(position: jax.Array, alive: jax.Array, n_players: int, n_listed: int) -> jax.Array:
    """i16[P, K], the living entities in view of each living player: those in reach first, then by index; -1: none.

    The player itself is among them. `position` is i32[E, 2], players first.
    """
    distance = jnp.abs(position[:n_players, None, :] - position[None]).max(axis=-1)  # [P, E]
    there = alive[None, :] & alive[:n_players, None]
    close, far = there & (distance <= REACH), there & (distance > REACH) & (distance <= VISION)
    # Selecting with a sort costs fifty times as much as taking the lowest bit of a few words K times.
    words = jnp.concatenate([packed(close), packed(far)], axis=1)
    n_words = words.shape[1] // 2
    number = jnp.arange(2 * n_words, dtype=jnp.int32)

    def next_one(words: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        first = (words != 0).argmax(axis=1)
        word = jnp.take_along_axis(words, first[:, None], axis=1)[:, 0]
        bit = jax.lax.population_count((word & (~word + 1)) - 1).astype(jnp.int32)
        entity = jnp.where(word == 0, -1, first.astype(jnp.int32) % n_words * WORD + bit)
        return jnp.where(number[None, :] == first[:, None], words & (words - 1), words), entity.astype(jnp.int16)

    return jax.lax.scan(next_one, words, None, length=n_listed)[1].T


def packed(there: jax.Array) -> jax.Array:
    """u32[P, E / 32], the bits of each row (bool[P, E]), the first one lowest."""
    wide = jnp.pad(there, ((0, 0), (0, -there.shape[1] % WORD))).reshape(len(there), -1, WORD)
    bits = jnp.left_shift(jnp.uint32(1), jnp.arange(WORD, dtype=jnp.uint32))
    return jnp.where(wide, bits[None, None, :], jnp.uint32(0)).sum(axis=-1, dtype=jnp.uint32)

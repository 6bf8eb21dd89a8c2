"""Many booleans as the bits of a few words."""

import jax
import jax.numpy as jnp
import numpy as np

WORD = 32  # bits


def to_words(bits: jax.Array, per_word: int = WORD) -> jax.Array:
    """u32[ceil(n / per_word)] from bool[n]: element i is bit i % per_word of word i // per_word."""
    n_words = -(-bits.size // per_word)
    padded = jnp.pad(bits, (0, n_words * per_word - bits.size)).reshape(n_words, per_word)
    # Each bit is a different power of two, so the sum is their union. XLA computes a sum only once.
    return jnp.sum(padded.astype(jnp.uint32) << np.arange(per_word, dtype=np.uint32)[None], axis=1, dtype=jnp.uint32)


def one_bit(index: jax.Array, n_words: int) -> jax.Array:
    """u32[n_words] with bit `index` set."""
    bit = jnp.left_shift(jnp.uint32(1), (index % WORD).astype(jnp.uint32))
    return jnp.where(np.arange(n_words, dtype=np.int32) == index // WORD, bit, jnp.uint32(0))


def shift(words: jax.Array, by: int) -> jax.Array:
    """The string of bits, moved `by` places up (down if negative). Zeros come in."""
    # `divmod` rounds down, so `part` is never negative: a move down is a move up from the word below.
    whole, part = divmod(by, WORD)
    low = _move(words, whole)
    return low if part == 0 else (low << part) | (_move(words, whole + 1) >> (WORD - part))


def _move(words: jax.Array, by: int) -> jax.Array:
    """`words`, moved `by` places up (down if negative). Zeros come in."""
    gap = jnp.zeros(min(abs(by), words.size), jnp.uint32)
    return jnp.concatenate([gap, words[: max(words.size - by, 0)]] if by >= 0 else [words[-by:], gap])


def reverse(words: jax.Array, n_bits: int) -> jax.Array:
    """u32: the lowest `n_bits` of each word in the opposite order. All higher bits must be 0, and stay 0."""
    # Neighbours change places, then pairs, then fours, and so on. That is five steps for any number of bits.
    for by, low in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        words = ((words >> by) & np.uint32(low)) | ((words & np.uint32(low)) << by)
    return words >> (WORD - n_bits)

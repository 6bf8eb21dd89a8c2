"""Fingerprints of levels: short hashes that are compared in place of the levels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def fingerprint(identity: Any) -> jax.Array:
    """u32[2], a hash of all leaves of the pytree `identity`.

    It has 64 bits, so that a billion different levels most likely have different ones. It consists of two multilinear
    hashes (sums of products with random odd multipliers, modulo 2**32) of scrambled words.
    """
    words = jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(identity)])
    salt, first, second = _scrambled(np.arange(3 * len(words), dtype=np.uint32)).reshape(3, -1)
    # The words of a maze are mostly 0 and 1. Multiplied as they are, the lowest bit of each sum would only tell whether
    # the number of odd words is odd. Scrambled with a salt for each place, they are numbers without a pattern.
    scrambled = _scrambled(words ^ salt)
    # Odd multipliers (m | 1) lose nothing modulo 2**32: if a single word differs, both sums differ. One sum would not
    # do: a million new levels, each compared with 4000 slots, would meet about one false match in 32 bits.
    return jnp.stack([jnp.sum(scrambled * (m | 1), dtype=jnp.uint32) for m in (first, second)])


def _words(leaf: jax.Array) -> jax.Array:
    """u32[n], one word for each element, which has 32 bits at most."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        # The bits are read, since a conversion to integers would drop the fraction. But -0.0 and 0.0 are equal and
        # have different bits. (Adding 0.0 would do in theory. XLA takes such a sum for the number itself.)
        number = leaf.astype(jnp.float32)
        leaf = jax.lax.bitcast_convert_type(jnp.where(number == 0.0, 0.0, number), jnp.uint32)
    return leaf.astype(jnp.uint32).reshape(-1)


def _scrambled(words: Any) -> Any:
    """u32[n], `words` with their bits mixed by a bijection, the finaliser of MurmurHash3 (Appleby 2011)."""
    words = (words ^ (words >> 16)) * np.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * np.uint32(0xC2B2AE35)
    return words ^ (words >> 16)

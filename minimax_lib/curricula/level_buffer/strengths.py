"""How a score becomes a strength, from which the replay weight is made: one function for each prioritisation."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

# (merits f32[C], ranks i32[C] from 1, n_filled i32[], temperature) -> (strengths f32[C], f32[] their total).
# The total is over the filled slots. What free slots get does not matter: `weight_parts` sets it to 0.
Strength = Callable[[jax.Array, jax.Array, jax.Array, float], tuple[jax.Array, jax.Array]]


def by_rank(
    merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """(1 / rank) ** (1 / temperature), and the total over the filled slots."""
    capacity = len(ranks)
    # The ranks are always 1 to C, whatever the scores are. So the powers and their running totals are constants:
    # NumPy computes them in float64, once, while JAX traces.
    table = np.arange(1.0, capacity + 1.0) ** (-1.0 / temperature)
    totals = np.concatenate([[0.0], np.cumsum(table)])
    # At a low temperature the last powers are 0 in float32. The floor still falls from rank to rank, so that an
    # eviction can tell the lower of two scores. It is far too small to matter for a draw.
    floor = np.arange(capacity, 0.0, -1.0) * 1e-30
    strengths = jnp.asarray(np.maximum(table, floor), jnp.float32)[ranks - 1]
    # Free slots have the last ranks, so that the filled ones have ranks 1 to n_filled.
    return strengths, jnp.asarray(totals, jnp.float32)[n_filled]


def by_score(
    merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """max(score, 0) ** (1 / temperature) in some unit, which is the merit, and the total. Free slots have merit 0."""
    return merits, merits.sum()


def by_best(
    merits: jax.Array, ranks: jax.Array, n_filled: jax.Array, temperature: float
) -> tuple[jax.Array, jax.Array]:
    """1 for the highest score and 0 for the others, and the total, 1."""
    return (ranks == 1).astype(jnp.float32), jnp.float32(1)


STRENGTHS: dict[str, Strength] = {"rank": by_rank, "proportional": by_score, "greedy": by_best}

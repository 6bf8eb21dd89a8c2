"""A recurrent network over a sequence, with the memory cleared where episodes start."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib.trees import tree_where

Gates = Callable[[jax.Array, jax.Array, Any], Any]  # (inputs [R, G], recurrent product [R, G], carry) -> carry


def cleared(first: jax.Array, carry: Any) -> Any:
    """The carry, zero in the rows where an episode starts."""
    return tree_where(first, jax.tree.map(jnp.zeros_like, carry), carry)


def recur(
    gates: Gates, unroll: int, kernel: jax.Array, inputs: jax.Array, first: jax.Array, carry: Any
) -> tuple[jax.Array, Any]:
    """(hidden [T, R, H], carry after the last step)."""

    def step(carry: Any, x: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
        inputs_t, first_t = x
        carry = cleared(first_t, carry)
        carry = gates(inputs_t, carry.hidden @ kernel, carry)
        return carry, carry.hidden

    carry, hidden = jax.lax.scan(step, carry, (inputs, first), unroll=unroll)
    return hidden, carry

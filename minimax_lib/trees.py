"""Small helpers on pytrees whose leaves share a leading axis."""

from typing import Any

import jax
import jax.numpy as jnp


def tree_size(tree: Any) -> int:
    """Length of the leading axis."""
    return int(jax.tree.leaves(tree)[0].shape[0])


def tree_where(predicate: jax.Array, on_true: Any, on_false: Any) -> Any:
    """`jnp.where` leaf by leaf; `predicate` is broadcast over the trailing axes of each leaf."""

    def pick(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(predicate.reshape(predicate.shape + (1,) * (x.ndim - predicate.ndim)), x, y)

    return jax.tree.map(pick, on_true, on_false)

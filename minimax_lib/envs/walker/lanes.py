"""A batch of walkers as the last axis, which is what vector units of a processor are made for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def batch_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose `jax.vmap` calls it once with arrays whose last axis is the batch.

    `jax.vmap` itself puts the batch first. Then the innermost loops of a CPU are as long as a vector: two numbers. With
    the batch last, they are as long as the batch. The function must take axes from the front alone, and shape its
    constants by `constant`. All its arguments are arrays, or trees of them. It has no gradient.
    """
    called = jax.custom_batching.custom_vmap(function)

    @called.def_vmap
    def of_batch(size: int, is_batched: Any, *args: Any) -> tuple[Any, Any]:
        def last(x: jax.Array, has_batch: bool) -> jax.Array:
            return jnp.moveaxis(x, 0, -1) if has_batch else jnp.broadcast_to(x[..., None], (*x.shape, size))

        found = called(*jax.tree.map(last, args, tuple(is_batched)))  # one more vmap around adds one more axis
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found), jax.tree.map(lambda _: True, found)

    return called


def constant(values: np.ndarray, like: jax.Array, n_own: int) -> jax.Array:
    """`values` with as many axes of length 1 behind as `like` has axes of batches: those after its first `n_own`."""
    return jnp.asarray(values.reshape(*values.shape, *(1,) * (like.ndim - n_own)))

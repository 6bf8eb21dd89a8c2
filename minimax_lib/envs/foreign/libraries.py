"""Help for environments of other libraries: the types of states stay the same."""

from typing import Any

import jax
import jax.numpy as jnp


def with_types_of(tree: Any, like: Any) -> Any:
    """`tree` in the dtypes of `like`, none of them weak.

    The state after a foreign reset has many Python numbers, and the state after a step has arrays. Without this, a
    second call would be compiled again.
    """
    return jax.tree.map(_cast, tree, like)


def _cast(x: Any, like: Any) -> jax.Array:
    # Random keys have their own dtype, which is never weak.
    return x if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key) else jnp.asarray(x, like.dtype)

"""What any other library's environment needs: the library itself, and states whose types do not change."""

import importlib.util
from typing import Any

import jax
import jax.numpy as jnp


def require(module: str, extra: str) -> None:
    """ValueError where `module` is not installed. To be called where it is used: settings can be read without it."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"env needs {module}, which is not installed: pip install 'minimax-lib[{extra}]'")


def with_types_of(tree: Any, like: Any) -> Any:
    """`tree` in the dtypes of `like`, none of them weak.

    Foreign resets are full of Python's numbers, and a step gives arrays back: a second call would compile again.
    """
    return jax.tree.map(_cast, tree, like)


def _cast(x: Any, like: Any) -> jax.Array:
    # Keys have a dtype of their own, which is never weak.
    return x if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key) else jnp.asarray(x, like.dtype)

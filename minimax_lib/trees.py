"""Small helpers for pytrees whose leaves have a leading axis in common."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def tree_size(tree: Any) -> int:
    """Length of the leading axis."""
    return int(jax.tree.leaves(tree)[0].shape[0])


def parts_of(tree: Any, kind: type) -> list[Any]:
    """The parts of a tree that are of the type `kind`."""
    found = jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, kind))
    return [part for part in found if isinstance(part, kind)]


def zeros(shapes: Any) -> Any:
    """Zeros in the shapes of a tree of `ShapeDtypeStruct`. For random keys, keys made of zeros."""

    def zero(x: jax.ShapeDtypeStruct) -> jax.Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(zero(jax.eval_shape(jax.random.key_data, x)))
        return jnp.zeros(x.shape, x.dtype)

    return jax.tree.map(zero, shapes)


def tree_where(predicate: jax.Array, on_true: Any, on_false: Any) -> Any:
    """`jnp.where`, leaf by leaf. `predicate` is broadcast over the trailing axes of each leaf."""

    def pick(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(predicate.reshape(predicate.shape + (1,) * (x.ndim - predicate.ndim)), x, y)

    return jax.tree.map(pick, on_true, on_false)


def mapped(function: Callable[..., Any], in_axes: Any = 0, axis_name: str | None = None) -> Callable[..., Any]:
    """`jax.vmap(function)`. If the axis has length one, `function` is called without it, with the same result.

    An axis of length one is not free in XLA: products, layouts and some sums become slower (a sum on a CPU seventy
    times). The first argument gives the length: its leaves must have the axis first. In the single call, `axis_name` is
    not bound.
    """

    def call(*args: Any) -> Any:
        if tree_size(args[0]) != 1:
            return jax.vmap(function, in_axes=in_axes, axis_name=axis_name)(*args)
        each = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        only = [squeezed(arg, axis) for arg, axis in zip(args, each, strict=True)]
        return jax.tree.map(lambda x: x[None], function(*only))

    return call


def squeezed(tree: Any, axis: Any) -> Any:
    """`tree` without its axis of length one. `axis` is an int, None for no axis, or a prefix tree of them."""

    def squeeze(axis: int | None, part: Any) -> Any:
        return part if axis is None else jax.tree.map(lambda x: x.squeeze(axis), part)

    # JAX takes None for a tree without leaves. With `is_leaf`, it is a leaf: no axis.
    return jax.tree.map(squeeze, axis, tree, is_leaf=lambda axis: axis is None)


def assert_shape(what: str, shape: tuple[int, ...], *arrays: Any) -> None:
    """AssertionError, while tracing, if one of the arrays has another shape.

    chex has this function too. But its import takes a tenth of a second, also for a command line that is then refused.
    """
    for x in arrays:
        if x.shape != shape:
            raise AssertionError(f"{what}: the shape is {x.shape}, it must be {shape}")


def assert_same_form(what: str, one: Any, other: Any) -> None:
    """AssertionError, while tracing, if two trees differ in structure, shapes or types."""
    forms = [jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree) for tree in (one, other)]
    if forms[0] != forms[1]:
        raise AssertionError(f"{what} changes its form from {forms[0]} to {forms[1]}")

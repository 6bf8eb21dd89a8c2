"""The ancestors of levels, for pictures of lineages. Nothing is learnt from them."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.base import Level


class Ancestors(struct.PyTreeNode):
    """The latest G ancestors of each of N levels."""

    levels: Level  # [N, G, ...], the parent first; placeholders from `count` on
    count: jax.Array  # i32[N], how many there are


def no_ancestors(levels: Level, n_kept: int) -> Any:
    """Those of `levels` [N, ...] that have no parents; () where none are kept."""
    if n_kept == 0:
        return ()
    n = jax.tree.leaves(levels)[0].shape[0]
    empty = jax.tree.map(lambda x: jnp.zeros((n, n_kept, *x.shape[1:]), x.dtype), levels)
    return Ancestors(levels=empty, count=jnp.zeros(n, jnp.int32))


def of_children(parents: Level, ancestors: Any) -> Any:
    """The ancestors of one child of each of `parents` [N, ...], which have `ancestors`; () if these are ()."""
    if not isinstance(ancestors, Ancestors):
        return ancestors
    # One generation further back: the oldest makes room for the parent.
    levels = jax.tree.map(lambda x, old: jnp.concatenate([x[:, None], old[:, :-1]], axis=1), parents, ancestors.levels)
    n_kept = jax.tree.leaves(ancestors.levels)[0].shape[1]
    return Ancestors(levels=levels, count=jnp.minimum(ancestors.count + 1, n_kept))

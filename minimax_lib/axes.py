"""Named axes that a pure training step may be mapped over, and reductions that do nothing where they are not.

The runner's step is written for one seed on one device. `vmap(step, axis_name=SEED)` and `shard_map` over a mesh of
`SEED_GROUP` and `DEVICE` bind the names; the functions below then reduce over them, and are the identity elsewhere.
Nothing has to be told which wrappers it runs under.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SEED = "seed"  # of a vmap: seeds on the same devices
SEED_GROUP = "seed_group"  # of a mesh: devices that hold other seeds
DEVICE = "device"  # of a mesh: devices that share the rows of one batch


def is_bound(axis: str) -> bool:
    """Whether the code runs inside a vmap or shard_map that names `axis`."""
    # Costs nothing in the compiled program, as nobody uses the index.
    try:
        jax.lax.axis_index(axis)
    except NameError:
        return False
    return True


def _over(reduce: Callable[[Any, str], Any], tree: Any, axes: tuple[str, ...]) -> Any:
    for axis in axes:
        if is_bound(axis):
            tree = reduce(tree, axis)
    return tree


def device_mean(tree: Any) -> Any:
    """Mean over the devices, leaf by leaf."""
    return _over(jax.lax.pmean, tree, (DEVICE,))


def device_sum(tree: Any) -> Any:
    """Sum over the devices, leaf by leaf: of counts, and of what is divided by a count."""
    return _over(jax.lax.psum, tree, (DEVICE,))


def mean_where(counts: jax.Array, values: jax.Array) -> jax.Array:
    """f32[]: the mean of `values` where `counts`, over the entries of all devices together; NaN if there are none."""
    # Not the mean of the devices' means: a device on which few entries count would weigh as much as the others.
    total = jnp.where(counts, values, 0.0).sum()
    return device_sum(total) / device_sum(counts.sum(dtype=jnp.float32))


def everywhere_all(predicate: jax.Array) -> jax.Array:
    """bool[], true where `predicate` holds on every seed and device: unbatched, so `lax.cond` on it stays a branch."""
    return _over(jax.lax.pmin, predicate.astype(jnp.int32), (SEED, SEED_GROUP, DEVICE)) > 0


def common(value: jax.Array) -> jax.Array:
    """`value`, unbatched: a branch on it stays a branch. It must be equal on every seed, which vmap cannot see."""
    return _over(jax.lax.pmax, value, (SEED,))


def any_seed(predicate: jax.Array) -> jax.Array:
    """bool[], true where `predicate` holds for any seed on this device: unbatched, so `lax.cond` stays a branch.

    It may differ between devices: nothing under it may reduce over them.
    """
    return _over(jax.lax.pmax, predicate.astype(jnp.int32), (SEED,)) > 0


def device_index() -> jax.Array:
    """i32[], which of the devices that share a batch this is; 0 where there is no device axis."""
    return jax.lax.axis_index(DEVICE) if is_bound(DEVICE) else jnp.zeros((), jnp.int32)


def device_key(key: jax.Array) -> jax.Array:
    """A key of this device's own; the key itself where there is no device axis."""
    return jax.random.fold_in(key, jax.lax.axis_index(DEVICE)) if is_bound(DEVICE) else key

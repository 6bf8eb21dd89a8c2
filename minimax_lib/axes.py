"""Names of the axes that a training step may be mapped over, and reductions over them.

The runner's step is written for one seed on one device. `vmap(step, axis_name=SEED)` and `shard_map` over a mesh of
`SEED_GROUP` and `DEVICE` bind the names. The functions below reduce over every name that is bound, and do nothing for
one that is not. So a step does not need to know how it is mapped.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SEED = "seed"  # of a vmap: seeds on the same devices
SEED_GROUP = "seed_group"  # of a mesh: devices that hold other seeds
DEVICE = "device"  # of a mesh: devices that divide the rows of one batch


def is_bound(axis: str) -> bool:
    """Whether the code runs inside a vmap or shard_map that names `axis`."""
    # This costs nothing in the compiled program, since the index is not used.
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
    """Sum over the devices, leaf by leaf. For counts, and for sums that are divided by a count."""
    return _over(jax.lax.psum, tree, (DEVICE,))


def mean_where(counts: jax.Array, values: jax.Array) -> jax.Array:
    """f32[]: the mean of `values` where `counts` is true, over all devices together; NaN if there are none."""
    # Not the mean of the devices' means: a device with few counted entries would weigh as much as the others.
    total = jnp.where(counts, values, 0.0).sum()
    return device_sum(total) / device_sum(counts.sum(dtype=jnp.float32))


def everywhere_all(predicate: jax.Array) -> jax.Array:
    """bool[], whether `predicate` holds on every seed and device. It is unbatched: `lax.cond` on it stays a branch."""
    return _over(jax.lax.pmin, predicate.astype(jnp.int32), (SEED, SEED_GROUP, DEVICE)) > 0


def common(value: jax.Array) -> jax.Array:
    """`value`, unbatched: `lax.cond` on it stays a branch. It must be equal on every seed, which is not checked."""
    return _over(jax.lax.pmax, value, (SEED,))


def any_seed(predicate: jax.Array) -> jax.Array:
    """bool[], whether `predicate` holds for any seed on this device. It is unbatched: `lax.cond` on it stays a branch.

    It may differ between devices, so a branch on it must not reduce over devices.
    """
    return _over(jax.lax.pmax, predicate.astype(jnp.int32), (SEED,)) > 0


def device_index() -> jax.Array:
    """i32[], the index of this device among those that divide a batch; 0 if there is no device axis."""
    return jax.lax.axis_index(DEVICE) if is_bound(DEVICE) else jnp.zeros((), jnp.int32)


def n_devices() -> int:
    """The number of devices that divide a batch; 1 if there is no device axis."""
    return int(jax.lax.axis_size(DEVICE)) if is_bound(DEVICE) else 1


def all_devices(tree: Any, axis: int) -> Any:
    """The arrays of all devices, one after another along `axis`; the same on each of them."""
    return _over(lambda x, name: jax.lax.all_gather(x, name, axis=axis, tiled=True), tree, (DEVICE,))


def of_first_device(tree: Any) -> Any:
    """The arrays of the first device, on every device."""
    return _over(lambda x, name: jax.tree.map(lambda y: y[0], jax.lax.all_gather(x, name)), tree, (DEVICE,))


def device_key(key: jax.Array) -> jax.Array:
    """A key of this device's own; the key itself if there is no device axis."""
    return jax.random.fold_in(key, jax.lax.axis_index(DEVICE)) if is_bound(DEVICE) else key

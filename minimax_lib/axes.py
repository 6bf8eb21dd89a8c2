"""Named axes that a pure training step may be mapped over, and reductions that do nothing where they are not.

The runner's step is written for one seed on one device. `vmap(step, axis_name=SEED)` and `shard_map` over
`DEVICE` bind the names; the functions below then reduce over them, and are the identity elsewhere. Nothing
has to be told which wrappers it runs under.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SEED = "seed"
DEVICE = "device"


def is_bound(axis: str) -> bool:
    """Whether the code runs inside a vmap or shard_map that names `axis`."""
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


def everywhere_all(predicate: jax.Array) -> jax.Array:
    """bool[], true where `predicate` holds on every seed and device: unbatched, so `lax.cond` on it stays a branch."""
    return _over(jax.lax.pmin, predicate.astype(jnp.int32), (SEED, DEVICE)) > 0


def common(value: jax.Array) -> jax.Array:
    """`value`, which is known to be equal on every seed: unbatched, so that what follows from it stays a branch."""
    return _over(jax.lax.pmax, value, (SEED,))


def any_seed(predicate: jax.Array) -> jax.Array:
    """bool[], true where `predicate` holds for any seed on this device: unbatched, so `lax.cond` stays a branch."""
    return _over(jax.lax.pmax, predicate.astype(jnp.int32), (SEED,)) > 0


def device_key(key: jax.Array) -> jax.Array:
    """A key of this device's own; the key itself where there is no device axis."""
    return jax.random.fold_in(key, jax.lax.axis_index(DEVICE)) if is_bound(DEVICE) else key

"""Reductions over named axes: identity where unbound, unbatched where bound, so that branches stay branches."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from minimax_lib import axes


def test_everything_is_the_identity_without_axes():
    assert not axes.is_bound(axes.SEED)

    @jax.jit
    def reduced(key):
        keys = jax.random.key_data(axes.device_key(key)), jax.random.key_data(key)
        mean, same = axes.device_mean(jnp.float32(3)), axes.common(jnp.int32(7))
        return mean, same, axes.any_seed(jnp.bool_(True)), axes.everywhere_all(jnp.bool_(False)), keys

    mean, same, some, every, keys = jax.device_get(reduced(jax.random.key(0)))
    assert (mean, same, some, every) == (3, 7, True, False)
    np.testing.assert_array_equal(*keys)


def test_predicates_reduce_over_seeds():
    fills = np.array([True, False, True])

    def both(fill):
        return axes.any_seed(fill), axes.everywhere_all(fill)

    some, every = jax.device_get(jax.jit(jax.vmap(both, axis_name=axes.SEED))(fills))
    assert some.all()
    assert not every.any()


def test_a_branch_on_a_reduced_predicate_survives_vmap():
    def step(x):
        return jax.lax.cond(axes.any_seed(x > 2), jnp.sin, jnp.cos, x)

    batched, x = jax.jit(jax.vmap(step, axis_name=axes.SEED)), np.arange(4, dtype=np.float32)
    jaxpr = str(jax.make_jaxpr(batched)(x))
    assert "cond[" in jaxpr
    assert "select_n" not in jaxpr
    np.testing.assert_allclose(batched(x), np.sin(x), rtol=1e-6)


def test_device_mean_and_device_key_differ_by_device():
    mesh = jax.make_mesh((4,), (axes.DEVICE,), axis_types=(AxisType.Auto,))

    def local(x):
        return axes.device_mean(x), jax.random.uniform(axes.device_key(jax.random.key(0)), (1,))

    spec = PartitionSpec(axes.DEVICE)
    both = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    mean, draw = jax.device_get(both(np.arange(4, dtype=np.float32)))
    assert (mean == 1.5).all()
    assert len(np.unique(draw)) == 4

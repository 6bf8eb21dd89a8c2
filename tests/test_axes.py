"""Reductions over named axes: identity where unbound, unbatched where bound, so that branches stay branches."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec

from minimax_lib import axes


def test_everything_is_the_identity_without_axes():
    assert not axes.is_bound(axes.SEED)
    assert float(axes.device_mean(jnp.float32(3))) == 3
    assert int(axes.common(jnp.int32(7))) == 7
    assert bool(axes.any_seed(jnp.bool_(True)))
    assert not bool(axes.everywhere_all(jnp.bool_(False)))
    key = jax.random.key(0)
    assert (jax.random.key_data(axes.device_key(key)) == jax.random.key_data(key)).all()


def test_predicates_reduce_over_seeds():
    fills = jnp.array([True, False, True])

    def both(fill):
        return axes.any_seed(fill), axes.everywhere_all(fill)

    some, every = jax.vmap(both, axis_name=axes.SEED)(fills)
    assert some.all()
    assert not every.any()


def test_a_branch_on_a_reduced_predicate_survives_vmap():
    def step(x):
        return jax.lax.cond(axes.any_seed(x > 2), jnp.sin, jnp.cos, x)

    batched = jax.vmap(step, axis_name=axes.SEED)
    jaxpr = str(jax.make_jaxpr(batched)(jnp.arange(4.0)))
    assert "cond[" in jaxpr
    assert "select_n" not in jaxpr
    np.testing.assert_allclose(batched(jnp.arange(4.0)), np.sin(np.arange(4.0)), rtol=1e-6)


def test_device_mean_and_device_key_differ_by_device():
    mesh = jax.make_mesh((4,), (axes.DEVICE,), axis_types=(AxisType.Auto,))

    def local(x):
        return axes.device_mean(x), jax.random.uniform(axes.device_key(jax.random.key(0)), (1,))

    spec = PartitionSpec(axes.DEVICE)
    mean, draw = jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(jnp.arange(4.0))
    assert (mean == 1.5).all()
    assert len(np.unique(np.asarray(draw))) == 4

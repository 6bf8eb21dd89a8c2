"""`mapped` against `jax.vmap`, for one and for several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.trees import mapped


def function(a, b, c):
    return {"sum": a["x"] + b["y"].sum(axis=0) * c, "pair": (b["z"], a["x"][0])}


@pytest.mark.parametrize("n", [1, 3])
def test_one_call_gives_what_vmap_gives(n):
    a = {"x": jnp.arange(4.0 * n).reshape(n, 4)}
    b = {"y": jnp.arange(8.0 * n).reshape(2, n, 4), "z": jnp.arange(n)}
    in_axes = (0, {"y": 1, "z": 0}, None)
    ours, theirs = (f(function, in_axes=in_axes)(a, b, 2.0) for f in (mapped, jax.vmap))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("n", [1, 3])
def test_keys_and_one_axis_for_all(n):
    keys = jax.random.split(jax.random.key(0), n)
    np.testing.assert_array_equal(mapped(jax.random.normal)(keys), jax.vmap(jax.random.normal)(keys))


@pytest.mark.parametrize(("n", "bound"), [(1, False), (2, True)])
def test_the_axis_has_its_name_only_where_it_is_mapped(n, bound):
    found = []
    mapped(lambda x: found.append(axes.is_bound(axes.SEED)) or x, axis_name=axes.SEED)(jnp.zeros((n, 2)))
    assert found == [bound]

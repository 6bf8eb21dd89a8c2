"""`mapped` against `jax.vmap`, for one and for several."""

import jax
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.trees import mapped


def function(a, b, c):
    return {"sum": a["x"] + b["y"].sum(axis=0) * c, "pair": (b["z"], a["x"][0])}


@pytest.mark.parametrize("n", [1, 3])
def test_one_call_gives_what_vmap_gives(n):
    a = {"x": np.arange(4 * n, dtype=np.float32).reshape(n, 4)}
    b = {"y": np.arange(8 * n, dtype=np.float32).reshape(2, n, 4), "z": np.arange(n)}
    in_axes = (0, {"y": 1, "z": 0}, None)
    ours, theirs = jax.jit(lambda *args: [f(function, in_axes=in_axes)(*args) for f in (mapped, jax.vmap)])(a, b, 2.0)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("n", [1, 3])
def test_keys_and_one_axis_for_all(n):
    keys = jax.random.split(jax.random.key(0), n)
    both = jax.jit(lambda keys: [f(jax.random.normal)(keys) for f in (mapped, jax.vmap)])
    np.testing.assert_array_equal(*both(keys))


@pytest.mark.parametrize(("n", "bound"), [(1, False), (2, True)])
def test_the_axis_has_its_name_only_where_it_is_mapped(n, bound):
    found = []
    seen = mapped(lambda x: found.append(axes.is_bound(axes.SEED)) or x, axis_name=axes.SEED)
    jax.eval_shape(seen, np.zeros((n, 2)))
    assert found == [bound]

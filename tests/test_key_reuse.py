"""JAX's own check that no key is used twice (`jax_debug_key_reuse`), over the programs of every method."""

import jax
import jax.numpy as jnp
import pytest
from jax.errors import KeyReuseError
from jax.experimental.key_reuse import _core as key_reuse

from minimax_lib.config import parse
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner

SMALL = """
    --env.height 3 --env.width 3 --env.max-steps 6 --env.n-walls 2 --runner.n-parallel 2 --runner.n-steps 8
    --ppo.n-epochs 1 --n-updates 4 --model.conv-filters 2
"""
METHODS = {
    "dr": "",
    "plr": "--runner.capacity 8",
    "accel": "--runner.capacity 8 --runner.selection easy --runner.n-parents 2",
    "traced": "--runner.capacity 8",
    "cenie": "--runner.capacity 8",
    "sfl": "--runner.n-scored 4 --runner.n-kept 2",
    "ncc": "--runner.capacity 8 --runner.n-new 2",
    "paired": "--runner.teacher.model.memory-width 4 --runner.teacher.model.conv-filters 2",
}


@pytest.fixture(autouse=True)
def checked():
    """The check is made while a jitted function is traced: nothing has to be compiled."""
    jax.config.update("jax_debug_key_reuse", True)
    yield
    jax.config.update("jax_debug_key_reuse", False)


@pytest.fixture
def keys_may_be_transposed(monkeypatch):
    """A scan under a vmap brings the keys of its steps to the front. JAX 0.10.2 takes that for a use of them.

    It knows what a reshape or a gather of keys is, and has no rule for `transpose`, which uses none either.
    """
    rule = key_reuse.KeyReuseSignature(key_reuse.Forward(0, 0))
    monkeypatch.setitem(key_reuse.key_reuse_signatures, jax.lax.transpose_p, rule)


def small_runner(method, *flags):
    model = flags or ["--model.memory-width", "4"]
    return make_runner(parse(["--runner", method, *SMALL.split(), *METHODS[method].split(), *model]))


def traced(function, *args):
    return jax.eval_shape(jax.jit(function), *args)


def twice(key):
    return jax.random.uniform(key) + jax.random.normal(key)


def scanned_twice(key):
    keys = jax.random.split(key, 3)
    return [jax.lax.scan(lambda total, k: (total + jax.random.uniform(k), ()), jnp.zeros(()), keys) for _ in range(2)]


def test_the_check_sees_a_key_that_is_used_twice(keys_may_be_transposed):
    keys = jax.random.split(jax.random.key(0), 2)
    for function in (twice, scanned_twice):
        with pytest.raises(KeyReuseError):
            traced(function, jax.random.key(1))
        with pytest.raises(KeyReuseError):
            traced(jax.vmap(function), keys)


def test_jax_still_takes_a_scan_under_vmap_for_a_second_use():
    """When this fails, `keys_may_be_transposed` can go."""

    def scanned(key):
        return jax.lax.scan(lambda total, k: (total + jax.random.uniform(k), ()), jnp.zeros(()), jax.random.split(key))

    traced(scanned, jax.random.key(0))
    with pytest.raises(KeyReuseError):
        traced(jax.vmap(scanned), jax.random.split(jax.random.key(1)))


@pytest.mark.deep
@pytest.mark.parametrize("method", METHODS)
def test_no_method_uses_a_key_twice(method, keys_may_be_transposed):
    """The first state and a step of one seed, and the whole training of two."""
    runner = small_runner(method)
    state = traced(runner.init, jax.random.key(0))
    traced(runner.step, state)
    program = SeedRunner(runner, n_seeds=2)
    bound = jax.ShapeDtypeStruct((), "int32")
    traced(program.run_until, program.shape, bound, bound)


def test_a_step_of_accel_uses_no_key_twice(keys_may_be_transposed):
    runner = small_runner("accel", "--model", "ff", "--model.dense-width", "4")
    traced(runner.step, traced(runner.init, jax.random.key(0)))

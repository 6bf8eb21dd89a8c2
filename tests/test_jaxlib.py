"""A fault of jaxlib 0.10.2 on CPUs: a product with a constant matrix, summed, is wrong from 64 x 64 on.

No program of ours has such a product. `docs/troubleshooting.md` tells users about it.
"""

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from tests import zoo

ONES = np.ones((64, 64), np.float32)


def constant_products(jaxpr, constant=()):
    """The products in a jaxpr that have a factor which is the same in every run, those of inner jaxprs included.

    `constant` says which of its inputs are.
    """
    known = {var for var, same in zip(jaxpr.invars, constant, strict=False) if same}
    found = []
    for eqn in jaxpr.eqns:
        same = [isinstance(x, jax.extend.core.Literal) or x in known for x in eqn.invars]
        if eqn.primitive.name == "dot_general" and any(same):
            found.append(str(eqn))
        for inner in jax.extend.core.jaxprs_in_params(eqn.params):
            # Of the inputs of loops and branches, only those of a call are told apart: the others may change.
            is_call = len(inner.invars) == len(same) and eqn.primitive.name in ("jit", "pjit", "closed_call")
            found += constant_products(inner, same if is_call else ())
        if all(same) and not eqn.effects:
            known |= set(eqn.outvars)
    return found


def test_the_fault_is_still_there_and_matrices_as_arguments_are_right():
    assert float(jax.jit(lambda a, b: (a @ b).sum())(ONES, ONES)) == 64**3
    if float(jax.jit(lambda a: (a @ jnp.ones((64, 64))).sum())(ONES)) == 64**3:
        pytest.skip(f"jaxlib {jax.lib.__version__} multiplies right: the note in docs/troubleshooting.md can go")


def test_products_with_constants_are_found_wherever_they_are():
    def looped(a):
        step = jax.jit(lambda x: jnp.tanh(x @ (2.0 * jnp.ones((4, 4)))))
        return jax.lax.fori_loop(0, 3, lambda _, x: step(x), a)

    a = np.ones((4, 4), np.float32)
    assert len(constant_products(jax.make_jaxpr(looped)(a).jaxpr)) == 1
    assert not constant_products(jax.make_jaxpr(lambda a, b: jnp.tanh(a @ (2.0 * b)))(a, a).jaxpr)


@pytest.mark.deep
@pytest.mark.parametrize("method", zoo.METHODS)
def test_no_training_step_multiplies_with_a_constant(method):
    program = zoo.program_of(method)
    step = jax.vmap(program.runner.step, axis_name=axes.SEED)
    assert not constant_products(jax.make_jaxpr(step)(program.shape).jaxpr)

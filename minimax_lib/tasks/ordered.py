"""Results one after another, where their order matters."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

State = TypeVar("State")


def in_order(step: Callable[[State, jax.Array], State], state: State, valid: jax.Array) -> State:
    """`step(state, i)`, one after another, for each entry i of `valid` (bool[M]) that is true."""
    # The valid entries come first, so there are as many iterations as attempts, not as many as steps of a rollout.
    order, n = jnp.argsort(~valid, stable=True).astype(jnp.int32), valid.sum(dtype=jnp.int32)
    return jax.lax.while_loop(
        lambda loop: loop[0] < n,
        lambda loop: (loop[0] + 1, step(loop[1], order[loop[0]])),
        (jnp.zeros((), jnp.int32), state),
    )[1]

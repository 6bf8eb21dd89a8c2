"""Diagonal linear recurrences over sequences, x[t] = factor * x[t - 1] + inputs[t], that start anew with each episode.

The gradient of such a recurrence is the same recurrence, from the last step to the first. So the backward pass needs
only the states.
"""

import jax
import jax.numpy as jnp

from minimax_lib.loops import on_cpu
from minimax_lib.trees import tree_where


@jax.custom_vjp
def linear_recurrence(factor: jax.Array, inputs: jax.Array, first: jax.Array, start: jax.Array) -> jax.Array:
    """The states c64[T, R, P] after each step, for `factor` [P], `inputs` [T, R, P] and the state `start` [R, P].

    Where `first` (bool[T, R]) is set, the state is cleared before the step.
    """
    return _states(factor, inputs, first, start)


def _states(
    factor: jax.Array, inputs: jax.Array, first: jax.Array, start: jax.Array, reverse: bool = False
) -> jax.Array:
    scan = one_by_one if steps_one_by_one(len(inputs)) else all_at_once
    return scan(factor, inputs, first, start, reverse)


def steps_one_by_one(n_steps: int) -> bool:
    """Whether the recurrence is a loop over the steps: for a single step, and on a CPU."""
    # A parallel scan does more work in fewer rounds. On a CPU, it took four times as long as the loop.
    return n_steps == 1 or on_cpu()


def one_by_one(factor: jax.Array, inputs: jax.Array, first: jax.Array, start: jax.Array, reverse: bool) -> jax.Array:
    """The states, by a loop over the steps."""

    def step(state: jax.Array, x: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        inputs_t, first_t = x
        state = factor[None] * _cleared(first_t, state) + inputs_t
        return state, state

    return jax.lax.scan(step, start, (inputs, first), reverse=reverse)[1]


def all_at_once(factor: jax.Array, inputs: jax.Array, first: jax.Array, start: jax.Array, reverse: bool) -> jax.Array:
    """The states, by a parallel scan. It composes the steps x -> a * x + b pair by pair."""
    # The start of an episode is a step with a = 0, so that no earlier state passes it.
    factors = _cleared(first, jnp.broadcast_to(factor, inputs.shape))
    # The scan has no start state, so that state is added to the input of the first step.
    opening = -1 if reverse else 0
    inputs = inputs.at[opening].add(factors[opening] * start)

    def compose(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return a[0] * b[0], b[0] * a[1] + b[1]

    return jax.lax.associative_scan(compose, (factors, inputs), reverse=reverse)[1]


def _cleared(first: jax.Array, x: jax.Array) -> jax.Array:
    """`x`, zero in the rows where an episode starts."""
    return tree_where(first, jnp.zeros_like(x), x)


def _forward(factor: jax.Array, inputs: jax.Array, first: jax.Array, start: jax.Array) -> tuple[jax.Array, tuple]:
    states = _states(factor, inputs, first, start)
    return states, (factor, first, start, states)


def _backward(residuals: tuple, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None, jax.Array]:
    """Gradients of factor, inputs, (none of) first, and start. As is usual in JAX, they are not conjugated."""
    factor, first, start, states = residuals
    # In reverse, a gradient comes from the step after. If that step opens an episode, no gradient may pass.
    next_first = jnp.concatenate([first[1:], jnp.ones_like(first[:1])])
    inputs_gradient = _states(factor, gradient, next_first, jnp.zeros_like(start), reverse=True)
    before = _cleared(first, jnp.concatenate([start[None], states[:-1]]))
    factor_gradient = (inputs_gradient * before).sum(axis=(0, 1))
    return factor_gradient, inputs_gradient, None, _cleared(first[0], factor[None] * inputs_gradient[0])


linear_recurrence.defvjp(_forward, _backward)

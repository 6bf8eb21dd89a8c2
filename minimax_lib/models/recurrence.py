"""Gated recurrent networks over sequences, with a backward pass that computes the gradients of kernels all at once.

The derivative of a `lax.scan` adds to the gradients of the kernels in every step. That is a product too thin to be
fast, and a pass over the whole kernel. Here, the backward scan computes only the gradients of what enters each step.
The gradients of the kernels follow as one product over all steps and rows. On a CPU, the recurrence takes a third less
time.
"""

import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.loops import on_cpu, steps_at_once
from minimax_lib.trees import tree_where


class Weights(struct.PyTreeNode):
    """Parameters of a gated network with H units and G = n_gates * H columns.

    The products, and what is kept for the backward pass, have the same type as the parameters. The carry and the
    arithmetic of the gates are always f32.
    """

    input_kernel: jax.Array | None  # [F, G]; None if the features are already projected
    recurrent_kernel: jax.Array  # [H, G]
    bias: jax.Array  # [G]
    recurrent_bias: jax.Array | None = None  # [H], added to the last H columns of the product; None: zeros


class GatedCell(Protocol):
    """One step of a gated network, and its derivative. A carry has a field `hidden`. All arrays are [R, ...]."""

    n_gates: int
    is_additive: bool  # `forward` only needs the sum of `inputs` and `product`; there is no recurrent bias

    def forward(self, inputs: jax.Array, product: jax.Array, carry: Any) -> tuple[Any, Any]:
        """(carry after the step, what `backward` needs).

        `inputs` [R, G] is the observation's part of the gates. `product` [R, G] is that of `carry.hidden`, with the
        recurrent bias.
        """
        ...

    def backward(self, saved: Any, gradient: Any) -> tuple[jax.Array, Any]:
        """(gradient of the inputs, gradient of the carry without the part that comes through the product)."""
        ...

    def product_gradient(self, saved: Any, inputs_gradient: jax.Array) -> jax.Array:
        """The gradient of the product, from the gradient of the inputs. Works on stacked steps [T, R, ...] too."""
        ...


def cleared(first: jax.Array, carry: Any) -> Any:
    """The carry, zero in the rows where an episode starts."""
    return tree_where(first, jax.tree.map(jnp.zeros_like, carry), carry)


def projects_ahead(weights: Weights, n_steps: int) -> bool:
    """Whether the inputs of all steps are multiplied at once, before the scan.

    Yes if the kernel is too large to be read in every step. On an accelerator, also if there is more than one step. On
    a CPU, a small product in the scan is faster than one before it, whose result goes to memory and back.
    """
    assert weights.input_kernel is not None
    n_features, n_units = weights.input_kernel.shape[0], weights.recurrent_kernel.shape[0]
    return n_features > n_units or not (n_steps == 1 or on_cpu())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def recur(
    cell: GatedCell, unroll: int | None, weights: Weights, features: jax.Array, first: jax.Array, carry: Any
) -> tuple[jax.Array, Any]:
    """(hidden [T, R, H], carry after the last step) of `features` [T, R, F], or [T, R, G] if already projected.

    Where `first` (bool[T, R]) is set, the carry is cleared before the step. `unroll` is that of `lax.scan`. With None,
    the backend decides.
    """
    (hidden, carry), _ = _forward(cell, unroll, weights, features, first, carry)
    return hidden, carry


def _forward(
    cell: GatedCell, unroll: int | None, weights: Weights, features: jax.Array, first: jax.Array, carry: Any
) -> tuple[tuple[jax.Array, Any], tuple]:
    contributions, kernel, dtype = features, weights.input_kernel, weights.bias.dtype
    if kernel is not None and projects_ahead(weights, len(features)):
        contributions, kernel = features @ kernel, None
    joint = None
    # Also for a single step: XLA moves this concatenation out of a rollout's loop.
    if kernel is not None and cell.is_additive:
        joint = jnp.concatenate([kernel, weights.recurrent_kernel])
    recurrent_bias = _of_all_columns(weights)

    def products(contribution: jax.Array, hidden: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The observation's part of the gates, and the memory's part."""
        # One product of all columns is faster than two of fewer. Then the second part holds both, and the first the
        # bias.
        if joint is not None:
            return weights.bias[None], jnp.concatenate([contribution, hidden], axis=-1) @ joint
        inputs = (contribution if kernel is None else contribution @ kernel) + weights.bias[None]
        product = hidden @ weights.recurrent_kernel
        return inputs, product if recurrent_bias is None else product + recurrent_bias[None]

    def step(carry: Any, x: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple]:
        contribution, first_t = x
        carry = cleared(first_t, carry)
        inputs, product = as_type(jnp.float32, products(contribution, carry.hidden.astype(dtype)))
        after, saved = cell.forward(inputs, product, carry)
        # In half precision, what is kept for the backward pass takes half the memory. The carry stays f32.
        return after, as_type(dtype, (after.hidden, saved))

    last, (hidden, saved) = jax.lax.scan(step, carry, (contributions, first), unroll=unroll or steps_at_once(8))
    return (hidden, last), (weights, features, first, carry, hidden, saved)


def _backward(cell: GatedCell, unroll: int | None, residuals: tuple, gradients: tuple[jax.Array, Any]) -> tuple:
    """Gradients of weights, features, (none of) first, and carry."""
    weights, features, first, carry, hidden, saved = residuals
    kernel, dtype = weights.input_kernel, weights.bias.dtype
    hidden_gradients, last_gradient = gradients
    # Without the barrier, XLA transposes the kernel in every step, by a copy of all of it.
    transposed = jax.lax.optimization_barrier(weights.recurrent_kernel.T)

    def step(gradient: Any, x: tuple) -> tuple[Any, jax.Array]:
        hidden_gradient, first_t, saved_t = x
        # The hidden state is an output, and it enters the next step. So it gets two gradients.
        gradient = gradient.replace(hidden=gradient.hidden + hidden_gradient)
        saved_t = as_type(jnp.float32, saved_t)
        inputs_gradient, before = cell.backward(saved_t, gradient)
        product_gradient = cell.product_gradient(saved_t, inputs_gradient).astype(dtype)
        through_product = product_gradient @ transposed
        before = before.replace(hidden=before.hidden + through_product.astype(jnp.float32))
        return cleared(first_t, before), inputs_gradient.astype(dtype)

    steps = (hidden_gradients, first, saved)
    n = unroll or steps_at_once(8)
    carry_gradient, inputs_gradients = jax.lax.scan(step, last_gradient, steps, reverse=True, unroll=n)
    # The input of a step's product is the hidden state after the step before. So it is not stored a second time.
    hidden_before = cleared(first, jnp.concatenate([carry.hidden[None].astype(dtype), hidden[:-1]]))
    product_gradients = cell.product_gradient(saved, inputs_gradients)
    weight_gradients = Weights(
        input_kernel=None if kernel is None else product_over_steps(features, inputs_gradients),
        recurrent_kernel=product_over_steps(hidden_before, product_gradients),
        bias=sum_over_steps(inputs_gradients),
        recurrent_bias=(
            None
            if weights.recurrent_bias is None
            else sum_over_steps(product_gradients[..., -len(weights.recurrent_bias) :])
        ),
    )
    # Without a kernel, the features were already projected: they are the inputs.
    features_gradient = inputs_gradients if kernel is None else inputs_gradients @ kernel.T
    return weight_gradients, features_gradient, None, carry_gradient


def _of_all_columns(weights: Weights) -> jax.Array | None:
    """[G], the recurrent bias, with zeros for the columns that have none. None if there is no recurrent bias."""
    if weights.recurrent_bias is None:
        return None
    return jnp.pad(weights.recurrent_bias, (len(weights.bias) - len(weights.recurrent_bias), 0))


def as_type(dtype: Any, tree: Any) -> Any:
    """All arrays of `tree` in that type."""
    return jax.tree.map(lambda x: x.astype(dtype), tree)


def product_over_steps(x: jax.Array, y: jax.Array) -> jax.Array:
    """[n, m]: the outer products of x [T, R, n] and y [T, R, m], summed over steps and rows, as one product."""
    return x.reshape(-1, x.shape[-1]).T @ y.reshape(-1, y.shape[-1])


def sum_over_steps(x: jax.Array) -> jax.Array:
    """[n]: x [T, R, n] summed over steps and rows, in f32 whatever its type."""
    return x.sum(axis=(0, 1), dtype=jnp.float32).astype(x.dtype)


recur.defvjp(_forward, _backward)

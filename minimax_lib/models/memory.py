"""The layers between features and heads: recurrent memories, or a dense layer for a model without memory.

A memory is a module with `init_carry(shape)` and `__call__(features, carry, first)` on sequences. A model without
memory has the empty carry `()`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.models.activations import sigmoid, tanh
from minimax_lib.models.initializers import GAIN_RELU, Initializer, chrono, orthogonal
from minimax_lib.models.projection import Features, Projection, multiplied
from minimax_lib.models.recurrence import GatedCell, Weights, as_type, recur


class LSTMCarry(struct.PyTreeNode):
    """Both f32[..., width]."""

    hidden: jax.Array
    cell: jax.Array


class LSTMCell:
    """Long short-term memory with forget gate (Gers et al. 2000); columns: input, forget, candidate, output."""

    n_gates = 4
    is_additive = True

    def forward(self, inputs: jax.Array, product: jax.Array, carry: LSTMCarry) -> tuple[LSTMCarry, tuple]:
        i, f, g, o = jnp.split(inputs + product, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        cell = f * carry.cell + i * g
        return LSTMCarry(hidden=o * tanh(cell), cell=cell), (i, f, g, o, carry.cell)

    def backward(self, saved: tuple, gradient: LSTMCarry) -> tuple[jax.Array, LSTMCarry]:
        i, f, g, o, cell_before = saved
        # To keep this from the forward pass was not faster. This is jax's own tanh: in the backward pass, the tanh in
        # plain arithmetic made a network of 256 units no faster, and one of 64 units a tenth slower.
        squashed = jnp.tanh(f * cell_before + i * g)
        d_cell = gradient.cell + gradient.hidden * o * (1.0 - squashed**2)
        d_inputs = [
            d_cell * g * i * (1.0 - i),
            d_cell * cell_before * f * (1.0 - f),
            d_cell * i * (1.0 - g**2),
            gradient.hidden * squashed * o * (1.0 - o),
        ]
        # The hidden state enters a step only through the product. The caller adds that part of the gradient.
        return jnp.concatenate(d_inputs, axis=-1), LSTMCarry(hidden=jnp.zeros_like(d_cell), cell=d_cell * f)

    def product_gradient(self, saved: tuple, inputs_gradient: jax.Array) -> jax.Array:
        return inputs_gradient


class GRUCarry(struct.PyTreeNode):
    """f32[..., width]."""

    hidden: jax.Array


class GRUCell:
    """Gated recurrent unit (Cho et al. 2014); columns: reset, update, candidate.

    As in cuDNN, the reset gate is applied after the product, so that one product serves all three columns. The
    product's part of the candidate has its own bias, which the reset gate scales too: n = tanh(W_in x + b_in + r
    (W_hn h + b_hn)).
    """

    n_gates = 3
    is_additive = False  # the reset gate scales the memory's part of the candidate, but not the observation's

    def forward(self, inputs: jax.Array, product: jax.Array, carry: GRUCarry) -> tuple[GRUCarry, tuple]:
        reset_in, update_in, candidate_in = jnp.split(inputs, 3, axis=-1)
        reset_product, update_product, candidate_product = jnp.split(product, 3, axis=-1)
        r = sigmoid(reset_in + reset_product)
        z = sigmoid(update_in + update_product)
        n = tanh(candidate_in + r * candidate_product)
        return GRUCarry(hidden=n + z * (carry.hidden - n)), (r, z, n, carry.hidden, candidate_product)

    def backward(self, saved: tuple, gradient: GRUCarry) -> tuple[jax.Array, GRUCarry]:
        r, z, n, before, candidate_product = saved
        d_candidate = gradient.hidden * (1.0 - z) * (1.0 - n**2)
        d_inputs = [
            d_candidate * candidate_product * r * (1.0 - r),
            gradient.hidden * (before - n) * z * (1.0 - z),
            d_candidate,
        ]
        return jnp.concatenate(d_inputs, axis=-1), GRUCarry(hidden=gradient.hidden * z)

    def product_gradient(self, saved: tuple, inputs_gradient: jax.Array) -> jax.Array:
        reset, update, candidate = jnp.split(inputs_gradient, 3, axis=-1)
        return jnp.concatenate([reset, update, candidate * saved[0]], axis=-1)


class LSTMMemory(nn.Module):
    """Long short-term memory of `width` units."""

    width: int
    unroll: int | None = None
    dtype: Any = jnp.float32  # of all but the carry
    span: int | None = None  # see `chrono`; None: all biases start at 0

    def init_carry(self, shape: tuple[int, ...]) -> LSTMCarry:
        zeros = jnp.zeros((*shape, self.width), jnp.float32)
        return LSTMCarry(hidden=zeros, cell=zeros)

    @nn.compact
    def __call__(self, features: Features, carry: LSTMCarry, first: jax.Array) -> tuple[jax.Array, LSTMCarry]:
        biases = nn.initializers.zeros if self.span is None else chrono(self.span, 1, LSTM_CELL.n_gates, against=0)
        return gated_memory(self, LSTM_CELL, biases, features, carry, first)


class GRUMemory(nn.Module):
    """Gated recurrent unit of `width` units."""

    width: int
    unroll: int | None = None
    dtype: Any = jnp.float32  # of all but the carry
    span: int | None = None  # see `chrono`; None: all biases start at 0

    def init_carry(self, shape: tuple[int, ...]) -> GRUCarry:
        return GRUCarry(hidden=jnp.zeros((*shape, self.width), jnp.float32))

    @nn.compact
    def __call__(self, features: Features, carry: GRUCarry, first: jax.Array) -> tuple[jax.Array, GRUCarry]:
        # The update gate weighs both what is kept and what enters.
        biases = nn.initializers.zeros if self.span is None else chrono(self.span, 1, GRU_CELL.n_gates)
        return gated_memory(self, GRU_CELL, biases, features, carry, first)


LSTM_CELL, GRU_CELL = LSTMCell(), GRUCell()


def gated_memory(
    module: Any, cell: GatedCell, biases: Initializer, features: Features, carry: Any, first: jax.Array
) -> tuple[jax.Array, Any]:
    """(hidden [T, R, width], last carry) of a cell whose parameters belong to `module`."""
    # All gates share one kernel, so that a step needs one product instead of one for each gate.
    n_columns = cell.n_gates * module.width
    init = orthogonal(n_blocks=cell.n_gates)
    kernel = module.param("input_kernel", init, (features.shape[-1], n_columns))
    weights = Weights(
        input_kernel=kernel,
        recurrent_kernel=module.param("recurrent_kernel", init, (module.width, n_columns)),
        bias=module.param("bias", biases, (n_columns,)),
        # If inputs and product are only added up, a second bias would do the same as the first. Only the candidate of
        # a gated recurrent unit needs one, as in flax: the reset gate scales one of its biases and not the other.
        recurrent_bias=(
            None if cell.is_additive else module.param("recurrent_bias", nn.initializers.zeros, (module.width,))
        ),
    )
    inputs, left = multiplied(features, kernel)
    weights, inputs = as_type(module.dtype, (weights.replace(input_kernel=left), inputs))
    return recur(cell, module.unroll, weights, inputs, first, carry)


class NoMemory(nn.Module):
    """A dense ReLU layer of `width` units. With a width of 0, the features are returned unchanged."""

    width: int
    dtype: Any = jnp.float32

    def init_carry(self, shape: tuple[int, ...]) -> tuple[()]:
        return ()

    @nn.compact
    def __call__(self, features: Features, carry: tuple[()], first: jax.Array) -> tuple[Features, tuple[()]]:
        if self.width == 0:
            return features, ()
        hidden = nn.relu(Projection(self.width, orthogonal(GAIN_RELU), self.dtype, name="dense")(features))
        return hidden.reshape(*first.shape, self.width), ()

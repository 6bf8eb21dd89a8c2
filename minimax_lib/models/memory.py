"""What stands between features and heads: recurrent memories, or a dense layer without any.

A memory is a module with `init_carry(shape)` and `__call__(features, carry, first)` on sequences. A model without
memory has the empty carry `()`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.models.initializers import GAIN_RELU, orthogonal
from minimax_lib.models.recurrence import recur


@struct.dataclass
class LSTMCarry:
    """Both f32[..., width]."""

    hidden: jax.Array
    cell: jax.Array


def lstm_gates(gates_in: jax.Array, product: jax.Array, carry: LSTMCarry) -> LSTMCarry:
    """One LSTM step (Hochreiter and Schmidhuber 1997, with forget gate); gates in the order input, forget, cell, out."""
    input_gate, forget_gate, candidate, output_gate = jnp.split(gates_in + product, 4, axis=-1)
    cell = nn.sigmoid(forget_gate) * carry.cell + nn.sigmoid(input_gate) * jnp.tanh(candidate)
    return LSTMCarry(hidden=nn.sigmoid(output_gate) * jnp.tanh(cell), cell=cell)


@struct.dataclass
class GRUCarry:
    """f32[..., width]."""

    hidden: jax.Array


def gru_gates(gates_in: jax.Array, product: jax.Array, carry: GRUCarry) -> GRUCarry:
    """One GRU step (Cho et al. 2014; the reset gate acts after the product, as in cuDNN): reset, update, candidate."""
    reset_in, update_in, candidate_in = jnp.split(gates_in, 3, axis=-1)
    reset_h, update_h, candidate_h = jnp.split(product, 3, axis=-1)
    update = nn.sigmoid(update_in + update_h)
    candidate = jnp.tanh(candidate_in + nn.sigmoid(reset_in + reset_h) * candidate_h)
    return GRUCarry(hidden=(1.0 - update) * candidate + update * carry.hidden)


class LSTMMemory(nn.Module):
    """Long short-term memory."""

    width: int
    unroll: int = 1

    def init_carry(self, shape: tuple[int, ...]) -> LSTMCarry:
        zeros = jnp.zeros((*shape, self.width), jnp.float32)
        return LSTMCarry(hidden=zeros, cell=zeros)

    @nn.compact
    def __call__(self, features: jax.Array, carry: LSTMCarry, first: jax.Array) -> tuple[jax.Array, LSTMCarry]:
        return gated_memory(self, lstm_gates, 4, features, carry, first)


class GRUMemory(nn.Module):
    """Gated recurrent unit."""

    width: int
    unroll: int = 1

    def init_carry(self, shape: tuple[int, ...]) -> GRUCarry:
        return GRUCarry(hidden=jnp.zeros((*shape, self.width), jnp.float32))

    @nn.compact
    def __call__(self, features: jax.Array, carry: GRUCarry, first: jax.Array) -> tuple[jax.Array, GRUCarry]:
        return gated_memory(self, gru_gates, 3, features, carry, first)


def gated_memory(
    module: Any, gates: Any, n_gates: int, features: jax.Array, carry: Any, first: jax.Array
) -> tuple[jax.Array, Any]:
    """(hidden [T, R, width], last carry): the input product for all steps at once, then the recurrence."""
    width = module.width
    kernel = module.param("recurrent_kernel", orthogonal(n_blocks=n_gates), (width, n_gates * width))
    gates_in = nn.Dense(n_gates * width, kernel_init=orthogonal(n_blocks=n_gates), name="input")(features)
    return recur(gates, module.unroll, kernel, gates_in, first, carry)


class NoMemory(nn.Module):
    """A dense ReLU layer of `width` units; 0 hands the features on as they are."""

    width: int

    def init_carry(self, shape: tuple[int, ...]) -> tuple[()]:
        return ()

    @nn.compact
    def __call__(self, features: jax.Array, carry: tuple[()], first: jax.Array) -> tuple[jax.Array, tuple[()]]:
        if self.width == 0:
            return features, ()
        return nn.relu(nn.Dense(self.width, kernel_init=orthogonal(GAIN_RELU), name="dense")(features)), ()

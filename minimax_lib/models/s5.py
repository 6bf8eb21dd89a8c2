"""S5: layers of linear state spaces with a diagonal complex state (Smith et al. 2022), cleared between episodes."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from minimax_lib.models.initializers import Initializer, orthogonal
from minimax_lib.models.linear_recurrence import linear_recurrence
from minimax_lib.models.projection import Features, Projection

Discretisation = Literal["zoh", "bilinear"]
GLU = Literal["full", "half1", "half2", "none"]
Norm = Literal["before", "after", "none"]

MAX_REAL_PART = -1e-4  # a state whose eigenvalue became positive would grow without bound


@dataclasses.dataclass(frozen=True)
class StateSpace:
    """The linear system x' = diag(eigenvalues) x + B u, y = Re(C x) + D u, and how it is cut into steps."""

    state_size: int  # number of eigenvalues; they come in conjugate pairs, and only one of each pair is stored
    n_blocks: int  # the first eigenvalues are those of a block-diagonal matrix with so many blocks
    discretisation: Discretisation
    dt_min: float  # the lengths of steps start between dt_min and dt_max
    dt_max: float

    @property
    def n_pairs(self) -> int:
        return self.state_size // 2


class S5Carry(struct.PyTreeNode):
    """The states of all layers."""

    states: jax.Array  # c64[..., n_layers, n_pairs]


class S5Memory(nn.Module):
    """A linear layer to `width`, then S5 layers."""

    width: int
    n_layers: int
    space: StateSpace
    glu: GLU
    norm: Norm
    dtype: Any = jnp.float32  # of all but the state spaces

    def init_carry(self, shape: tuple[int, ...]) -> S5Carry:
        return S5Carry(states=jnp.zeros((*shape, self.n_layers, self.space.n_pairs), jnp.complex64))

    @nn.compact
    def __call__(self, features: Features, carry: S5Carry, first: jax.Array) -> tuple[jax.Array, S5Carry]:
        # [T * R, W] everywhere except in the recurrence, so that products of matrices need no transposes.
        x = Projection(self.width, orthogonal(), self.dtype, name="input")(features)
        last = []
        for i in range(self.n_layers):
            x, state = S5Layer(self.space, self.glu, self.norm, self.dtype, name=f"layer_{i}")(
                x, carry.states[:, i], first
            )
            last.append(state)
        return x.reshape(*first.shape, self.width), S5Carry(states=jnp.stack(last, axis=1))


class S5Layer(nn.Module):
    """x + glu(system(x)), with layer norm before the system, after the sum, or nowhere."""

    space: StateSpace
    glu: GLU
    norm: Norm
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array, state: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """([T * R, W], state c64[R, n_pairs] after the last step) for `x` [T * R, W] and `first` [T, R]."""
        layer_norm = nn.LayerNorm(dtype=self.dtype, name="norm")
        inputs = layer_norm(x) if self.norm == "before" else x
        # Always f32, because there is no complex type in half precision.
        outputs, state = LinearSystem(self.space, name="system")(inputs.astype(jnp.float32), state, first)
        x = x + self._gated(outputs.astype(self.dtype))
        return (layer_norm(x) if self.norm == "after" else x), state

    def _gated(self, y: jax.Array) -> jax.Array:
        """[n, W]: the gated linear units of y [n, W], or only its GELU if `glu` is "none"."""
        activated = nn.gelu(y)
        if self.glu == "none":
            return activated
        n_products = 2 if self.glu == "full" else 1
        products = nn.Dense(n_products * y.shape[-1], dtype=self.dtype, name="gate")(activated)
        if self.glu == "full":
            value, gate = jnp.split(products, 2, axis=-1)
            return value * nn.sigmoid(gate)
        return (activated if self.glu == "half1" else y) * nn.sigmoid(products)


class LinearSystem(nn.Module):
    """The discretised system over sequences.

    All parameters are real. B and the conjugate of C are stored as their real parts, followed by their imaginary parts.

    Smith et al. draw B and C at random, and then change to the basis of the eigenvectors. Here they are drawn in that
    basis. The result has the same distribution: the basis is orthonormal, and Gaussian entries stay Gaussian in it.
    """

    space: StateSpace

    @nn.compact
    def __call__(self, inputs: jax.Array, state: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(y f32[T * R, W], state c64[R, n_pairs] after the last step) for u = `inputs` [T * R, W]."""
        width, n_pairs = inputs.shape[-1], self.space.n_pairs
        normal = nn.initializers.normal
        factor, scale = self._discretised()
        # Inputs are real, so B u is one real product of twice the width. So is Re(C x): it is the sum of the real and
        # imaginary parts of x times those of the conjugate of C. That is why the conjugate of C is stored.
        b = self.param("b", normal(1.0 / math.sqrt(2 * width)), (width, 2 * n_pairs))
        # The variance of C is that of the published runs; Smith et al. have 1 / state_size.
        c = self.param("c", normal(1.0 / math.sqrt(self.space.state_size * width)), (2 * n_pairs, width))
        d = self.param("d", normal(1.0), (width,))
        driven = as_complex(inputs @ as_real(scale[None] * as_complex(b))).reshape(*first.shape, n_pairs)
        states = linear_recurrence(factor, driven, first, state)
        outputs = 2.0 * (as_real(states.reshape(-1, n_pairs)) @ c)  # the conjugate half of the state adds the same
        return outputs + d[None] * inputs, states[-1]

    def _discretised(self) -> tuple[jax.Array, jax.Array]:
        """(factor of the state, factor of B u), both c64[n_pairs]."""
        space, shape = self.space, (self.space.n_pairs,)
        eigenvalues = hippo_eigenvalues(space.state_size // space.n_blocks)
        real = self.param("eigenvalues_real", each_block(eigenvalues.real, space.n_blocks), shape)
        imaginary = self.param("eigenvalues_imag", each_block(eigenvalues.imag, space.n_blocks), shape)
        # The logarithms of the steps' lengths are learnt, so that the lengths stay positive.
        log_steps = self.param("log_steps", uniform(math.log(space.dt_min), math.log(space.dt_max)), shape)
        stable = jax.lax.complex(jnp.minimum(real, MAX_REAL_PART), imaginary)
        return DISCRETISATIONS[space.discretisation](stable, jnp.exp(log_steps))


def zero_order_hold(eigenvalues: jax.Array, steps: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(factor of the state, factor of B u), if the input is constant during a step."""
    # For slow states, exp(...) is close to 1. exp(...) - 1 would lose most of its digits, and `expm1` does not.
    return jnp.exp(eigenvalues * steps), jnp.expm1(eigenvalues * steps) / eigenvalues


def bilinear(eigenvalues: jax.Array, steps: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(factor of the state, factor of B u), by the trapezoidal rule (Tustin's method)."""
    half = eigenvalues * steps / 2.0
    return (1.0 + half) / (1.0 - half), steps / (1.0 - half)


Discretise = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
DISCRETISATIONS: dict[Discretisation, Discretise] = {"zoh": zero_order_hold, "bilinear": bilinear}


@functools.cache
def hippo_eigenvalues(size: int) -> np.ndarray:
    """c128[size / 2]: the eigenvalues of the HiPPO-N matrix that have a positive imaginary part, ascending.

    HiPPO-N is the normal part of HiPPO-LegS (Gu et al. 2022, S4D): -1/2 on the diagonal, otherwise skew-symmetric.
    """
    # In numpy, on the host: they depend only on the size, so the compiled program need not decompose a matrix.
    roots = np.sqrt(2.0 * np.arange(size) + 1.0)
    lower = np.tril(np.outer(roots, roots), -1) / 2.0
    # i times a skew-symmetric matrix is Hermitian. Its eigenvalues are real and come in pairs of opposite sign.
    imaginary = np.linalg.eigvalsh(1j * (lower - lower.T))
    return -0.5 + 1j * imaginary[size // 2 :]


def each_block(values: np.ndarray, n_blocks: int) -> Initializer:
    """Initial values that are the same in every block."""
    return lambda key, shape: jnp.asarray(np.tile(values, n_blocks).reshape(shape), jnp.float32)


def uniform(low: float, high: float) -> Initializer:
    """Initial values between the bounds."""
    return lambda key, shape: jax.random.uniform(key, shape, jnp.float32, low, high)


def as_complex(x: jax.Array) -> jax.Array:
    """c64[..., n] from f32[..., 2 * n]: real parts, then imaginary parts."""
    return jax.lax.complex(*jnp.split(x, 2, axis=-1))


def as_real(x: jax.Array) -> jax.Array:
    """f32[..., 2 * n] from c64[..., n]: real parts, then imaginary parts."""
    return jnp.concatenate([x.real, x.imag], axis=-1)

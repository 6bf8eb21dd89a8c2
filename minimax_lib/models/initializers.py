"""Initial weights."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Initializer = Callable[..., jax.Array]  # (key, shape, dtype) -> weights

GAIN_LINEAR, GAIN_RELU, GAIN_TANH = 1.0, math.sqrt(2.0), 5.0 / 3.0


def orthogonal(gain: float = 1.0, n_blocks: int = 1) -> Initializer:
    """Weights with orthonormal columns (or rows, if these are fewer), times `gain` (Saxe et al. 2014).

    They are uniformly distributed (Haar). All axes but the last count as rows. With `n_blocks`, the columns are that
    many independent orthogonal blocks side by side: the gates of a recurrent cell need this.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        return _orthogonal(key, tuple(shape), dtype, gain, n_blocks)

    return init


# Jitted, because flax traces the initial weights again wherever a network is applied.
@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _orthogonal(key: jax.Array, shape: tuple[int, ...], dtype: Any, gain: float, n_blocks: int) -> jax.Array:
    n_rows, n_columns = math.prod(shape[:-1]), shape[-1] // n_blocks
    # Drawn with at least as many rows as columns, as `polar_factor` needs it, and then turned.
    tall = (n_blocks, max(n_rows, n_columns), min(n_rows, n_columns))
    blocks = polar_factor(jax.random.normal(key, tall, jnp.float32))
    rows_first = (1, 0, 2) if n_rows >= n_columns else (2, 0, 1)
    return (gain * blocks.transpose(rows_first)).reshape(shape).astype(dtype)


def chrono(span: int, at: int, n_gates: int, against: int | None = None) -> Initializer:
    """Biases of gates with which a memory's units hold for 1 to `span` - 1 steps (Tallec & Ollivier 2018, section 4).

    `at` is the gate that keeps the carry, of `n_gates` side by side. Its biases are the logarithms of uniform numbers
    between 1 and `span` - 1: with the bias log(b), a unit forgets 1 / (1 + b) of itself in a step. The gate `against`,
    if there is one, gets the opposite, so that what enters a unit is as small as what leaves it. All others are 0.
    """

    def init(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        width = shape[-1] // n_gates
        kept = jnp.log(jax.random.uniform(key, (width,), jnp.float32, 1.0, span - 1.0))
        gates = jnp.zeros((n_gates, width)).at[at].set(kept)
        return (gates if against is None else gates.at[against].set(-kept)).reshape(shape).astype(dtype)

    return init


def polar_factor(x: jax.Array) -> jax.Array:
    """The nearest matrix with orthonormal columns to each x [..., rows >= columns, columns] of full rank.

    The polar factor of a Gaussian matrix is Haar distributed.
    """
    # Only with products of matrices, because batched QR hangs on the CPU backend. By default, accelerators round the
    # factors of a product. The columns would be orthonormal only up to that rounding.
    with jax.default_matmul_precision("float32"):
        # With many rows, nearly all of the work goes to the small matrix x^T x. Its condition number is the square of
        # that of x. That is harmless with many rows, where the columns are far from dependent. For square x, f32 is too
        # coarse.
        if x.shape[-2] >= 4 * x.shape[-1]:
            # One cubic step removes the rounding errors of the root.
            return _towards_orthonormal(x @ inverse_root(x.mT @ x), n_fast=0, n_exact=1)
        x = x / jnp.linalg.norm(x, axis=(-2, -1), keepdims=True)  # all singular values at most 1
        return _towards_orthonormal(x, n_fast=10, n_exact=8)


def _towards_orthonormal(x: jax.Array, n_fast: int, n_exact: int) -> jax.Array:
    """x [..., rows, columns] after Newton-Schulz iterations, which bring all its singular values towards 1.

    First a quintic, which quickly makes small ones larger (Jordan et al. 2024, Muon). It does not converge to 1, but to
    values around it. Then a cubic, which converges to exactly 1.
    """

    def quintic(_: int, x: jax.Array) -> jax.Array:
        gram = x.mT @ x
        return 3.4445 * x + x @ (-4.7750 * gram + 2.0315 * (gram @ gram))

    def cubic(_: int, x: jax.Array) -> jax.Array:
        return 1.5 * x - 0.5 * (x @ (x.mT @ x))

    return jax.lax.fori_loop(0, n_exact, cubic, jax.lax.fori_loop(0, n_fast, quintic, x))


def inverse_root(gram: jax.Array, n_steps: int = 20) -> jax.Array:
    """gram^(-1/2) for positive definite matrices [..., n, n], by the coupled Newton-Schulz iteration (Higham 2008)."""
    scale = jnp.linalg.norm(gram, axis=(-2, -1), keepdims=True)  # no eigenvalue is larger
    identity = jnp.broadcast_to(jnp.eye(gram.shape[-1], dtype=gram.dtype), gram.shape)

    def step(_: int, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        root, inverse = both
        correction = 1.5 * identity - 0.5 * (inverse @ root)
        return root @ correction, correction @ inverse

    return jax.lax.fori_loop(0, n_steps, step, (gram / scale, identity))[1] / jnp.sqrt(scale)

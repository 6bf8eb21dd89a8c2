"""The tanh of a Gaussian, between two bounds."""

import distrax
import jax
import jax.numpy as jnp
import numpy as np

# Close to 1, where the inverse tanh is still finite (7.3).
LARGEST = 1.0 - 1e-6
# E[f(z)] of a standard normal z is sum(weight * f(sqrt(2) node)) / sqrt(pi); exact for polynomials up to degree 63.
NODES, WEIGHTS = np.polynomial.hermite.hermgauss(32)


class Squashed(distrax.Normal):
    """centre + half * tanh(z), z from the Gaussian with `loc` and `scale` (Haarnoja et al. 2018, appendix C)."""

    def __init__(self, loc: jax.Array, scale: jax.Array, centre: float, half: float):
        super().__init__(loc, scale)
        self._centre = centre
        self._half = half

    def _sample_n(self, key: jax.Array, n: int) -> jax.Array:
        return self._squashed(super()._sample_n(key, n))

    def _sample_n_and_log_prob(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        action = self._sample_n(key, n)
        return action, self.log_prob(action)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """The log density. A value at a bound or beyond it counts as just inside."""
        z = jnp.arctanh(jnp.clip((value - self._centre) / self._half, -LARGEST, LARGEST))
        return super().log_prob(z) - log_slope(z) - jnp.log(self._half)

    def entropy(self) -> jax.Array:
        """E[-log p], in nats. There is no closed form, so the expectation is computed by Gauss-Hermite quadrature."""
        nodes, weights = (
            jnp.asarray(x, jnp.float32).reshape(-1, *(1,) * self.loc.ndim)
            for x in (np.sqrt(2) * NODES, WEIGHTS / np.sqrt(np.pi))
        )
        slope = (weights * log_slope(self.loc[None] + nodes * self.scale[None])).sum(axis=0)
        return super().entropy() + slope + jnp.log(self._half)

    def mode(self) -> jax.Array:
        """The Gaussian's mode, squashed. Half of the actions lie below it. (The density may be highest at a bound.)"""
        return self._squashed(self.loc)

    median = mode

    def mean(self) -> jax.Array:
        raise NotImplementedError("the mean of a squashed Gaussian has no closed form: ask for its mode")

    def _squashed(self, z: jax.Array) -> jax.Array:
        return self._centre + self._half * jnp.clip(jnp.tanh(z), -LARGEST, LARGEST)


def log_slope(z: jax.Array) -> jax.Array:
    """log(1 - tanh(z)^2), without losing digits at large z."""
    return 2.0 * (jnp.log(2.0) - z - jax.nn.softplus(-2.0 * z))

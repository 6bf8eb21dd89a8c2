"""Counts that may need more than 32 bits. By default, JAX has no larger integers."""

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct


class Count(struct.PyTreeNode):
    """The number high * 2**32 + low. Both are u32 of the same shape. Sums work with leading axes too."""

    high: jax.Array
    low: jax.Array

    @classmethod
    def zero(cls) -> Self:
        return cls(high=jnp.zeros((), jnp.uint32), low=jnp.zeros((), jnp.uint32))

    def plus(self, n: int | jax.Array) -> Self:
        """This count plus `n`, where 0 <= n < 2**32."""
        return self + type(self)(high=jnp.zeros_like(self.high), low=jnp.asarray(n, jnp.uint32))

    def __add__(self, other: Self) -> Self:
        low = self.low + other.low  # modulo 2**32: it is smaller than a summand exactly if it wrapped
        carried = (low < self.low).astype(jnp.uint32)
        return self.replace(high=self.high + other.high + carried, low=low)

    def number(self) -> np.ndarray:
        """i64, on the host."""
        return (np.asarray(self.high).astype(np.int64) << 32) + np.asarray(self.low).astype(np.int64)

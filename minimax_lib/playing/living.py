"""Worlds in which most agents are dead: only the living are asked what they do."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from minimax_lib import axes

# A network reads a quarter of the rows, or a sixteenth, as soon as no more live. Smaller batches save nothing.
SHARES, FEWEST = (4, 16), 256


@dataclasses.dataclass(frozen=True, eq=False)
class OfLiving:
    """A population of agents that acts only where `living` (bool[A, R]). Elsewhere the action, its log probability and
    the value are 0, and memories stay as they were."""

    agent: Any  # an `AgentPop`
    living: jax.Array

    def act(
        self, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array, Any]:
        """As `Agent.act`."""
        n_rows = self.living.shape[1]
        sizes = [n_rows, *(n_rows // share for share in SHARES if n_rows // share >= FEWEST)]
        n_living = self.living.sum(axis=1, dtype=jnp.int32).max()
        # One answer for all seeds, so that it stays a branch.
        smaller = [~axes.any_seed(n_living > size) for size in sizes[1:]]
        place = sum((x.astype(jnp.int32) for x in smaller), jnp.zeros((), jnp.int32))
        ways = [functools.partial(self._of_rows, size) for size in sizes]
        return jax.lax.switch(place, ways, key, params, obs, carry, first)

    def _of_rows(self, size: int, key: jax.Array, params: Any, obs: Any, carry: Any, first: jax.Array) -> tuple:
        n_rows = self.living.shape[1]
        if size == n_rows:
            return self.agent.act(key, params, obs, carry, first)
        places = jax.vmap(lambda living: jnp.nonzero(living, size=size, fill_value=n_rows)[0])(self.living)
        take = jax.vmap(lambda x, places: x.at[places].get(mode="clip"))
        put = jax.vmap(lambda x, places, new: x.at[places].set(new, mode="drop"))
        seen = jax.tree.map(lambda x: take(x, places), (obs, carry, first))
        *acted, memories = self.agent.act(key, params, *seen)
        whole = jax.tree.map(lambda x: jnp.zeros((len(x), n_rows, *x.shape[2:]), x.dtype), acted)
        acted, memories = jax.tree.map(lambda x, new: put(x, places, new), (whole, carry), (acted, memories))
        return *acted, memories

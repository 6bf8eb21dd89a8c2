"""Counts of events."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.tables import EVENTS


def counted(events: jax.Array, happened: Mapping[str, jax.Array]) -> jax.Array:
    """i32[P, 20], the counts `events` after each of these happened so often (bool or i32 [P]) to each player."""
    # One sum for a whole phase: to add to one column at a time is a scatter, which is slow.
    none = jnp.zeros(len(events), jnp.int32)
    return events + jnp.stack([happened.get(name, none).astype(jnp.int32) for name in EVENTS], axis=1)

"""What happens in a tick: counts of events, and the events themselves where somebody wants to know more."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.tables import EVENTS


class Happened(struct.PyTreeNode):
    """Events of one name. All arrays have one shape, whose first axis is that of players unless `who` is given.

    What an event does not have is None.
    """

    name: str = struct.field(pytree_node=False)
    there: jax.Array  # bool[P, ...], whether it happened
    who: Any = None  # i32[n], the player to whom it happened; None: the one of the row
    thing: Any = None  # i32, see `things`
    skill: Any = None  # i32, from 0
    level: Any = None  # i32
    number: Any = None  # i32
    gold: Any = None  # i32
    target: Any = None  # i32, an entity
    is_counted: bool = struct.field(pytree_node=False, default=False)  # it is in the counts already


def counted(events: jax.Array, happened: Mapping[str, jax.Array]) -> jax.Array:
    """i32[P, 20], the counts `events` after each of these happened so often (bool or i32 [P]) to each player."""
    # One sum for a whole phase: to add to one column at a time is a scatter, which is slow.
    none = jnp.zeros(len(events), jnp.int32)
    return events + jnp.stack([happened.get(name, none).astype(jnp.int32) for name in EVENTS], axis=1)


def summed(happened: Happened, amount: jax.Array, n_players: int) -> jax.Array:
    """i32[P], the sum of `amount` (of the shape of the events) over each player's events."""
    amount = jnp.where(happened.there, amount, 0).astype(jnp.int32)
    if happened.who is not None:
        return jnp.zeros(n_players, jnp.int32).at[happened.who].add(amount)
    return amount.reshape(n_players, -1).sum(axis=1)


def counts_of(happened: Sequence[Happened], n_players: int) -> dict[str, jax.Array]:
    """i32[P] by name, how often each of the events that are not counted yet happened to each player."""
    counts: dict[str, jax.Array] = {}
    for one in (one for one in happened if not one.is_counted):
        number = summed(one, jnp.ones_like(one.there, jnp.int32), n_players)
        counts[one.name] = counts[one.name] + number if one.name in counts else number
    return counts

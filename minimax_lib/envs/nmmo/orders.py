"""What players do in a tick, with everything looked up that an action means."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct


class Orders(struct.PyTreeNode):
    """Of P players. Slots, entities and listings are -1 where nothing is done. What belongs to no system is None."""

    move: jax.Array  # i32[P, 2], the step
    target: jax.Array  # i32[P], the entity that is attacked
    style: jax.Array  # i32[P]
    use: Any = None  # i32[P], a slot, like the next one
    destroy: Any = None
    give: Any = None  # i32[P], a slot
    give_to: Any = None  # i32[P], an entity
    gold: Any = None  # i32[P], the amount that is given
    gold_to: Any = None  # i32[P], an entity
    sell: Any = None  # i32[P], a slot
    price: Any = None  # i32[P], 1 to 99
    buy: Any = None  # i32[P], a listing (see `market.shelf`)


def or_none(choice: jax.Array, n: int) -> jax.Array:
    """i32[P], the choices 0 .. n-1; n, which is "none", becomes -1."""
    return jnp.where(choice < n, choice, -1)

"""What predicates look at: a world as arrays, and the members of a group."""

from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct


class View(struct.PyTreeNode):
    """A world at the end of a tick: P players, N NPCs, E = P + N. What no predicate of a list asks for is never
    computed: the compiler leaves it out."""

    tick: jax.Array  # i32[]
    horizon: jax.Array  # i32[]
    half: jax.Array  # i32[], half the side of the centre part of the map
    middle: jax.Array  # i32[], row and column of the centre tile
    position: jax.Array  # i32[P, 2]
    spawn: jax.Array  # i32[P, 2]
    alive: jax.Array  # bool[P]
    level: jax.Array  # i32[P, 8] by skill
    experience: jax.Array  # i32[P, 8]
    gold: jax.Array  # i32[P]
    events: jax.Array  # i32[P, 20], counts, places as `tables.EVENTS`
    tiles: jax.Array  # u8[P, 15, 15], what each player sees
    sees: jax.Array  # bool[P, E]
    thing: jax.Array  # i32[P, 12], -1: none
    quantity: jax.Array  # i32[P, 12]
    worn: jax.Array  # bool[P, 12]
    n_things: jax.Array  # i32[P], slots of the pack that are taken
    kills: jax.Array  # i32[P, 2, 11], players and NPCs that it killed, by attack level
    hits: jax.Array  # i32[P, 3], attacks by style
    earned: jax.Array  # i32[P, 3], gold from sales, gold from the dead, gold spent
    seized: jax.Array  # i32[Z, 3], of each tile to seize: its row and column as one number, who took it last, and when


class Members(Protocol):
    """Who is in the group of each of n evaluations. `x` are values of players, [P, ...]; the results are [n, ...]."""

    def total(self, x: jax.Array) -> jax.Array:
        """The sum over all members, the dead too."""

    def count(self, there: jax.Array) -> jax.Array:
        """i32[n], for how many members this holds (bool[P])."""

    def any(self, there: jax.Array) -> jax.Array:
        """bool[n, ...], whether it holds for one of them (bool[P, ...])."""

    def aims(self, x: jax.Array) -> jax.Array:
        """[n, P or 1, ...], the values of members beside each other; see `inside`."""

    def inside(self, there: jax.Array) -> jax.Array:
        """bool[n, P or 1], which of the values of `aims` belong to members for whom this holds (bool[P])."""


LARGE = 2**20  # more than any distance


class Alone(struct.PyTreeNode):
    """Groups of one player each: player `who` (i32[n]); None: player i in evaluation i."""

    who: jax.Array | None = None

    def total(self, x: jax.Array) -> jax.Array:
        return x if self.who is None else x[self.who]

    def count(self, there: jax.Array) -> jax.Array:
        return self.total(there).astype(jnp.int32)

    def any(self, there: jax.Array) -> jax.Array:
        return self.total(there)

    def aims(self, x: jax.Array) -> jax.Array:
        return self.total(x)[:, None]

    def inside(self, there: jax.Array) -> jax.Array:
        return self.total(there)[:, None]


class Groups(struct.PyTreeNode):
    """Groups of several players."""

    mask: jax.Array  # bool[n, P]

    def total(self, x: jax.Array) -> jax.Array:
        return jnp.tensordot(self.mask.astype(jnp.int32), x.astype(jnp.int32), axes=1)

    def count(self, there: jax.Array) -> jax.Array:
        return self.total(there)

    def any(self, there: jax.Array) -> jax.Array:
        return self.total(there) > 0

    def aims(self, x: jax.Array) -> jax.Array:
        return jnp.broadcast_to(x[None], (len(self.mask), *x.shape))

    def inside(self, there: jax.Array) -> jax.Array:
        return self.mask & there[None, :]

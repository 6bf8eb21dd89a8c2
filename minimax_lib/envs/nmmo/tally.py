"""What is summed up of a life for its task: kills, hits, gold, events of things. Only what a list asks for is kept."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.events import Happened, summed
from minimax_lib.envs.nmmo.predicates import ITEM_EVENTS
from minimax_lib.envs.nmmo.tables import N_STYLES
from minimax_lib.envs.nmmo.things import kind_of, thing_level
from minimax_lib.envs.nmmo.view import Members

N_LEVELS = 11  # attack levels 0 to 10


class Tally(struct.PyTreeNode):
    """Sums of P players since the world began. Those that no task of the list needs are None."""

    kills: jax.Array | None  # i32[P, 2, 11], of players and NPCs, by attack level
    hits: jax.Array | None  # i32[P, 3], by style
    gold: jax.Array | None  # i32[P, 3], from sales, from the dead, and spent
    parts: jax.Array | None  # i32[P, L], events that the leaves of the player's own task ask for
    packed: jax.Array | None = None  # i32[P], slots taken when it was last alive: with a death, the pack is lost


NEEDS = {
    "kills": ("DefeatEntity",),
    "hits": ("ScoreHit",),
    "gold": ("EarnGold", "SpendGold", "MakeProfit"),
    "parts": tuple(ITEM_EVENTS),
    "packed": ("InventorySpaceGE",),
}


def empty_tally(predicates: Sequence[str], own: bool, n_players: int, n_leaves: int) -> Tally | None:
    """Sums at the start, for a list that names these predicates; None if it needs none. A user's `own` predicate may
    look at all of them."""
    shapes = {"kills": (2, N_LEVELS), "hits": (N_STYLES,), "gold": (3,), "parts": (n_leaves,), "packed": ()}
    needed = {
        name: any(predicate in predicates for predicate in by) or (own and name != "parts")
        for name, by in NEEDS.items()
    }
    if not any(needed.values()):
        return None
    return Tally(
        **{name: jnp.zeros((n_players, *shape), jnp.int32) if needed[name] else None for name, shape in shapes.items()}
    )


def tallied(tally: Tally, happened: Sequence[Happened], n_players: int) -> Tally:
    """The sums after the events of a tick, without those of `parts`."""
    by_name: dict[str, list[Happened]] = {}
    for one in happened:
        by_name.setdefault(one.name, []).append(one)

    def total(name: str, column: str) -> jax.Array:
        events = by_name.get(name, [])
        return sum((summed(one, getattr(one, column), n_players) for one in events), jnp.zeros(n_players, jnp.int32))

    if tally.gold is not None:
        gained = [total("EARN_GOLD", "gold"), total("LOOT_GOLD", "gold"), total("BUY_ITEM", "gold")]
        tally = tally.replace(gold=tally.gold + jnp.stack(gained, axis=1))
    for one in by_name.get("SCORE_HIT", []):
        if tally.hits is not None:
            tally = tally.replace(hits=tally.hits + _marked(one.there, one.skill, N_STYLES))
    for one in by_name.get("PLAYER_KILL", []):
        if tally.kills is not None:
            kind = (one.target >= n_players) * N_LEVELS + jnp.clip(one.level, 0, N_LEVELS - 1)
            marks = _marked(one.there, kind, 2 * N_LEVELS)
            tally = tally.replace(kills=tally.kills + marks.reshape(tally.kills.shape))
    return tally


def _marked(there: jax.Array, place: jax.Array, n: int) -> jax.Array:
    """i32[P, n], 1 at a place of each row (i32[P]) where it is there (bool[P])."""
    return (there[:, None] & (place[:, None] == jnp.arange(n, dtype=jnp.int32)[None, :])).astype(jnp.int32)


def matching(happened: Sequence[Happened], name: str, kind: jax.Array, level: jax.Array, members: Members) -> jax.Array:
    """i32[P], how much these events add to leaves that ask for a thing of this kind and level (i32[P] each), as done
    by their members."""
    found = jnp.zeros_like(kind)
    for one in happened:
        if one.name == name:
            thing, number = members.aims(one.thing), members.aims(one.number)
            fits = members.inside(one.there) & (kind_of(thing) == kind[:, None])
            fits &= thing_level(thing) >= level[:, None]
            found += jnp.where(fits, number, 0).sum(axis=1, dtype=jnp.int32)
    return found

"""Which actions an agent may take, by what it was told last."""

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.goods import has_stacks, n_free
from minimax_lib.envs.nmmo.ground import passable
from minimax_lib.envs.nmmo.market import prices
from minimax_lib.envs.nmmo.observation import COLUMNS, PLAYER, in_combat
from minimax_lib.envs.nmmo.state import EnvState
from minimax_lib.envs.nmmo.tables import DIRECTIONS, REACH, VISION
from minimax_lib.envs.nmmo.things import NOTHING, usable


def move_mask(state: EnvState) -> jax.Array:
    """bool[P, 5], the steps that lead onto a passable tile, and staying."""
    to = state.players.position[:, None, :] + jnp.asarray(DIRECTIONS)[None]
    return passable(state.level.terrain[to[..., 0], to[..., 1]])


def target_mask(seen: jax.Array, near: jax.Array, immunity: int, may_hold_fire: bool) -> jax.Array:
    """bool[P, K + 1], the neighbours that a player may attack; the last entry is "none".

    `seen` (u8[P, K, 16]) is what it is told of them, `near` (i16[P, K]) who they are. As in the reference, "none" is
    forbidden where there is somebody to attack, unless `may_hold_fire`.
    """
    kind, row, column, age = (seen[..., COLUMNS.index(name)] for name in ("kind", "row", "column", "age"))
    here = VISION + 1
    close = (row >= here - REACH) & (row <= here + REACH) & (column >= here - REACH) & (column <= here + REACH)
    spared = (kind == PLAYER) & (age < immunity)
    itself = near == jnp.arange(len(near), dtype=near.dtype)[:, None]
    allowed = (kind > 0) & close & ~spared & ~itself
    none = jnp.ones(len(near), bool) if may_hold_fire else ~allowed.any(axis=1)
    return jnp.concatenate([allowed, none[:, None]], axis=1)


def with_none(allowed: jax.Array) -> jax.Array:
    """bool[P, n + 1], with "none" as the last value, which is always allowed."""
    return jnp.pad(allowed, ((0, 0), (0, 1)), constant_values=True)


def at_peace(state: EnvState) -> jax.Array:
    """bool[P, 1], who was not in a fight lately. In one, nothing can be done with goods."""
    return ~in_combat(state.players.last_combat, state.tick)[:, None]


def goods_masks(state: EnvState, market: bool) -> dict[str, jax.Array]:
    """bool[P, 13] by name, the slots that players may use, destroy, give, and with a market sell."""
    goods, peace = state.goods, at_peace(state)
    there = (goods.thing >= 0) & peace
    unbound = there & ~goods.worn
    may_go = unbound & (goods.price == 0)
    may_use = there & (goods.price == 0) & usable(goods.thing, state.players.experience)
    masks = {"use": may_use, "destroy": unbound, "give": may_go} | ({"sell": may_go} if market else {})
    return {name: with_none(mask) for name, mask in masks.items()}


def receiver_masks(state: EnvState, seen: jax.Array, market: bool) -> dict[str, jax.Array]:
    """bool[P, K + 1] by name, the neighbours to whom players may give things, and with a market gold.

    `seen` (u8[P, K, 16]) is what they are told of them. As in the reference, who has less than 3 gold gives none.
    """
    itself = state.near == jnp.arange(len(state.near), dtype=state.near.dtype)[:, None]
    others = (seen[..., COLUMNS.index("kind")] == PLAYER) & ~itself & at_peace(state)
    masks = {"give_to": others} | ({"gold_to": others & (state.players.gold > 2)[:, None]} if market else {})
    return {name: with_none(mask) for name, mask in masks.items()}


def buy_mask(state: EnvState) -> jax.Array:
    """bool[P, 161], the things that players may buy: for sale, not too dear, and there is room."""
    goods = state.goods
    price = prices(goods, state.shelf)
    affordable = (price > 0) & (price <= state.players.gold[:, None])
    # A stack that is listed may be sold in the same moment, so it makes no room (`market.bought`).
    kept = goods.replace(thing=jnp.where(goods.price == 0, goods.thing, NOTHING))
    room = (n_free(goods) > 0)[:, None] | has_stacks(kept)
    return with_none(affordable & room & at_peace(state))

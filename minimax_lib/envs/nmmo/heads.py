"""The choices of an agent: which there are, which of their values are allowed, and what they mean."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.goods import N_SLOTS
from minimax_lib.envs.nmmo.market import PRICE_MAX, for_sale
from minimax_lib.envs.nmmo.masks import buy_mask, goods_masks, move_mask, receiver_masks, target_mask
from minimax_lib.envs.nmmo.orders import Orders, or_none
from minimax_lib.envs.nmmo.state import NOBODY, EnvState
from minimax_lib.envs.nmmo.tables import DIRECTIONS, N_STYLES
from minimax_lib.envs.nmmo.things import N_THINGS
from minimax_lib.envs.nmmo.tick import Rules
from minimax_lib.envs.spaces import Box, Discrete, Space

# Heads whose last value is "none". All but the first may be left alone always.
WITH_NONE = ("target", "use", "destroy", "give", "give_to", "gold_to", "sell", "buy")


def heads_of(rules: Rules, n_neighbours: int) -> tuple[tuple[str, Space], ...]:
    """The choices by name: a step; with fights whom to attack and how; with goods what to do with them."""
    slots, others = Discrete(N_SLOTS + 1), Discrete(n_neighbours + 1)
    heads: tuple[tuple[str, Space], ...] = (("move", Discrete(len(DIRECTIONS))),)
    if rules.combat:
        heads += (("target", others), ("style", Discrete(N_STYLES)))
    if rules.items:
        heads += (("use", slots), ("destroy", slots), ("give", slots), ("give_to", others))
    if rules.market:
        coins = Discrete(PRICE_MAX)
        heads += (("gold", coins), ("gold_to", others), ("sell", slots), ("price", coins))
        heads += (("buy", Discrete(N_THINGS + 1)),)
    return heads


def mask_spaces(heads: tuple[tuple[str, Space], ...]) -> tuple[tuple[str, Space], ...]:
    """The masks by name: of the step, and of all choices that may be "none"."""
    return tuple((name, Box(0, 1, (head.n,), "bool")) for name, head in heads if name == "move" or name in WITH_NONE)  # type: ignore[union-attr]


def masks_of(state: EnvState, seen: jax.Array, rules: Rules, may_hold_fire: bool) -> dict[str, jax.Array]:
    """bool[P, n] by name. `seen` (u8[P, K, 16]) is what players are told of their neighbours."""
    masks = {"move": move_mask(state)}
    if rules.combat:
        masks["target"] = target_mask(seen, state.near, rules.spawn_immunity, may_hold_fire)
    if rules.items:
        masks |= goods_masks(state, rules.market) | receiver_masks(state, seen, rules.market)
    if rules.market:
        masks["buy"] = buy_mask(state)
    return masks


def orders_of(state: EnvState, action: Mapping[str, jax.Array], rules: Rules) -> Orders:
    """What actions (i32[P] by name) mean, by what the agents were told last."""
    n = len(state.near)
    nobody = jnp.full(n, NOBODY, jnp.int32)
    orders = Orders(move=jnp.asarray(DIRECTIONS)[action["move"]], target=nobody, style=jnp.zeros_like(nobody))
    if rules.combat:
        orders = orders.replace(target=_neighbour(state, action["target"]), style=action["style"])
    if rules.items:
        slots = {name: or_none(action[name], N_SLOTS) for name in ("use", "destroy", "give")}
        orders = orders.replace(**slots, give_to=_neighbour(state, action["give_to"]))
    if rules.market:
        sale = for_sale(state.shelf, n)
        listing = jnp.take_along_axis(sale, jnp.minimum(action["buy"], N_THINGS - 1)[:, None], axis=1)[:, 0]
        orders = orders.replace(
            gold=action["gold"] + 1,
            gold_to=_neighbour(state, action["gold_to"]),
            sell=or_none(action["sell"], N_SLOTS),
            price=action["price"] + 1,
            buy=jnp.where(action["buy"] < N_THINGS, listing, NOBODY),
        )
    return orders


def _neighbour(state: EnvState, choice: jax.Array) -> jax.Array:
    """i32[P], the entity that each player chose of its neighbours; the last choice is nobody."""
    none = jnp.full((len(state.near), 1), NOBODY, jnp.int16)
    listed = jnp.concatenate([state.near, none], axis=1)
    return jnp.take_along_axis(listed, choice[:, None], axis=1)[:, 0].astype(jnp.int32)

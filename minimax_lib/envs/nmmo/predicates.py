"""The predicates of Neural MMO 2: how far something has come, from 0 to 1, for the members of a group.

A predicate is a function of what there is to see (`View`), of the members of n groups, and of n sets of numbers
(`Numbers`). All of it is computed at once.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from minimax_lib.envs.nmmo.things import (
    BOTTOM,
    HAT,
    SPEAR,
    TOP,
    WHETSTONE,
    kind_of,
    thing_level,
)
from minimax_lib.envs.nmmo.view import LARGE, Members, View


class Numbers(struct.PyTreeNode):
    """The arguments of n leaves. Which of them a predicate reads, and what for, is in `arguments.ARGUMENTS`."""

    kind: jax.Array  # i32[n]
    level: jax.Array  # i32[n]
    amount: jax.Array  # f32[n]
    share: jax.Array  # f32[n], a second amount
    target: jax.Array  # i32[n], an entity
    group: jax.Array  # bool[n, P], players that are meant
    counted: jax.Array  # i32[n], events so far of the things that the leaf asks for (`tally`)


Predicate = Callable[[View, Members, Numbers], jax.Array]
ALIVE, DEAD = 0, 1  # kinds of `CheckAgentStatus`


def part(numerator: jax.Array, denominator: jax.Array | float) -> jax.Array:
    """f32[n], the quotient within 0 and 1."""
    return jnp.clip(numerator / denominator, 0.0, 1.0).astype(jnp.float32)


def is_true(x: jax.Array) -> jax.Array:
    """f32[n], 1 or 0."""
    return x.astype(jnp.float32)


def chosen(x: jax.Array, place: jax.Array) -> jax.Array:
    """[n], one entry of each row of x [n, m]."""
    return jnp.take_along_axis(x, place[:, None], axis=1)[:, 0]


def success(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return jnp.ones_like(numbers.amount)


def tick_ge(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(view.tick, numbers.amount)


def stay_alive(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return is_true(members.count(view.alive) == members.count(jnp.ones_like(view.alive)))


def all_dead(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(members.count(~view.alive), members.count(jnp.ones_like(view.alive)))


def check_agent_status(view: View, members: Members, numbers: Numbers) -> jax.Array:
    right = view.alive[None, :] == (numbers.kind == ALIVE)[:, None]
    return part((numbers.group & right).sum(axis=1), jnp.maximum(numbers.group.sum(axis=1), 1))


def can_see_tile(view: View, members: Members, numbers: Numbers) -> jax.Array:
    kinds = jnp.arange(16, dtype=view.tiles.dtype)
    seen = (view.tiles.reshape(len(view.tiles), -1)[:, :, None] == kinds[None, None]).any(axis=1)  # bool[P, 16]
    return is_true(chosen(members.any(seen), numbers.kind))


def can_see_agent(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return is_true(chosen(members.any(view.sees), numbers.target))


def can_see_group(view: View, members: Members, numbers: Numbers) -> jax.Array:
    n_players = numbers.group.shape[1]
    return is_true((members.any(view.sees)[:, :n_players] & numbers.group).any(axis=1))


def occupy_tile(view: View, members: Members, numbers: Numbers) -> jax.Array:
    place = jnp.stack([numbers.kind, numbers.level], axis=1)[:, None]
    there = (members.aims(view.position) == place).all(axis=2)
    return is_true((there & members.inside(view.alive)).any(axis=1))


def distance_traveled(view: View, members: Members, numbers: Numbers) -> jax.Array:
    way = jnp.abs(view.position - view.spawn).max(axis=1)
    return part(members.total(jnp.where(view.alive, way, 0)), numbers.amount)


def attain_skill(view: View, members: Members, numbers: Numbers) -> jax.Array:
    level = chosen(members.total(jnp.where(view.alive[:, None], view.level - 1, 0)), numbers.kind)
    wanted = jnp.maximum(numbers.level - 1, 1) * numbers.amount
    return jnp.where(numbers.level <= 1, 1.0, part(level, wanted))


def gain_experience(view: View, members: Members, numbers: Numbers) -> jax.Array:
    gained = chosen(members.total(jnp.where(view.alive[:, None], view.experience, 0)), numbers.kind)
    return part(gained, numbers.amount * numbers.share)


def count_event(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(chosen(members.total(view.events), numbers.kind), numbers.amount)


def score_hit(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(chosen(members.total(view.hits), numbers.kind), numbers.amount)


def defeat_entity(view: View, members: Members, numbers: Numbers) -> jax.Array:
    at_least = jnp.cumsum(view.kills[..., ::-1], axis=-1)[..., ::-1]  # of this level and above
    kills = chosen(members.total(at_least.reshape(len(at_least), -1)), numbers.kind * 11 + numbers.level)
    return jnp.where(numbers.amount <= 0, 1.0, part(kills, jnp.maximum(numbers.amount, 1)))


def hoard_gold(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(members.total(jnp.where(view.alive, view.gold, 0)), numbers.amount)


def earn_gold(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(members.total(view.earned[:, 0] + view.earned[:, 1]), numbers.amount)


def spend_gold(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(members.total(view.earned[:, 2]), numbers.amount)


def make_profit(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return part(members.total(view.earned[:, 0] + view.earned[:, 1] - view.earned[:, 2]), numbers.amount)


def inventory_space_ge(view: View, members: Members, numbers: Numbers) -> jax.Array:
    space = 12 - members.aims(view.n_things)
    lacks = (space < numbers.amount[:, None]) & members.inside(jnp.ones_like(view.alive))
    return is_true(~lacks.any(axis=1))


def _of_kind(view: View, members: Members, numbers: Numbers) -> jax.Array:
    """bool[n, P or 1, 12], the things that a leaf asks for."""
    thing = members.aims(view.thing)
    is_kind = (kind_of(thing) == numbers.kind[:, None, None]) & (thing_level(thing) >= numbers.level[:, None, None])
    return is_kind & (thing >= 0) & members.inside(view.alive)[..., None]


def own_item(view: View, members: Members, numbers: Numbers) -> jax.Array:
    there = _of_kind(view, members, numbers)
    return part(jnp.where(there, members.aims(view.quantity), 0).sum(axis=(1, 2)), numbers.amount)


def equip_item(view: View, members: Members, numbers: Numbers) -> jax.Array:
    worn = _of_kind(view, members, numbers) & members.aims(view.worn)
    found = part(worn.any(axis=2).sum(axis=1), jnp.maximum(numbers.amount, 1))
    return jnp.where(numbers.amount <= 0, 1.0, found)


def fully_armed(view: View, members: Members, numbers: Numbers) -> jax.Array:
    thing, worn = members.aims(view.thing), members.aims(view.worn)
    kind, high = kind_of(thing), (thing_level(thing) >= numbers.level[:, None, None]) & worn
    style = numbers.kind[:, None, None]
    wanted = [HAT, TOP, BOTTOM, SPEAR + style, WHETSTONE + style]
    armed = members.inside(view.alive)
    for one in wanted:
        armed = armed & ((kind == one) & high).any(axis=2)
    return jnp.where(numbers.amount <= 0, 1.0, part(armed.sum(axis=1), jnp.maximum(numbers.amount, 1)))


def item_events(view: View, members: Members, numbers: Numbers) -> jax.Array:
    """Of ConsumeItem, HarvestItem, FireAmmo, ListItem and BuyItem: `counted` has the sum already."""
    return part(numbers.counted, numbers.amount)


def _to(view: View, members: Members, row: jax.Array, column: jax.Array) -> jax.Array:
    """i32[n], the least distance of a living member to a tile; LARGE if nobody lives."""
    place = jnp.stack([row, column], axis=1)[:, None]
    distance = jnp.abs(members.aims(view.position) - place).max(axis=2)
    return jnp.where(members.inside(view.alive), distance, LARGE).min(axis=1)


def progress_toward_center(view: View, members: Members, numbers: Numbers) -> jax.Array:
    middle = jnp.broadcast_to(view.middle, numbers.kind.shape)
    distance = _to(view, members, middle, middle)
    return jnp.where(distance == LARGE, 0.0, jnp.clip(1.0 - distance / view.half, 0.0, 1.0))


def all_members_within_range(view: View, members: Members, numbers: Numbers) -> jax.Array:
    there, place = members.inside(view.alive)[..., None], members.aims(view.position)
    n = jnp.maximum(there.sum(axis=1), 1)
    low = jnp.where(there, place, LARGE).min(axis=1)
    high = jnp.where(there, place, -LARGE).max(axis=1)
    spread = (high - low).max(axis=1)
    mean = jnp.where(there, place, 0).sum(axis=1) / n
    variance = jnp.where(there, (place - mean[:, None]) ** 2, 0.0).sum(axis=1) / n
    limit = numbers.amount
    near = (2 * view.half - spread) / jnp.maximum(2 * view.half - limit, 1)
    wide = 3 * jnp.sqrt(variance)
    # A limit of 0 must not be divided by 0 where all stand in one row.
    parts = [near, *(jnp.where(wide[:, k] <= limit, 1.0, limit / jnp.maximum(wide[:, k], 1e-6)) for k in range(2))]
    found = jnp.where(spread <= limit, 1.0, jnp.clip(sum(parts) / 3, 0.0, 1.0))
    return jnp.where((limit < 0) | ~there.any(axis=(1, 2)), 0.0, found).astype(jnp.float32)


def protect_leader(view: View, members: Members, numbers: Numbers) -> jax.Array:
    return jnp.where(view.alive[numbers.target], part(view.tick, view.horizon), 0.0)


TILE_ROW = 2048  # rows and columns as one number; the widest map has 1,056 columns
SEIZED = 0.3  # of a tile that was taken just now, in addition to the share for coming near


def seize_tile(view: View, members: Members, numbers: Numbers) -> jax.Array:
    """Coming near pays up to `share`, taking the tile `SEIZED` more, and holding it for `amount` ticks the rest."""
    row, column = numbers.target // TILE_ROW, numbers.target % TILE_ROW
    near = part(numbers.share * (1.0 - _to(view, members, row, column) / view.half), 1.0)
    which = (numbers.target[:, None] == view.seized[None, :, 0]).argmax(axis=1)
    who, since = view.seized[which, 1], view.seized[which, 2]
    n_players = len(view.alive)
    is_member = members.aims(jnp.arange(n_players, dtype=jnp.int32)) == who[:, None]
    ours = (is_member & members.inside(jnp.ones_like(view.alive))).any(axis=1)
    first = numbers.share + SEIZED
    held = part(first + (1.0 - first) * (view.tick - since) / numbers.amount, 1.0)
    return jnp.where(members.count(view.alive) == 0, 0.0, jnp.where(ours, held, near))


PREDICATES: dict[str, Predicate] = {
    "TickGE": tick_ge,
    "CountEvent": count_event,
    "Success": success,
    "StayAlive": stay_alive,
    "AllDead": all_dead,
    "CheckAgentStatus": check_agent_status,
    "CanSeeTile": can_see_tile,
    "CanSeeAgent": can_see_agent,
    "CanSeeGroup": can_see_group,
    "OccupyTile": occupy_tile,
    "DistanceTraveled": distance_traveled,
    "AttainSkill": attain_skill,
    "GainExperience": gain_experience,
    "ScoreHit": score_hit,
    "DefeatEntity": defeat_entity,
    "HoardGold": hoard_gold,
    "EarnGold": earn_gold,
    "SpendGold": spend_gold,
    "MakeProfit": make_profit,
    "InventorySpaceGE": inventory_space_ge,
    "OwnItem": own_item,
    "EquipItem": equip_item,
    "FullyArmed": fully_armed,
    "ConsumeItem": item_events,
    "HarvestItem": item_events,
    "FireAmmo": item_events,
    "ListItem": item_events,
    "BuyItem": item_events,
    "ProgressTowardCenter": progress_toward_center,
    "AllMembersWithinRange": all_members_within_range,
    "SeizeTile": seize_tile,
    "SeizeCenter": seize_tile,
    "SeizeQuadCenter": seize_tile,
    "ProtectLeader": protect_leader,
}
# The events that these count, whose sums are kept for each leaf of a player's task.
ITEM_EVENTS = {
    "ConsumeItem": "CONSUME_ITEM",
    "HarvestItem": "HARVEST_ITEM",
    "FireAmmo": "FIRE_AMMO",
    "ListItem": "LIST_ITEM",
    "BuyItem": "BUY_ITEM",
}
SEIZES = ("SeizeTile", "SeizeCenter", "SeizeQuadCenter")

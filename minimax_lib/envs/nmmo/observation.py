"""What an agent sees: the tiles round it, its neighbours, itself, its pack, the market, and its task."""

import itertools

import jax
import jax.numpy as jnp

from minimax_lib.envs.nmmo.ground import shown
from minimax_lib.envs.nmmo.market import prices
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import EnvState
from minimax_lib.envs.nmmo.tables import COMBAT_STATUS, FULL, N_STYLES, THRESHOLDS, VISION
from minimax_lib.envs.nmmo.tasks import TaskList
from minimax_lib.envs.nmmo.teams import Teams
from minimax_lib.envs.nmmo.things import N_THINGS, thing_level, type_id

VIEW = 2 * VISION + 1
N_COLUMNS = 16
PLAYER = 1  # a kind
MATE, FOE = 1, 2  # of the column "team"
N_SELF = 32
N_TASK = 28
N_PACK = 6
N_MARKET = 2
COLUMNS = (
    "kind",  # 0 nobody, 1 a player, 2 to 4 a passive, neutral, aggressive NPC
    "row",  # relative to the agent, plus 8
    "column",
    "health",
    "food",
    "water",
    "gold",  # 255 at most
    "melee",  # levels
    "range",
    "mage",
    "item_level",  # 0 without goods
    "age",  # 255 at most
    "damage",  # of the last hit on it in the last tick
    "attacks_me",
    "in_combat",
    "team",  # 1 of a player of the same team, 2 of another one; 0 of NPCs, and without teams
)


def tiles(state: EnvState) -> jax.Array:
    """u8[P, 15, 15, 1], the materials round each player, as they show."""
    seen = shown(state.level.terrain, state.ground.ready_at, state.tick)
    corners = state.players.position - VISION

    def view(corner: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(seen, (corner[0], corner[1]), (VIEW, VIEW))

    return jax.vmap(view)(corners)[..., None]


def in_combat(last_combat: jax.Array, tick: jax.Array) -> jax.Array:
    """bool[...], an attack by or on it was made in the last ticks."""
    return (last_combat > 0) & (tick - last_combat < COMBAT_STATUS)


def rows(state: EnvState) -> jax.Array:
    """i32[E, 16], the columns of every entity. Places are absolute yet, and `attacks_me` is 0."""
    players, npcs = state.players, state.npcs
    n, n_npcs = len(players.alive), len(npcs.alive)
    fighting = in_combat(players.last_combat, state.tick)
    zero, one = jnp.zeros(n, jnp.int32), jnp.ones(n, jnp.int32)
    levels = level_of(players.experience[:, :N_STYLES])
    of_players = [one, *players.position.T, players.health, players.food, players.water, players.gold, *levels.T]
    item_level = zero if state.goods is None else state.goods.item_level
    of_players += [item_level, players.age, players.damage, zero, fighting.astype(jnp.int32), zero]
    none = jnp.zeros(n_npcs, jnp.int32)
    of_npcs = [npcs.kind + 1, *npcs.position.T, npcs.health, none, none, npcs.gold]
    of_npcs += [jnp.where(npcs.style == style, npcs.level, 0) for style in range(N_STYLES)]
    of_npcs += [none, none, npcs.damage, none, in_combat(npcs.last_combat, state.tick).astype(jnp.int32), none]
    return jnp.concatenate([jnp.stack(of_players, axis=1), jnp.stack(of_npcs, axis=1)])


def entities(state: EnvState, teams: Teams | None = None) -> jax.Array:
    """u8[P, K, 16], the neighbours of each player by `COLUMNS`."""
    near = state.near.astype(jnp.int32)
    row = rows(state)[jnp.maximum(near, 0)]
    # Sums of whole rows: to write into single columns is a scatter, which is slow.
    here = jnp.pad(state.players.position - (VISION + 1), ((0, 0), (1, N_COLUMNS - 3)))
    attacks_me = (near == state.players.attacker[:, None]).astype(jnp.int32)
    column = jnp.arange(N_COLUMNS, dtype=jnp.int32) == COLUMNS.index("attacks_me")
    row = row - here[:, None, :] + attacks_me[..., None] * column[None, None, :]
    if teams is not None:
        n, of = len(near), jnp.asarray(teams.of)
        team = jnp.where(near < n, jnp.where(of[jnp.clip(near, 0, n - 1)] == of[:, None], MATE, FOE), 0)
        column = jnp.arange(N_COLUMNS, dtype=jnp.int32) == COLUMNS.index("team")
        row += team[..., None] * column[None, None, :]
    return jnp.where((near >= 0)[..., None], jnp.clip(row, 0, 255), 0).astype(jnp.uint8)


def bounds_of(experience: jax.Array) -> tuple[jax.Array, jax.Array]:
    """i32[...] each: the experience at which this level began, and at which the next one begins."""
    bounds = [*THRESHOLDS.tolist(), 2 * int(THRESHOLDS[-1])]
    least, next_one = jnp.zeros_like(experience), jnp.full_like(experience, bounds[1])
    for bound, after in itertools.pairwise(bounds[1:]):
        least = jnp.where(experience >= bound, bound, least)
        next_one = jnp.where(experience >= bound, after, next_one)
    return least, next_one


def itself(state: EnvState, square: Square, immunity: int) -> jax.Array:
    """f32[P, 32] in [-1, 1], an agent's own row in full: body, place, time, fights, and each skill's level and
    share of the way to the next one."""
    players, tick = state.players, state.tick
    half = square.centre // 2
    level = level_of(players.experience)
    least, next_one = bounds_of(players.experience)
    to_spawn = jnp.abs(players.position - state.level.spawn.astype(jnp.int32)).max(axis=1)
    columns = [
        *(x / FULL for x in (players.health, players.food, players.water, players.gold, players.damage)),
        players.age / state.horizon,
        jnp.broadcast_to(tick / state.horizon, players.age.shape),
        *((players.position - square.middle) / half).T,
        square.to_middle(players.position) / half,
        to_spawn / square.centre,
        in_combat(players.last_combat, tick),
        players.age < immunity,
        players.attacker >= 0,
        players.farthest / half,
        players.resilient,
        *(level / 10).T,
        *((players.experience - least) / (next_one - least)).T,
    ]
    return jnp.clip(jnp.stack([column.astype(jnp.float32) for column in columns], axis=1), -1, 1)


def pack(state: EnvState, may_use: jax.Array) -> jax.Array:
    """u8[P, 12, 6], each slot's kind (the reference's number, 0: empty), level, quantity (255 at most), price, whether
    it is worn and whether it can be used now (`may_use`, bool[P, 12])."""
    goods = state.goods
    there = goods.thing >= 0
    columns = [type_id(goods.thing), thing_level(goods.thing), jnp.minimum(goods.quantity, 255), goods.price]
    columns += [goods.worn.astype(jnp.int32), may_use.astype(jnp.int32)]
    return jnp.where(there[..., None], jnp.stack(columns, axis=-1), 0).astype(jnp.uint8)


def market(state: EnvState) -> jax.Array:
    """u8[P, 160, 2], of each thing: the cheapest price of somebody else (0: none), and how many are for sale, 255 at
    most, those of the agent included."""
    goods = state.goods
    price = prices(goods, state.shelf)
    place = jnp.where(goods.price > 0, goods.thing, N_THINGS).reshape(-1)
    supply = jnp.zeros(N_THINGS, jnp.int32).at[place].add(goods.quantity.reshape(-1), mode="drop")
    supply = jnp.broadcast_to(jnp.minimum(supply, 255)[None, :], price.shape)
    return jnp.stack([price, supply], axis=-1).astype(jnp.uint8)


def task_row(state: EnvState, task_list: TaskList) -> jax.Array:
    """f32[P, 28] in [0, 1]: four leaves of a task (predicate, kind, level, amount, second amount, target), scaled; then
    the progress, whether it is completed, how the leaves are joined, and how the task is paid."""
    leaves, forms = (jnp.asarray(x)[state.level.tasks] for x in (task_list.features, task_list.forms))
    completed = state.score.completed.astype(jnp.float32)
    told = jnp.clip(jnp.stack([state.score.value, completed], axis=1), 0, 1)
    return jnp.concatenate([leaves, told, forms], axis=1)


def of_living(alive: jax.Array, seen: jax.Array) -> jax.Array:
    """[P, ...], with zeros for the dead."""
    return jnp.where(alive.reshape(-1, *(1,) * (seen.ndim - 1)), seen, jnp.zeros((), seen.dtype))

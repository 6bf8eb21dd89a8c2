"""A recorded game of Neural MMO, 24 players and 160 ticks, tick by tick: every column, every thing, every event."""

import collections
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.nmmo.goods import N_SLOTS, Goods, empty_packs
from minimax_lib.envs.nmmo.log import log_of
from minimax_lib.envs.nmmo.orders import Orders
from minimax_lib.envs.nmmo.skills import level_of
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import EnvState, Ground, Level, empty_queue, newborn, no_npcs, unscored
from minimax_lib.envs.nmmo.survival import Survival
from minimax_lib.envs.nmmo.tables import DIRECTIONS, EVENT_CODES, SKILLS, TABLES
from minimax_lib.envs.nmmo.things import N_LEVELS
from minimax_lib.envs.nmmo.tick import Chances, Rules, advanced
from tests.nmmo_recordings import recorded

P, N_TICKS = 24, 160
COLUMN, ITEM, HAPPENED = (TABLES[name] for name in ("entity_columns", "item_table_columns", "event_columns"))
EXPERIENCE = [COLUMN[f"{skill.lower()}_exp"] for skill in SKILLS]
LEVELS = [COLUMN[f"{skill.lower()}_level"] for skill in SKILLS]
RULES = Rules(square=Square(32), survival=Survival(2, 2), items=True, market=True, spawn_immunity=30)
PLAIN = {"age": "time_alive", "last_combat": "latest_combat_tick"} | {
    name: name for name in ("health", "food", "water", "gold", "damage")
}
# The target of these events is a thing, and the numbers of things are the reference's own.
OF_THINGS = [code for name, code in EVENT_CODES.items() if name.endswith("_ITEM") or name == "FIRE_AMMO"]
LAST_WORD = np.uint32(2**32 - 1)


@functools.cache
def frames():
    return json.loads(recorded("golden_transitions.json", text=True))["runs"][0]["frames"]


@functools.cache
def table(tick: int, name: str) -> np.ndarray:
    return recorded("golden_transitions.npz")[f"r0_t{tick}_{name}"].astype(np.int32)


@functools.cache
def recorded_players(tick: int) -> dict[str, np.ndarray]:
    """The recorded columns of all players after a tick, by the names of our fields; 0 for the dead."""
    rows = np.zeros((P, len(COLUMN)), np.int32)
    for row in table(tick, "entity"):
        rows[row[0] - 1] = row
    # Of each player: how far it came, damage it took, damage it did.
    history = frames()[tick - 1]["history"] if tick else {}
    past = np.array([history.get(str(k + 1), [0, 0, 0]) for k in range(P)], np.int32)
    fields = {name: rows[:, COLUMN[column]] for name, column in PLAIN.items()}
    return fields | {
        "alive": rows[:, 0] > 0,
        "position": rows[:, [COLUMN["row"], COLUMN["col"]]],
        "attacker": rows[:, COLUMN["attacker_id"]] - 1,
        "experience": rows[:, EXPERIENCE],
        "levels": rows[:, LEVELS],
        "item_level": rows[:, COLUMN["item_level"]],
        "farthest": past[:, 0],
        "received": past[:, 1],
        "inflicted": past[:, 2],
    }


@functools.cache
def listed_at() -> dict[int, dict[int, int]]:
    """By tick and the number of a thing: when it was listed last."""
    found: dict[int, dict[int, int]] = {0: {}}
    for tick in range(1, N_TICKS + 1):
        rows = table(tick, "event")
        rows = rows[rows[:, HAPPENED["event"]] == EVENT_CODES["LIST_ITEM"]]
        found[tick] = found[tick - 1] | {int(row[HAPPENED["target_ent"]]): tick - 1 for row in rows}
    return found


def thing_number(row: np.ndarray) -> int:
    return (row[ITEM["type_id"]] - 2) * N_LEVELS + row[ITEM["level"]] - 1


@functools.cache
def packs_at(tick: int) -> tuple[Goods, dict[int, tuple[int, int]]]:
    """The recorded packs after a tick, and where each thing is: (player, slot) by its number."""
    goods = jax.tree.map(np.array, empty_packs(P))
    goods.since[:] = -1
    places: dict[int, tuple[int, int]] = {}
    for row in table(tick, "item"):
        player = row[ITEM["owner_id"]] - 1
        slot = int((goods.thing[player] >= 0).sum())
        places[int(row[0])] = player, slot
        goods.thing[player, slot] = thing_number(row)
        goods.quantity[player, slot] = row[ITEM["quantity"]]
        goods.worn[player, slot] = row[ITEM["equipped"]]
        goods.price[player, slot] = row[ITEM["listed_price"]]
        goods.listed_at[player, slot] = listed_at()[tick].get(int(row[0]), 0)
    goods.item_level[:] = recorded_players(tick)["item_level"]
    return goods, places


def state_at(tick: int, ready_at) -> EnvState:
    """The recorded state after a tick."""
    players = {name: x for name, x in recorded_players(tick).items() if name not in ("levels", "item_level")}
    terrain = table(0, "map").astype(np.uint8)
    spawn = np.zeros((P, 2), np.int16)
    level = Level(terrain=terrain, spawn=spawn, tasks=np.zeros(P, np.int32), sharpness=np.float32(1))
    state = EnvState(
        level=level,
        tick=np.int32(tick),
        horizon=np.int32(N_TICKS),
        players=newborn(jnp.asarray(spawn), jnp.zeros(P, bool)).replace(**players),
        npcs=no_npcs(0),
        queue=empty_queue(0),
        ground=Ground(ready_at=ready_at, windows=np.zeros((0, 0), np.uint16)),
        score=unscored(P),
        near=np.zeros((P, 1), np.int16),
        goods=packs_at(tick)[0],
    )
    return jax.tree.map(np.asarray, state)


def slot_of(tick: int, item: int | None, goods: Goods) -> tuple[int, int] | None:
    """Where a thing is that was there before `tick`: (player, slot). Equal things of a player stand for each other."""
    recorded_packs, places = packs_at(tick - 1)
    if item not in places:
        return None
    player, slot = places[item]

    def looks(packs: Goods) -> list[tuple]:
        return list(zip(*(getattr(packs, name)[player].tolist() for name in ("thing", "price", "worn")), strict=True))

    same = looks(goods)
    return (player, same.index(looks(recorded_packs)[slot]))


def orders_at(tick: int, goods: Goods) -> Orders:
    """The actions as they were resolved in the recording."""
    names = ("target", "style", "use", "destroy", "give", "give_to", "gold", "gold_to", "sell", "price", "buy")
    found = {name: np.full(P, -1, np.int32) for name in names}
    found["style"][:] = 0
    move = np.zeros((P, 2), np.int32)
    for name, action in frames()[tick - 1]["actions"].items():
        k = int(name) - 1
        move[k] = DIRECTIONS[action["Move"]["dir"]] if "Move" in action else 0
        if "Attack" in action:
            found["target"][k], found["style"][k] = action["Attack"]["target"] - 1, action["Attack"]["style"]
        for head, order in (("use", "Use"), ("sell", "Sell")):
            place = slot_of(tick, action.get(order, {}).get("item"), goods)
            if place and place[0] == k:
                found[head][k] = place[1]
        if "Sell" in action:
            found["price"][k] = action["Sell"]["price"]
        listing = slot_of(tick, action.get("Buy", {}).get("market_item"), goods)
        if listing:
            found["buy"][k] = listing[0] * N_SLOTS + listing[1]
    return Orders(move=move, **found)


def chances_at(tick: int) -> Chances:
    """No tile comes back, no weapon is found, and those who bought in the recording come first."""
    buys = np.full(P, LAST_WORD)
    rows = table(tick, "event")
    buys[rows[rows[:, HAPPENED["event"]] == EVENT_CODES["BUY_ITEM"], HAPPENED["ent_id"]] - 1] = 0
    return Chances(
        npcs=np.zeros(0, np.uint32),
        harvest=np.full((P, 5), LAST_WORD),
        candidates=np.zeros((0, 6), np.uint32),
        goods=buys,
        drops=np.zeros(0, np.uint32),
    )


@jax.jit
def one_tick(chances, state, orders):
    after, happened = advanced(chances, state, orders, RULES)
    taken = after.ground.ready_at != state.ground.ready_at
    ready_at = jnp.where(taken, jnp.int16(32767), after.ground.ready_at)
    log = log_of(state.players, after.players, happened)
    return after.replace(ground=after.ground.replace(ready_at=ready_at)), log, level_of(after.players.experience)


def check_events(tick: int, log: np.ndarray) -> int:
    """The same events happened as often as recorded. The number of comparisons."""
    wanted = table(tick, "event")[:, [HAPPENED[name] for name in ("ent_id", "event", "type", "level")]]
    wanted = np.column_stack([wanted, table(tick, "event")[:, [HAPPENED[x] for x in ("number", "gold", "target_ent")]]])
    wanted[np.isin(wanted[:, 1], OF_THINGS), 6] = 0
    got = log[log[:, 0] > 0]
    counts = [collections.Counter(map(tuple, rows.tolist())) for rows in (got, wanted)]
    assert counts[0] == counts[1], f"tick {tick}: {counts[0] - counts[1]} in place of {counts[1] - counts[0]}"
    return wanted.size


def check_things(tick: int, goods: Goods) -> int:
    """Everybody carries the same things. The number of comparisons."""
    names = ("thing", "quantity", "price", "worn")
    packs = []
    for source in (goods, packs_at(tick)[0]):
        rows = zip(np.nonzero(source.thing >= 0)[0], *(getattr(source, x)[source.thing >= 0] for x in names))  # noqa: B905
        packs.append(collections.Counter(tuple(int(x) for x in row) for row in rows))
    assert packs[0] == packs[1], f"tick {tick}: {packs[0] - packs[1]} in place of {packs[1] - packs[0]}"
    return 5 * sum(packs[1].values())


def check_players(tick: int, state: EnvState, levels: np.ndarray) -> int:
    """Every column of every living player is as recorded. The number of comparisons."""
    wanted = dict(recorded_players(tick))
    living = wanted.pop("alive")
    np.testing.assert_array_equal(state.players.alive, living, f"tick {tick}: alive")
    assert set(np.nonzero(living)[0] + 1) == {int(k) for k in frames()[tick - 1]["history"]}
    others = {"levels": levels, "item_level": state.goods.item_level}
    for name, column in wanted.items():
        got = np.asarray(others[name] if name in others else getattr(state.players, name))
        np.testing.assert_array_equal(got[living], column[living], f"tick {tick}: {name}")
    return P + int(sum(column[living].size for column in wanted.values()))


@pytest.mark.parametrize("free", [False, True], ids=["from the recorded state", "free"])
def test_the_recorded_game(free):
    """Of several buyers of one thing, the recorded one is fed."""
    state, n_compared = state_at(0, np.zeros((64, 64), np.int16)), 0
    for tick in range(1, N_TICKS + 1):
        if not free:
            state = state_at(tick - 1, state.ground.ready_at)
        state, log, levels = jax.tree.map(np.asarray, one_tick(chances_at(tick), state, orders_at(tick, state.goods)))
        n_compared += check_events(tick, log) + check_things(tick, state.goods) + check_players(tick, state, levels)
    assert n_compared > 80_000

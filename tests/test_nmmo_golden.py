"""A recorded game of Neural MMO, 24 players and 160 ticks, tick by tick: bodies, harvests, attacks, steps, deaths.

Goods are not ours yet. So what is worn, eaten from packs, and traded is read from the recording.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.nmmo.damage import Gear
from minimax_lib.envs.nmmo.npcs import Plans
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.state import EnvState, Ground, Level, empty_queue, newborn, no_npcs, unscored
from minimax_lib.envs.nmmo.survival import Survival
from minimax_lib.envs.nmmo.tables import DIRECTIONS, EVENT_CODES, EVENTS, SKILLS, TABLES
from minimax_lib.envs.nmmo.tick import Rules, close, fight, upkeep, walk
from tests.nmmo_recordings import recorded

P, N_TICKS = 24, 160
COLUMN, ITEM, HAPPENED = (TABLES[name] for name in ("entity_columns", "item_table_columns", "event_columns"))
EXPERIENCE = [COLUMN[f"{skill.lower()}_exp"] for skill in SKILLS]
RULES = Rules(square=Square(32), survival=Survival(2, 2), spawn_immunity=30)
PLAIN = {"age": "time_alive", "last_combat": "latest_combat_tick"} | {
    name: name for name in ("health", "food", "water", "gold", "damage")
}
COUNTED = [
    "EAT_FOOD",
    "DRINK_WATER",
    "GO_FARTHEST",
    "SCORE_HIT",
    "PLAYER_KILL",
    "LOOT_GOLD",
    "LEVEL_UP",
    "AGENT_CULLED",
]
NONE = Plans(target=jnp.zeros(0, jnp.int32), attacked=jnp.zeros(0, jnp.int32), move=jnp.zeros((0, 2), jnp.int32))


@functools.cache
def frames():
    return json.loads(recorded("golden_transitions.json", text=True))["runs"][0]["frames"]


def table(tick: int, name: str) -> np.ndarray:
    return recorded("golden_transitions.npz")[f"r0_t{tick}_{name}"].astype(np.int32)


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
        "farthest": past[:, 0],
        "received": past[:, 1],
        "inflicted": past[:, 2],
    }


def state_at(tick: int, ready_at) -> EnvState:
    """The recorded state after a tick."""
    players = recorded_players(tick)
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
    )
    return jax.tree.map(np.asarray, state)


def slot_of(kind: int) -> int:
    """The slot of a type of thing: hat, top, bottom, held, ammunition; larger: it cannot be worn."""
    return next(k for k, last in enumerate((2, 3, 4, 12, 15, 99)) if kind <= last)


def worn(tick: int) -> Gear:
    """What players wear when attacks of `tick` are made: as before it, and as they used things in it."""
    items = {row[0]: row for row in table(tick - 1, "item")}
    on = {
        (row[ITEM["owner_id"]], slot_of(row[ITEM["type_id"]])): row for row in items.values() if row[ITEM["equipped"]]
    }
    after = {row[0]: row[1:] for row in frames()[tick - 1]["equipped"]}
    puts_on = {row[HAPPENED["ent_id"]] for row in happened(tick, "EQUIP_ITEM")}
    for name, action in frames()[tick - 1]["actions"].items():
        player, item = int(name), items.get(action.get("Use", {}).get("item"))
        if item is None or item[ITEM["owner_id"]] != player:
            continue
        slot = slot_of(item[ITEM["type_id"]])
        if player in puts_on and not item[ITEM["equipped"]]:
            on[player, slot] = item
        elif item[ITEM["equipped"]] and player in after and item[0] not in after[player]:
            del on[player, slot]
    attack, defence = np.zeros((P, 3), np.int32), np.zeros(P, np.int32)
    for (player, _), row in on.items():
        attack[player - 1] += row[ITEM["melee_attack"] : ITEM["mage_attack"] + 1]
        defence[player - 1] += row[ITEM["melee_defense"]]
    return Gear(attack=attack, defence=defence)


def happened(tick: int, name: str) -> np.ndarray:
    """The recorded events of a tick with this name."""
    rows = table(tick, "event")
    return rows[rows[:, HAPPENED["event"]] == EVENT_CODES[name]]


def with_goods(players, tick: int):
    """The players after they ate and drank from their packs and traded in `tick`."""
    players = jax.tree.map(np.array, players)
    for row in happened(tick, "CONSUME_ITEM"):
        k, restored = row[HAPPENED["ent_id"]] - 1, 50 + 5 * row[HAPPENED["level"]]
        for stock in ("food", "water") if row[HAPPENED["type"]] == 16 else ("health",):
            values = getattr(players, stock)
            values[k] = min(values[k] + restored, 100)
    for name, sign in (("EARN_GOLD", 1), ("BUY_ITEM", -1)):
        for row in happened(tick, name):
            players.gold[row[HAPPENED["ent_id"]] - 1] += sign * row[HAPPENED["gold"]]
    return players


def orders(tick: int):
    """(steps i32[P, 2], targets i32[P], styles i32[P]) as they were resolved in the recording."""
    move, target, style = np.zeros((P, 2), np.int32), np.full(P, -1, np.int32), np.zeros(P, np.int32)
    for name, action in frames()[tick - 1]["actions"].items():
        k = int(name) - 1
        move[k] = DIRECTIONS[action["Move"]["dir"]] if "Move" in action else 0
        if "Attack" in action:
            target[k], style[k] = action["Attack"]["target"] - 1, action["Attack"]["style"]
    return move, target, style


@jax.jit
def first_half(state):
    after = upkeep(jnp.zeros((P, 5), jnp.uint32), state, RULES)
    taken = after.ground.ready_at != state.ground.ready_at
    # In the recording, no tile comes back.
    ready_at = jnp.where(taken, jnp.int16(32767), after.ground.ready_at)
    return after.replace(ground=after.ground.replace(ready_at=ready_at))


@jax.jit
def second_half(state, move, target, style, gear):
    state = walk(fight(state, (target, style), NONE, gear, RULES), move, NONE, RULES)
    return close(jnp.zeros((0, 6), jnp.uint32), state, RULES)


def check_events(tick: int, before, after) -> int:
    """Each event happened to each player as often as recorded. The number of comparisons."""
    gained = np.asarray(after.events) - np.asarray(before.events)
    for name in COUNTED:
        wanted = np.bincount(happened(tick, name)[:, HAPPENED["ent_id"]] - 1, minlength=P)
        np.testing.assert_array_equal(gained[:, EVENTS.index(name)], wanted, f"tick {tick}: {name}")
    # A harvest that finds the pack full is not an event.
    packs = np.bincount(table(tick - 1, "item")[:, ITEM["owner_id"]], minlength=P + 1)[1:]
    roomy = packs <= 10
    harvests = np.bincount(happened(tick, "HARVEST_ITEM")[:, HAPPENED["ent_id"]] - 1, minlength=P)
    np.testing.assert_array_equal(gained[roomy, EVENTS.index("HARVEST_ITEM")], harvests[roomy], f"tick {tick}")
    return P * len(COUNTED) + int(roomy.sum())


def check_players(tick: int, players) -> int:
    """Every field of every living player is as recorded. The number of comparisons."""
    wanted = recorded_players(tick)
    living = wanted.pop("alive")
    np.testing.assert_array_equal(players.alive, living, f"tick {tick}: alive")
    assert set(np.nonzero(living)[0] + 1) == {int(k) for k in frames()[tick - 1]["history"]}
    for name, column in wanted.items():
        np.testing.assert_array_equal(
            np.asarray(getattr(players, name))[living], column[living], f"tick {tick}: {name}"
        )
    return P + int(sum(column[living].size for column in wanted.values()))


@pytest.mark.parametrize("free", [False, True], ids=["from the recorded state", "free"])
def test_the_recorded_game(free):
    state, n_compared = state_at(0, np.zeros((64, 64), np.int16)), 0
    for tick in range(1, N_TICKS + 1):
        if not free:
            state = state_at(tick - 1, state.ground.ready_at)
        half = first_half(state)
        half = half.replace(players=with_goods(half.players, tick))
        after = jax.tree.map(np.asarray, second_half(half, *orders(tick), worn(tick)))
        n_compared += check_events(tick, state.players, after.players) + check_players(tick, after.players)
        state = after
    assert n_compared > 70_000

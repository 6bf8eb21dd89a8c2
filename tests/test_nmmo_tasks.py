"""Neural MMO's tasks: recorded values of predicates and rewards, lists, files, own predicates, other subjects."""

import functools
import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.nmmo.family import FAMILY
from minimax_lib.envs.nmmo.goals import ARGUMENTS, predicate
from minimax_lib.envs.nmmo.log import counts_in, log_of, n_rows
from minimax_lib.envs.nmmo.looking import remembered
from minimax_lib.envs.nmmo.nmmo import NMMO, places_of
from minimax_lib.envs.nmmo.predicates import ITEM_EVENTS, PREDICATES, TILE_ROW
from minimax_lib.envs.nmmo.resources import with_patches
from minimax_lib.envs.nmmo.state import newborn, unscored
from minimax_lib.envs.nmmo.tables import EVENT_CODES, EVENTS, GRASS, HERB, SKILLS, STONE, TABLES
from minimax_lib.envs.nmmo.task_places import check_tasks
from minimax_lib.envs.nmmo.task_specs import (
    COMPETITION,
    LISTS,
    OWN_LISTS,
    TaskSpec,
    register_predicate,
    register_task_list,
    specs_in,
)
from minimax_lib.envs.nmmo.tasks import members_of, scored, tables_of, task_list, values
from minimax_lib.envs.nmmo.tick import Rules, close
from minimax_lib.envs.nmmo.view import Alone, Groups, View
from tests.nmmo_recordings import FOLDER, recorded

P, MIDDLE = 24, 32
COLUMN, ITEM, HAPPENED = (TABLES[name] for name in ("entity_columns", "item_table_columns", "event_columns"))
ENTITY_OF_SKILL = [skill.lower() for skill in SKILLS]


@functools.cache
def states() -> list[dict]:
    with gzip.open(FOLDER / "predicate_values.json.gz") as file:
        return json.load(file)["states"]


def events_of(state: dict) -> dict[str, np.ndarray]:
    rows = recorded("predicate_states.npz")[f"s{state['index']}_event"].astype(np.int64)
    return {name: rows[:, k] for name, k in HAPPENED.items()}


def view_of(state: dict) -> View:
    """A recorded state as predicates see it."""
    tables = recorded("predicate_states.npz")
    entities, items = (tables[f"s{state['index']}_{name}"].astype(np.int64) for name in ("entity", "item"))
    of = {int(row[0]): row for row in entities if row[0] > 0}
    assert sorted(of) == sorted(state["alive"])
    rows = np.array([of.get(k + 1, np.zeros(len(COLUMN))) for k in range(P)], np.int32)
    things, quantity, worn = np.full((P, 12), -1), np.zeros((P, 12)), np.zeros((P, 12), bool)
    for row in items[items[:, ITEM["owner_id"]] > 0]:
        owner = row[ITEM["owner_id"]] - 1
        slot = (things[owner] >= 0).sum()
        things[owner, slot] = (row[ITEM["type_id"]] - 2) * 10 + row[ITEM["level"]] - 1
        quantity[owner, slot], worn[owner, slot] = row[ITEM["quantity"]], row[ITEM["equipped"]]
    happened = events_of(state)
    counts, kills, hits, earned = np.zeros((P, 20)), np.zeros((P, 2, 11)), np.zeros((P, 3)), np.zeros((P, 3))
    for k in range(len(happened["event"])):
        one = {name: int(x[k]) for name, x in happened.items()}
        who, name = one["ent_id"] - 1, next(x for x, code in EVENT_CODES.items() if code == one["event"])
        if who < 0:
            continue
        counts[who, EVENTS.index(name)] += 1
        if name == "PLAYER_KILL":
            kills[who, int(one["target_ent"] < 0), one["level"]] += 1
        if name == "SCORE_HIT":
            hits[who, one["type"] - 1] += 1
        for column, event in enumerate(("EARN_GOLD", "LOOT_GOLD", "BUY_ITEM")):
            earned[who, column] += one["gold"] * (name == event)
    sees = np.zeros((P, P), bool)
    for player, seen in state["visible_entity_ids"].items():
        sees[int(player) - 1, [k - 1 for k in seen if k > 0]] = True
    skills = {end: rows[:, [COLUMN[f"{skill}_{end}"] for skill in ENTITY_OF_SKILL]] for end in ("level", "exp")}
    integers = {
        "tick": state["tick"],
        "horizon": 1000,
        "half": 16,
        "middle": MIDDLE,
        "position": rows[:, [COLUMN["row"], COLUMN["col"]]],
        "spawn": np.array([state["spawn_pos"][str(k + 1)] for k in range(P)]),
        "level": np.maximum(skills["level"], 1),
        "experience": skills["exp"],
        "gold": rows[:, COLUMN["gold"]],
        "events": counts,
        "thing": things,
        "quantity": quantity,
        "n_things": tables[f"s{state['index']}_obs_inventory_len"],
        "kills": kills,
        "hits": hits,
        "earned": earned,
        "seized": np.full((1, 3), -1),
    }
    return View(
        **{name: np.asarray(x, np.int32) for name, x in integers.items()},
        alive=np.array([k + 1 in of for k in range(P)]),
        tiles=tables[f"s{state['index']}_obs_tile_material"].reshape(P, 15, 15).astype(np.uint8),
        sees=sees,
        worn=worn,
    )


def counted_in(state: dict, name: str, arguments: dict, group: list[int]) -> int:
    """The sum of a group's events with things that a predicate asks for."""
    if name not in ITEM_EVENTS:
        return 0
    happened = events_of(state)
    kind = TABLES["items"][[item["name"] for item in TABLES["items"]].index(arguments["item"])]["type_id"]
    fits = (happened["event"] == EVENT_CODES[ITEM_EVENTS[name]]) & (happened["type"] == kind)
    fits &= (happened["level"] >= arguments["level"]) & np.isin(happened["ent_id"], group)
    return int(happened["number"][fits].sum())


def test_all_recorded_values_of_predicates():
    queries = [(state, *query) for state in states() for query in state["values"]]
    assert len(queries) == 19_325
    keys = [json.dumps([name, arguments], sort_keys=True) for _, name, arguments, _, _ in queries]
    known = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    specs = tuple(TaskSpec(predicate(name, **arguments)) for name, arguments in map(json.loads, known))
    tasks = tables_of(specs, MIDDLE)
    most = max(len(state["values"]) for state in states())
    of = jax.jit(lambda numbers, view, mask, parts: values(tasks, numbers, view, Groups(mask), parts))
    start, seen = 0, set()
    for state in states():
        own = state["values"]
        numbers, mask, parts = np.zeros(most, np.int32), np.zeros((most, P), bool), np.zeros((most, 1), np.int32)
        for k, (name, arguments, group, _) in enumerate(own):
            members = state["groups"][group]
            numbers[k] = known[keys[start + k]]
            mask[k, [player - 1 for player in members]] = True
            parts[k, 0] = counted_in(state, name, arguments, members)
        got = np.asarray(of(numbers, view_of(state), mask, parts))[: len(own)]
        wanted = np.array([value for *_, value in own], np.float64)
        for k in np.nonzero(np.abs(got - wanted) > 1e-6)[0][:1]:
            raise AssertionError(f"state {state['index']}: {own[k]}, not {got[k]}")
        seen |= {name for name, *_ in own}
        start += len(own)
    assert len(seen) == 33
    assert set(PREDICATES) >= seen | {"SeizeTile"}


def test_nothing_is_asked_for_only_where_that_means_something():
    """An amount of 0 divides nothing: these predicates say what it means, and all others refuse it."""
    mean_it = {"DefeatEntity", "EquipItem", "FullyArmed", "AllMembersWithinRange", "InventorySpaceGE"}
    usual = {name: arguments for state in states() for name, arguments, *_ in state["values"]}
    usual["SeizeTile"] = {"row": 20, "col": 20, "num_ticks": 3}
    amounts = {
        (name, key)
        for name, own in ARGUMENTS.items()
        for key, (number, _) in own.items()
        if number in ("amount", "share")
    }
    assert len(amounts) == 25
    for name, key in amounts:
        if name in mean_it:
            predicate(name, **usual[name] | {key: 0})
        else:
            with pytest.raises(ValueError, match=f"^{name}: {key}=0: it must be above 0, and at least 1e-06$"):
                predicate(name, **usual[name] | {key: 0})
        with pytest.raises(ValueError, match=f"^{name}: {key}=-1: it must be "):
            predicate(name, **usual[name] | {key: -1})


def test_a_group_in_one_row_is_not_divided_by_nothing():
    """All on one tile is 1. Else the spread, and each direction in which they differ, take from it."""
    view = view_of(states()[0]).replace(position=np.zeros((P, 2), np.int32), alive=np.arange(P) < 4)
    tasks = tables_of((TaskSpec(predicate("AllMembersWithinRange", dist=0)),), MIDDLE)
    of = jax.jit(lambda view: values(tasks, jnp.zeros(1, jnp.int32), view, Groups(jnp.arange(P)[None] < 4))[0])
    for column, row, wanted in ((0, 0, 1.0), (8, 0, (24 / 32 + 1) / 3), (8, 8, (24 / 32) / 3)):
        place = view.position.copy()
        place[3] = row, column
        np.testing.assert_allclose(of(view.replace(position=place)), wanted, rtol=1e-6)


def test_a_death_makes_no_room_in_a_pack():
    """With a death, the pack is lost. In the reference, it still counts as full as its owner saw it last."""
    register_task_list("room", [TaskSpec(predicate("InventorySpaceGE", space=2))])
    env = NMMO(preset="mini", n_players=3, items=True, task_set="room")
    shapes = jax.eval_shape(lambda key: env.reset(key, env.sample_level(key))[0], jax.random.key(0))
    state = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    thing = np.where(np.arange(12) < np.array([[11], [11], [10]]), 0, -1).astype(np.int32)  # hats
    state = state.replace(
        players=state.players.replace(alive=np.ones(3, bool), health=np.full(3, 100, np.int32)),
        goods=state.goods.replace(thing=thing),
    )

    @jax.jit
    def ended(state):
        state = remembered(close(jnp.zeros((0, 6), jnp.uint32), state, env.rules), env.tasks, [])
        return state, env.task_values(state)

    for health in ((100, 100, 100), (0, 100, 0), (0, 100, 0)):
        state = state.replace(players=state.players.replace(health=np.array(health, np.int32)))
        state, value = ended(state)
        assert value.tolist() == [0, 0, 1], health
    assert (np.asarray(state.goods.thing) < 0).sum(axis=1).tolist() == [12, 1, 12]


def test_one_player_is_a_group_of_one():
    """What is worked out for players alone is what groups of one have."""
    names = {name: (arguments, k) for k, (name, arguments, *_) in enumerate(states()[3]["values"])}
    specs = tuple(TaskSpec(predicate(name, **arguments)) for name, (arguments, _) in names.items())
    tasks = tables_of(specs, MIDDLE)

    @jax.jit
    def both(view, parts):
        who = jnp.arange(P, dtype=jnp.int32)

        def of_task(number):
            numbers = jnp.full(P, number, jnp.int32)
            alone = values(tasks, numbers, view, Alone(), parts)
            return alone, values(tasks, numbers, view, Groups(who[:, None] == who[None, :]), parts)

        return jax.lax.map(of_task, jnp.arange(len(specs), dtype=jnp.int32))

    alone, groups = both(view_of(states()[3]), np.arange(P, dtype=np.int32)[:, None])
    np.testing.assert_allclose(alone, groups, atol=1e-6)


def test_recorded_values_of_operators():
    goals = {
        "AND": lambda p: p[0] & p[1],
        "OR": lambda p: p[0] | p[1],
        "NOT": lambda p: ~p[0],
        "ADD": lambda p: p[0] + p[1],
        "SUB": lambda p: p[0] - p[1],
        "MUL": lambda p: p[0] * p[1],
        "scale": lambda p: p[0] * 0.5,
        "plus": lambda p: p[1] + 0.25,
    }
    # Gold of the players stands for the three values, in shares of a million.
    leaves = [predicate("HoardGold", amount=10**6), predicate("EarnGold", amount=10**6)]
    tasks = tables_of(tuple(TaskSpec(make(leaves)) for make in goals.values()), MIDDLE)
    numbers = np.arange(len(goals), dtype=np.int32)
    members = Groups(np.ones((len(goals), P), bool))
    of = jax.jit(lambda view: values(tasks, numbers, view, members))
    for state in states():
        view, p = view_of(state), np.round(1e6 * np.array(state["operators"]["p"])).astype(np.int32)
        gold, earned = np.zeros(P, np.int32), np.zeros((P, 3), np.int32)
        living = int(np.argmax(view.alive))
        gold[living], earned[0, 1] = p[0], p[1]
        wanted = [state["operators"][name] for name in goals]
        np.testing.assert_allclose(of(view.replace(gold=gold, earned=earned)), wanted, atol=2e-6)


def test_weights_that_add_up_to_1_complete_a_task():
    """As 32-bit numbers, 0.35, 0.45 and 0.2 add up to 0.99999994: such a task could never be completed."""
    twentieths = [(a, b, 20 - a - b) for a in range(1, 19) for b in range(1, 20 - a)]
    part = predicate("HoardGold", amount=10**6)
    specs = tuple(TaskSpec(part * (a / 20) + part * (b / 20) + part * (c / 20)) for a, b, c in twentieths)
    tasks, numbers = tables_of(specs, MIDDLE), np.arange(len(specs), dtype=np.int32)
    of = jax.jit(lambda view: values(tasks, numbers, view, Alone(jnp.zeros_like(numbers))))
    view = view_of(states()[0]).replace(alive=np.ones(P, bool))
    for gold, complete in ((10**6, True), (10**6 - 1, False), (0, False)):
        value = np.asarray(of(view.replace(gold=np.full(P, gold, np.int32))))
        assert ((value >= 1) == complete).all()
        np.testing.assert_allclose(value, gold / 10**6, atol=3e-7)


def paid(spec: TaskSpec, sequence) -> list[tuple]:
    """(reward, value, completed) of each tick of a task whose goal takes these values."""
    tasks = tables_of((spec,), MIDDLE)
    pay = {name: np.asarray(x) for name, x in (tasks.pay or tables_of((OTHERWISE,), MIDDLE).pay).items()}
    score, found = jax.tree.map(np.asarray, unscored(1, True)), []
    for value in sequence:
        clipped = np.clip(np.float32([value]), 0, 1)
        score, reward = jax.tree.map(np.asarray, pay_once(score, clipped, np.ones(1, bool), pay))
        found.append((float(reward[0]), float(score.value[0]), bool(score.completed[0])))
    return found


OTHERWISE = TaskSpec(predicate("Success"), pay="Task", reward=1.0, name="usual")
pay_once = jax.jit(scored)


@pytest.mark.parametrize("number", range(8))
def test_recorded_rewards(number):
    case = json.loads(recorded("task_rewards.json", text=True))[number]
    sequence, wanted = case["eval_fn_sequence"], [row[:3] for row in case["trace"]]
    spec = TaskSpec(predicate("Success"), pay=case["task"])
    if case["task"] == "Task":
        score, found = unscored(1), []
        for value in sequence:
            score, reward = pay_once(score, np.clip(np.float32([value]), 0, 1), np.ones(1, bool))
            found.append((float(reward[0]), float(score.value[0]), bool(score.completed[0])))
    else:
        found = paid(spec, sequence)
    np.testing.assert_allclose(np.float64(found), np.float64(wanted), atol=1e-6)


def test_holding_a_goal_by_hand():
    spec = TaskSpec(predicate("Success"), pay="HoldDurationTask", hold=4, reward=2.0)
    found = paid(spec, [1, 1, 0.5, 1, 1, 1, 1, 0, 1])
    rewards = [0.5, 0.5, -1.0, 0.5, 0.5, 0.5, 2.0, 0, 0]
    np.testing.assert_allclose([row[0] for row in found], rewards)
    assert [row[1] for row in found] == [0.25, 0.5, 0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert [row[2] for row in found] == [False] * 6 + [True] * 3


def test_a_tile_to_seize_is_a_herb_amid_grass():
    register_task_list("hill", [TaskSpec(predicate("SeizeCenter", num_ticks=5)), seize(20, 30)])
    env = NMMO(preset="mini", task_set="hill")
    hill = places_of(env.tasks.seizes).tolist()
    assert hill == [[20, 30], [env.square.middle] * 2]
    ground = np.full((env.square.side,) * 2, STONE, np.uint8)
    found = np.asarray(with_patches(jnp.asarray(ground), np.array(hill)))
    for row, column in hill:
        patch = found[row - 2 : row + 3, column - 2 : column + 3]
        assert patch[2, 2] == HERB
        assert (np.delete(patch.reshape(-1), 12) == GRASS).all()
    assert (found != STONE).sum() == 50
    register_task_list("edge", [seize(17, 30)])
    with pytest.raises(ValueError, match=r"^a task seizes row 17, column 30: both must be between 18 and 46$"):
        NMMO(preset="mini", task_set="edge")


def test_a_centre_to_be_reached_is_grass():
    """On 14 of the 32 recorded small maps, it is water or stone. The reference lays grass there for this game."""
    env = NMMO(preset="mini", task_set="race_to_center")
    kept = places_of(env.tasks.patches)
    assert kept.tolist() == [[env.square.middle] * 2]
    assert len(task_list("survive", 256, MIDDLE).patches) == len(task_list("train", 256, MIDDLE).patches) == 0
    key, middle = jax.random.key(0), slice(env.square.middle - 2, env.square.middle + 3)
    with_grass, without = (
        np.asarray(jax.jit(NMMO(preset="mini", task_set=name).sample_level)(key).terrain)
        for name in ("race_to_center", "survive")
    )
    assert np.delete(with_grass[middle, middle].reshape(-1), 12).tolist() == [GRASS] * 24
    assert with_grass[env.square.middle, env.square.middle] == HERB
    outside = np.ones_like(without, bool)
    outside[middle, middle] = False
    np.testing.assert_array_equal(with_grass[outside], without[outside])
    assert FAMILY.editing(env).mutate.args[1].tolist() == kept.tolist()


def test_the_log_tells_who_seized_a_tile():
    before = newborn(jnp.arange(20, 26, dtype=jnp.int16).reshape(3, 2), jnp.zeros(3, bool))
    seizes = np.zeros((3, len(EVENTS)), np.int32)
    seizes[1, EVENTS.index("SEIZE_TILE")] = 1
    log = np.asarray(jax.jit(log_of)(before, before.replace(events=before.events + seizes), ()))
    np.testing.assert_array_equal(counts_in(log, 3), seizes)
    assert log[log[:, 0] > 0].tolist() == [[2, EVENT_CODES["SEIZE_TILE"], 0, 0, 22, 23, 0]]
    assert len(log) == n_rows(Rules(square=None, combat=False), 3)


def test_the_last_columns_of_the_widest_map_can_be_seized():
    """Row and column are one number, which must tell column 1030 from column 6 of the next row."""
    widest = NMMO(preset="mini", centre=1024)
    tasks = tables_of((seize(500, 1030), seize(501, 6)), widest.square.middle)
    check_tasks(tables_of(tasks.specs[:1], tasks.middle), widest)
    assert places_of(tasks.seizes).tolist() == [[500, 1030], [501, 6]]


def seize(row: int, column: int) -> TaskSpec:
    return TaskSpec(predicate("SeizeTile", row=row, col=column, num_ticks=5))


def test_the_lists():
    sizes = {"survive": 1, "stages": 50, "train": 1293, "sample_eval": 24, "competition": 63}
    sizes |= {"train_part": 1058, "test_part": 235} | {f"stage_{k}": 10 for k in range(1, 6)}
    for name, n in sizes.items():
        tasks = task_list(name, 1024, 80)
        assert len(tasks) == n
        assert len({tasks.name(k) for k in range(n)}) == n
        assert tasks.features.shape == (n, 24)
        assert ((tasks.features >= 0) & (tasks.features <= 1)).all()
        np.testing.assert_allclose(tasks.weights.sum(), 1, rtol=1e-5)
    stages = [task_list("stages", 1024, 80).name(k) for k in range(50)]
    assert [task_list(f"stage_{k}", 1024, 80).name(n) for k in range(1, 6) for n in range(10)] == stages
    train = task_list("train", 1024, 80)
    shares = {}
    for spec, weight in zip(train.specs, train.weights, strict=True):
        name = "practice" if "0.3" in spec.called else spec.goal.predicate or "pack"
        shares[name] = shares.get(name, 0) + float(weight)
    assert [round(shares[name], 2) for name in ("CountEvent", "practice", "AttainSkill")] == [0.42, 0.31, 0.07]
    assert train.n_leaves == 2
    assert len(train.shapes) == 3
    competition = task_list("competition", 1024, 80)
    assert sum(COMPETITION.values()) == 63
    assert [competition.name(k) for k in (0, 1, 5, 6, 13, 14, 57, 58, 62)] == [
        "TickGE_1024",
        "PLAYER_KILL_20",
        "OccupyTile_80_80",
        "AttainSkill_Melee_10",
        "AttainSkill_Alchemy_10",
        "HarvestItem_Whetstone_1_20",
        "FullyArmed_Mage_3",
        "EARN_GOLD_20",
        "MakeProfit_100",
    ]
    assert competition.seizes.size == 0
    assert competition.pay is None


def test_agents_can_tell_tasks_apart():
    """Tiles, players, names of players, operators, ways to pay, predicates of one's own and whose doings count are told
    apart, and so are all tasks of each list."""
    for name in ("OneOfTwo", "OtherOfTwo"):
        register_predicate(name, lambda view, group, numbers: 0.0)
    tile, dead = predicate("OccupyTile", row=40, col=60), predicate("AllDead")
    foes, leader = "all_foes", "my_team_leader"
    specs = [
        *(TaskSpec(goal) for goal in (tile, predicate("OccupyTile", row=60, col=40), dead, ~dead, dead | ~dead)),
        *(TaskSpec(dead, pay=pay) for pay in ("OngoingTask", "HoldDurationTask")),
        *(TaskSpec(predicate("CanSeeAgent", target=target)) for target in (1, 2, 128, leader)),
        *(TaskSpec(predicate("CanSeeGroup", target=target)) for target in (1, [2, 3], foes, "my_team", leader)),
        *(TaskSpec(predicate("CheckAgentStatus", target=foes, status=status)) for status in ("alive", "dead")),
        *(TaskSpec(predicate("SeizeTile", row=row, col=99 - row, num_ticks=9)) for row in (39, 50, 60)),
        *(TaskSpec(predicate("SeizeQuadCenter", num_ticks=9, quadrant=quarter)) for quarter in ("first", "second")),
        TaskSpec(predicate("SeizeCenter", num_ticks=9)),
        *(TaskSpec(predicate("ProtectLeader", target_protect=who, target_destroy=foes)) for who in (3, leader)),
        *(TaskSpec(predicate(name), subject=subject) for name in ("OneOfTwo", "OtherOfTwo") for subject in (None, 2)),
        *(TaskSpec(dead, subject=subject) for subject in ("team", 1, 2)),
    ]
    for tasks in (tables_of(tuple(specs), 80), *(task_list(name, 1024, 80) for name in LISTS)):
        told = np.concatenate([tasks.features, tasks.forms], axis=1)
        assert len(np.unique(told, axis=0)) == len(tasks)
        assert ((told >= 0) & (told <= 1)).all()


def test_tasks_are_drawn_by_their_weights():
    register_task_list("two", [TaskSpec(predicate("Success"), weight=3), TaskSpec(predicate("AllDead"), weight=1)])
    env = NMMO(preset="mini", task_set="two", n_players=128)
    drawn = np.asarray(jax.jit(jax.vmap(env._drawn))(jax.random.split(jax.random.key(0), 40)))
    share = (drawn == 0).mean()
    assert abs(share - 0.75) < 4 * (0.75 * 0.25 / drawn.size) ** 0.5
    del OWN_LISTS["two"]


FILE = """
- {predicate: CountEvent, event: EAT_FOOD, n: 5, weight: 2, name: eat}
- AND:
    - {predicate: AttainSkill, skill: Melee, level: 5}
    - NOT: {predicate: AllDead}
  pay: HoldDurationTask
  hold: 8
- ADD: [{MUL: [{predicate: TickGE, num_tick: 50}, 0.5]}, 0.25]
  subject: 2
"""


def test_a_file_of_tasks(tmp_path):
    path = tmp_path / "tasks.yaml"
    path.write_text(FILE)
    specs = specs_in(str(path))
    assert [spec.called for spec in specs] == [
        "eat",
        "AND(AttainSkill_Melee_5,NOT(AllDead))",
        "ADD(MUL(TickGE_50,0.5),0.25)",
    ]
    assert specs[0].weight == 2
    assert (specs[1].pay, specs[1].hold, specs[2].subject) == ("HoldDurationTask", 8, 2)
    assert specs[1].goal == predicate("AttainSkill", skill="Melee", level=5) & ~predicate("AllDead")
    env = NMMO(preset="mini", task_set=str(path))
    assert (env.n_tasks, env.task_name(0)) == (3, "eat")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: 1}", "it must be a list of 1 to 100000 tasks"),
        ("- [1", "is no YAML: while parsing"),
        ("- 5", "task 0: 5 is no task"),
        ("- {predicate: CountEvnt, n: 1}", "task 0: unknown predicate 'CountEvnt': choose from"),
        ("- {predicate: CountEvent, event: EAT, n: 1}", "task 0: CountEvent: event='EAT': unknown event 'EAT'"),
        ("- {predicate: CountEvent, event: EAT_FOOD}", "task 0: the predicate CountEvent needs N: its arguments are"),
        ("- {predicate: TickGE, ticks: 3}", "task 0: unknown argument of TickGE 'ticks': choose from num_tick"),
        ("- {predicate: TickGE, num_tick: many}", "task 0: TickGE: num_tick='many': 'many' is no number"),
        ("- {predicate: Success, pay: Tusk}", "task 0: unknown pay 'Tusk': choose from Task, OngoingTask"),
        ("- {predicate: Success, hold: 0}", "task 0: hold=0: it must be a whole number of at least 1"),
        ("- {predicate: Success, hold: 2.5}", "task 0: hold=2.5: it must be a whole number of at least 1, and below"),
        ("- {predicate: Success, hold: 3000000000}", "task 0: hold=3000000000: it must be a whole number of at least"),
        ("- {predicate: Success, reward: two}", "task 0: reward='two': it must be a number"),
        ("- {predicate: Success, reward: .nan}", "task 0: reward=nan: it must be within -1e+30 and 1e+30"),
        ("- {predicate: Success, weight: two}", "task 0: weight='two': it must be a number"),
        ("- &a {AND: [*a, 1]}", "task 0: a goal is a part of itself, or too deep"),
        ("- {predicate: Success, name: 12}", "task 0: name=12: it must be a text"),
        ("- {predicate: Success, kind: [a]}", "task 0: kind=['a']: it must be a text"),
        ("- MUL: [.nan, {predicate: Success}]", "task 0: nan in a goal: it must be within -1e+30 and 1e+30"),
        (
            "- {predicate: Success}\n- {predicate: AllDead}\n- {predicate: Success, pay: OngoingTask}",
            ": the tasks 0 and 2 are called Success: give one of them another name",
        ),
        ("- {XOR: [1, 0]}", "task 0: unknown operator 'XOR': choose from AND, OR"),
        ("- {SUB: [1]}", "task 0: SUB has 1 parts: it must have 2"),
        ("- {predicate: TickGE, num_tick: 0}", "task 0: TickGE: num_tick=0: it must be above 0"),
        ("- {predicate: EarnGold, amount: -3}", "task 0: EarnGold: amount=-3: it must be above 0"),
        ("- {predicate: TickGE, num_tick: .nan}", "task 0: TickGE: num_tick=nan: nan is no number"),
        ("- {predicate: InventorySpaceGE, space: -1}", "task 0: InventorySpaceGE: space=-1: it must be at least 0"),
        (
            "- {predicate: AttainSkill, skill: Melee, level: 11}",
            "task 0: AttainSkill: level=11: levels go from 0 to 10",
        ),
        (
            "- {predicate: CanSeeGroup, target: [my_team_leader]}",
            "target=['my_team_leader']: 'my_team_leader' in a list: a list has numbers of players, and a name stands",
        ),
        ("- {predicate: Success, weight: .inf}", "task 0: weight=inf: it must be finite, and not negative"),
        ("- {predicate: Success, weight: 0}", ": all weights are 0: one must be above 0"),
        ("- {predicate: CanSeeAgent, target: 0}", "task 0: CanSeeAgent: target=0: players are numbered from 1 on"),
    ],
)
def test_bad_files_are_refused_in_one_line(text, message, tmp_path):
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as error:  # noqa: PT011, the text is compared below
        NMMO(preset="mini", task_set=str(path))
    assert message in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_tasks_that_fit_no_world_are_refused():
    register_task_list("far", [TaskSpec(predicate("CanSeeAgent", target=40))])
    with pytest.raises(ValueError, match=r"^task CanSeeAgent_40: player 40: there are 24$"):
        NMMO(preset="mini", task_set="far")
    del OWN_LISTS["far"]
    for goal, sentence in (
        (predicate("OccupyTile", row=20, col=49), "a task is about row 20, column 49: both must be between 16 and 48"),
        (seize(20, TILE_ROW + 30).goal, "a task seizes row 20, column 2078: both must be between 18 and 46"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            check_tasks(tables_of((TaskSpec(goal),), MIDDLE), NMMO(preset="mini"))
    with pytest.raises(ValueError, match=r"^the list of tasks 'none' is empty: it must have a task$"):
        register_task_list("none", [])
    with pytest.raises(ValueError, match=r"^the list of tasks 'bare': task 0 is Goal\(.*: it must be a TaskSpec"):
        register_task_list("bare", [predicate("Success")])
    with pytest.raises(ValueError, match=r"^goal=0.5: it must be made of predicates$"):
        TaskSpec(0.5)
    with pytest.raises(ValueError, match=r"^the list of tasks 'train' is one of the package"):
        register_task_list("train", [])
    with pytest.raises(ValueError, match=r"^'TickGE' is a predicate of the game"):
        register_predicate("TickGE", None)


def test_a_predicate_of_ones_own_and_another_subject():
    """Appendices B and C of the paper: kills that count at the first and third, and pay for another one's doings."""

    def kills_in_steps(view, group, numbers):
        kills = jnp.where(group, view.kills.sum(axis=(1, 2)), 0).sum()
        return jnp.where(kills >= 3, 1.0, jnp.where(kills >= 1, 0.5, 0.0)) * numbers.amount

    register_predicate("KillPredicate", kills_in_steps)
    goal = predicate("KillPredicate", amount=1)
    tasks = tables_of((TaskSpec(goal), TaskSpec(goal, subject=2)), MIDDLE)
    assert tasks.has_own
    kills = np.zeros((P, 2, 11), np.int32)
    kills[0, 1, 3], kills[1, 0, 1], kills[1, 1, 2] = 1, 1, 3
    view = view_of(states()[0]).replace(kills=kills)
    numbers = np.zeros(P, np.int32)
    numbers[2] = 1  # paid for what player 2 does
    with pytest.raises(ValueError, match=r"^KillPredicate: target=-5: it must be at least 0$"):
        predicate("KillPredicate", target=-5)  # below 0 are the leaders of teams
    check_tasks(tables_of((TaskSpec(predicate("KillPredicate", target=99)),), MIDDLE), NMMO(preset="mini"))
    value = jax.jit(lambda view, numbers: values(tasks, numbers, view, members_of(tasks, numbers)))(view, numbers)
    assert value[:4].tolist() == [0.5, 1.0, 1.0, 0.0]


def test_numbers_of_numpy_are_numbers():
    for one, other in (
        (predicate("TickGE", num_tick=np.int64(5)), predicate("TickGE", num_tick=5)),
        (predicate("CanSeeGroup", target=np.array([2, 3])), predicate("CanSeeGroup", target=[2, 3])),
        (predicate("OccupyTile", row=np.int32(20), col=np.int32(30)), predicate("OccupyTile", row=20, col=30)),
    ):
        assert one == other
        assert one.name == other.name


def test_a_name_keeps_its_tasks(tmp_path):
    def listed(n):
        return [TaskSpec(predicate("TickGE", num_tick=n))]

    register_task_list("kept", listed(10))
    register_task_list("kept", listed(10))  # a cell of a notebook runs again
    with pytest.raises(ValueError, match=r"^the list of tasks 'kept' is registered with other tasks: choose another"):
        register_task_list("kept", listed(2))
    assert NMMO(preset="mini", task_set="kept").task_name(0) == "TickGE_10"
    cell = "def half(view, group, numbers):\n    return 0.5"
    for text in (cell, cell):
        exec(text, found := {})
        register_predicate("KeptPredicate", found["half"])
    exec(cell.replace("0.5", "0.25"), found)
    with pytest.raises(ValueError, match=r"^the predicate 'KeptPredicate' is registered with another function: choose"):
        register_predicate("KeptPredicate", found["half"])
    path = tmp_path / "tasks.yaml"
    path.write_text("- {predicate: TickGE, num_tick: 5}")
    env = NMMO(preset="mini", task_set=str(path))
    path.write_text("- {predicate: TickGE, num_tick: 6}")
    with pytest.warns(UserWarning, match=r"tasks.yaml has changed: this process keeps the tasks that it read first"):
        again = NMMO(preset="mini", task_set=str(path), max_steps=20)
    assert again.task_name(0) == env.task_name(0) == "TickGE_5"

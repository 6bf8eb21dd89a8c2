"""Teams of Neural MMO: who is a friend, where teams begin, tasks of teams, the end of a world, refusals."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.envs.nmmo.events import Happened
from minimax_lib.envs.nmmo.goals import predicate
from minimax_lib.envs.nmmo.looking import seized, view_of
from minimax_lib.envs.nmmo.nmmo import NMMO
from minimax_lib.envs.nmmo.observation import COLUMNS, entities
from minimax_lib.envs.nmmo.predicates import TILE_ROW
from minimax_lib.envs.nmmo.square import Square
from minimax_lib.envs.nmmo.tables import EVENTS
from minimax_lib.envs.nmmo.task_specs import OWN_LISTS, TaskSpec, register_task_list, specs_in
from minimax_lib.envs.nmmo.tasks import members_of, parts_after, tables_of, values
from minimax_lib.envs.nmmo.teams import LEADERS, NAMES, Teams
from minimax_lib.testing.envs import check_multi_agent

KEY, MIDDLE = jax.random.key(0), 32
TEAMS = Teams(4, 24)
ENV = NMMO(preset="mini", n_teams=4, task_set="team_battle", max_steps=32)


def meant(player: int, name: str) -> set[int]:
    """Whom a player means, as the reference's TeamHelper says it: teams in a ring, the first of each leads."""
    team = [list(range(6 * k, 6 * k + 6)) for k in range(4)]
    k = player // 6
    left, right = team[(k + 1) % 4], team[(k - 1) % 4]
    foes = [one for j in range(4) if j != k for one in team[j]]
    return set(
        {
            "my_team": team[k],
            "my_team_leader": team[k][:1],
            "left_team": left,
            "left_team_leader": left[:1],
            "right_team": right,
            "right_team_leader": right[:1],
            "all_foes": foes,
            "all_foe_leaders": foes[::6],
        }[name]
    )


@pytest.mark.parametrize("name", NAMES)
def test_names_mean_the_players_of_the_reference(name):
    mask = TEAMS.named(name)
    for player in range(24):
        assert set(np.flatnonzero(mask[player]).tolist()) == meant(player, name)


def test_a_team_begins_on_one_tile_and_each_on_another():
    """The places are those of the reference: as few a side as are enough, with equal gaps on its list of the edge."""
    for n_teams, a_side in ((4, 1), (6, 2), (12, 3)):
        teams, square = Teams(n_teams, 24), Square(32)
        low, high = 16, 48
        up, down = list(range(low, high)), list(range(low, high))[::-1]
        sides = [[(low, x) for x in up], [(x, high) for x in up], [(high, x) for x in down], [(x, low) for x in down]]
        wanted = {side[len(side) * (i + 1) // (a_side + 1)] for side in sides for i in range(a_side)}
        draw = jax.jit(jax.vmap(lambda key: teams.spawn_places(key, square)))  # noqa: B023
        spawn = np.asarray(draw(jax.random.split(KEY, 50)))
        for world in spawn.tolist():
            places = [{tuple(place) for place in world[k : k + teams.size]} for k in range(0, 24, teams.size)]
            assert {len(place) for place in places} == {1}
            assert len(set.union(*places)) == n_teams
            assert set.union(*places) <= wanted
        assert {tuple(place) for place in spawn.reshape(-1, 2).tolist()} == wanted


@pytest.fixture(scope="module")
def opened():
    """(the state, what all see) of a world that has just begun."""
    level = jax.jit(ENV.sample_level)(KEY)
    state, ts = jax.jit(ENV.reset)(KEY, level)
    return state, ts.obs


def test_friends_and_foes_are_told_apart(opened):
    state, obs = opened
    # All in one place, so that everybody sees the first sixteen.
    there = state.players.replace(position=np.full((24, 2), 30, np.int32))
    near = np.broadcast_to(np.append(np.arange(15), -1).astype(np.int16), (24, 16))
    crowd = state.replace(players=there, near=near)
    seen, alone = jax.device_get(jax.jit(lambda state: (entities(state, TEAMS), entities(state)))(crowd))
    team = seen[..., COLUMNS.index("team")]
    for player in range(24):
        assert team[player].tolist() == [1 if other // 6 == player // 6 else 2 for other in range(15)] + [0]
    first = np.asarray(obs["entities"])
    assert (first[..., COLUMNS.index("team")][first[..., 0] > 0] == 1).all()  # each team has its own tile
    assert not alone[..., COLUMNS.index("team")].any()


def test_tasks_of_teams_count_what_all_their_players_did(opened):
    """Events, places, item events and named players, beside a plain account; another task counts one player alone."""
    state, _ = opened
    goals = [
        predicate("CountEvent", event="EAT_FOOD", N=40),
        predicate("AllMembersWithinRange", dist=3),
        predicate("HarvestItem", item="Arrow", level=2, quantity=9),
        predicate("CheckAgentStatus", target="all_foes", status="dead"),
        predicate("CheckAgentStatus", target="right_team_leader", status="dead"),
        predicate("ProtectLeader", target_protect="left_team_leader", target_destroy="all_foe_leaders"),
        predicate("StayAlive"),
    ]
    tasks = tables_of((*(TaskSpec(goal, subject="team") for goal in goals), TaskSpec(goals[0])), MIDDLE)
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, len(tasks), 24).astype(np.int32)
    numbers[:8] = range(8)
    alive = rng.random(24) < 0.7
    eaten = rng.integers(0, 4, 24)
    events = np.zeros((24, len(EVENTS)), np.int32)
    events[:, EVENTS.index("EAT_FOOD")] = eaten
    players = state.players.replace(alive=alive, events=events)
    thing, number = rng.choice([121, 120, 111, -1], 24), rng.integers(1, 3, 24)  # arrows of level 2 and 1, a stone

    @jax.jit
    def found(players, numbers, thing, number):
        happened = [Happened("HARVEST_ITEM", thing >= 0, thing=thing, number=number)]
        parts = parts_after(tasks, numbers, jnp.zeros((24, 1), jnp.int32), happened, TEAMS)
        view = view_of(state.replace(players=players, tick=jnp.int32(8)), ENV.square, tasks.seizes)
        return values(tasks, numbers, view, members_of(tasks, numbers, TEAMS), parts, TEAMS)

    value = np.asarray(found(players, numbers, thing, number))
    for player, task in enumerate(numbers):
        mine, living = sorted(meant(player, "my_team")), [p for p in meant(player, "my_team") if alive[p]]
        foes = meant(player, "all_foes")
        (right,), (left,) = meant(player, "right_team_leader"), meant(player, "left_team_leader")
        arrows = sum(int(number[p]) for p in mine if thing[p] == 121)
        wanted = [
            min(eaten[mine].sum() / 40, 1),
            float(bool(living)),  # they stand on one tile
            min(arrows / 9, 1),
            sum(not alive[foe] for foe in foes) / len(foes),
            float(not alive[right]),
            8 / 32 if alive[left] else 0.0,
            float(len(living) == 6),
            min(eaten[player] / 40, 1),
        ][task]
        np.testing.assert_allclose(value[player], wanted, rtol=1e-6, err_msg=f"player {player}, task {task}")


def test_a_world_ends_when_one_team_is_left():
    """Whoever lives then has won, and the tasks of a team's players are the same."""
    level = jax.jit(ENV.sample_level)(KEY)
    state, ts = jax.jit(ENV.reset)(KEY, level)
    step = jax.jit(ENV.step)
    action = {name: np.zeros(24, np.int32) for name, _ in ENV.action_space.items}
    for n_left, over in ((2, False), (1, True), (0, True)):
        alive = np.arange(24) < 6 * n_left
        body = np.where(alive, 100, 0).astype(np.int32)
        dying = state.players.replace(health=body, food=body)
        ts = jax.device_get(step(KEY, state.replace(players=dying), action)[1])
        assert bool(ts.over) == over
        np.testing.assert_array_equal(ts.progress[alive] == 1, over)
        np.testing.assert_array_equal(ts.terminated, ~alive)
        np.testing.assert_array_equal(ts.truncated, alive & over)
        np.testing.assert_array_equal(ts.facts["survived"], alive)


def test_the_tasks_of_a_team_are_drawn_together():
    env = NMMO(preset="mini_npc", n_teams=8, task_set="stages")
    tasks = np.asarray(jax.jit(jax.vmap(env._drawn))(jax.random.split(KEY, 40))).reshape(-1, 3)
    assert (tasks == tasks[:, :1]).all()
    assert len(np.unique(tasks)) > 45
    weighted = dataclasses.replace(env, task_set="train")
    tasks = np.asarray(jax.jit(weighted._drawn)(KEY)).reshape(-1, 3)
    assert (tasks == tasks[:, :1]).all()


def test_a_tile_is_seized_again_only_by_another_team(opened):
    state, _ = opened
    tile = np.array([30 * TILE_ROW + 30], np.int32)
    seize = {teams: jax.jit(lambda world, teams=teams: seized(world, tile, teams).seized) for teams in (TEAMS, None)}

    def after(player: int, last: int, teams: Teams | None) -> int:
        place = np.stack([np.full(24, 20), np.arange(24)], axis=1).astype(np.int32)
        place[player] = 30
        players = state.players.replace(position=place)
        world = state.replace(players=players, seized=np.array([[last, 0]], np.int32), tick=np.int32(5))
        return int(seize[teams](world)[0, 0])

    assert after(2, -1, TEAMS) == 2
    assert after(2, 1, TEAMS) == 1  # a friend has it already
    assert after(2, 6, TEAMS) == 2
    assert after(2, 1, None) == 2
    assert after(2, 2, None) == 2


def test_what_fits_no_team_is_refused_in_one_line(tmp_path):
    for settings, sentence in (
        ({"n_teams": 5}, "n_teams=5: it must be 0, or a divisor of n_players=24 above 1"),
        ({"n_teams": 1}, "n_teams=1: it must be 0, or a divisor of n_players=24 above 1"),
        ({"n_teams": -1}, "n_teams=-1: it must be a whole number of at least 0"),
        ({"n_players": 64, "n_teams": 64}, "n_teams=64: on the edge there is room for 28 teams"),
        ({"n_teams": 6, "stop_below": 4}, "stop_below=4: it must be below 4, the players of a team"),
        ({"task_set": "team_battle"}, "task_set=team_battle: it has tasks of teams: set n_teams, such as 4"),
        ({"task_set": "protect_the_king"}, "task_set=protect_the_king: it has tasks of teams: set n_teams, such as 4"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            NMMO(preset="mini", **settings)
    for subject in ("teams", 1.5, True, [1]):
        with pytest.raises(ValueError, match=r"^subject=.*: it must be team, or the number of a player$"):
            TaskSpec(predicate("StayAlive"), subject=subject)
    with pytest.raises(ValueError, match=r"^CheckAgentStatus: target='all_foe': unknown players 'all_foe': "):
        predicate("CheckAgentStatus", target="all_foe", status="dead")
    with pytest.raises(ValueError, match=r"unknown player 'all_foes': choose from my_team_leader, left_team_leader"):
        predicate("ProtectLeader", target_protect="all_foes")
    path = tmp_path / "tasks.yaml"
    path.write_text("- {predicate: CountEvent, event: EAT_FOOD, n: 5, subject: team}\n")
    assert specs_in(str(path))[0].subject == "team"
    told = [tables_of((TaskSpec(predicate("CanSeeAgent", target=name)),), MIDDLE).features for name in LEADERS]
    assert len({float(row[0, 5]) for row in told}) == 3  # agents can tell whom a task means
    register_task_list("guards", [TaskSpec(predicate("CanSeeAgent", target="my_team_leader"))])
    with pytest.raises(ValueError, match=r"^task_set=guards: it has tasks of teams"):
        NMMO(preset="mini", task_set="guards")
    del OWN_LISTS["guards"]


@pytest.mark.deep
def test_worlds_of_teams_conform():
    check_multi_agent(ENV, KEY, 2)

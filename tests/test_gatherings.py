"""Worlds whose seats several players share: whose lives are whose, by arithmetic and by chance; tables and files."""

import csv
import dataclasses
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from scipy.stats import chisquare
from test_many_agents import Crowd, lives_of
from tiny_run import save_tiny_run

from docs.make.metric_tables import RESULTS, SHARED
from minimax_lib.commands import evaluate
from minimax_lib.envs.spaces import Discrete
from minimax_lib.evaluation.gatherings import Standings, gathered, lives, points_table, standings_table
from minimax_lib.evaluation.match_tables import Ranking, matrix_table
from minimax_lib.evaluation.ratings import world_intervals
from minimax_lib.experiment.gathering import uneven
from minimax_lib.playing import crowds
from minimax_lib.playing.players import Resident, SharedSeats

KEY = jax.random.key(5)
N_SEATS, PARTS = 7, (3, 2, 2)


@dataclasses.dataclass(frozen=True)
class Paid(Crowd):
    """Everybody is paid what it does."""

    n_agents: int = N_SEATS
    action_space = Discrete(16)

    def step(self, key, state, action):
        state, ts = super().step(key, state, action)
        return state, ts.replace(reward=jnp.where(ts.playing, action.astype(jnp.float32), 0.0))


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Does its parameter."""

    def init_carry(self, n: int) -> Any:
        return ()

    def act(self, keys, params, turn, carry):
        return jnp.full(len(keys), params, jnp.int32), carry


@dataclasses.dataclass(frozen=True)
class Remembers:
    """Does in every step what its seat saw in the first one."""

    def init_carry(self, n: int) -> Any:
        return jnp.zeros(n, jnp.float32)

    def act(self, keys, params, turn, carry):
        carry = jnp.where(turn.first, turn.obs[:, 1], carry)
        return carry.astype(jnp.int32), carry


ENV = Paid()


def by_seat(key, env, state, seat):
    """A bot whose action is the number of its seat."""
    return seat


def levels_of(n: int) -> Any:
    return jax.vmap(ENV.sample_level)(jax.random.split(KEY, n))


def test_each_seat_is_played_by_its_owner():
    """Player k always does k + 1, so that a life of n ticks returns n (k + 1)."""
    shared = SharedSeats((Fixed(),) * 3)
    played, owner, tasks = jax.device_get(lives(ENV, shared, KEY, (1, 2, 3), levels_of(50)))
    expected = np.stack([lives_of(level)[:N_SEATS] for level in np.asarray(levels_of(50))])
    np.testing.assert_array_equal(played.lengths, expected)
    np.testing.assert_array_equal(played.returns, expected * (owner + 1))
    np.testing.assert_array_equal(tasks, np.asarray(levels_of(50))[:, 1:])
    assert (np.apply_along_axis(np.bincount, 1, owner) == PARTS).all()
    assert len({tuple(row) for row in owner}) > 40  # dealt out anew in each world


def test_every_seat_falls_to_every_player_by_its_part():
    """Over 700 worlds, by chi-square; a fair deal fails one time in a thousand."""
    _, owner, _ = jax.device_get(lives(ENV, SharedSeats((Fixed(),) * 3), KEY, (1, 2, 3), levels_of(700)))
    for seat in range(N_SEATS):
        assert chisquare(np.bincount(owner[:, seat], minlength=3), np.array(PARTS) * 100).pvalue > 1e-3 / N_SEATS


@dataclasses.dataclass(frozen=True)
class Teams(Paid):
    """Three teams of two."""

    n_agents: int = 6
    team_size: int = 2


def test_a_player_has_whole_teams():
    levels = jax.vmap(Teams().sample_level)(jax.random.split(KEY, 60))
    shared = SharedSeats((Fixed(),) * 2, team_size=2)
    played, owner, _ = jax.device_get(lives(Teams(), shared, KEY, (1, 2), levels))
    np.testing.assert_array_equal(played.returns, played.lengths * (owner + 1))
    np.testing.assert_array_equal(owner[:, ::2], owner[:, 1::2])
    assert (np.apply_along_axis(np.bincount, 1, owner) == (4, 2)).all()
    assert len({tuple(row) for row in owner}) == 3


def test_who_has_more_teams_than_others_is_said():
    """As the test above deals them out."""
    (note,) = uneven(Teams(), ("x", "y"))
    assert note == "3 teams for 2 players: 2 for x; 1 for y: the more teams, the more worlds a player wins"
    assert not [*uneven(Teams(), ("x", "y", "z"))]
    assert [*uneven(ENV, ("x", "y", "z", "u"))] == ["7 seats for 4 players: 2 for each of x, y, z; 1 for u"]


def test_a_world_of_teams_is_won_by_whose_teams_alone_are_left():
    """Left are a team, two teams of one player, teams of two players (a draw), nobody (a draw)."""
    owner = np.repeat([[[0, 0, 1, 2], [2, 0, 1, 0], [0, 0, 1, 2], [1, 2, 0, 0]]], 2, axis=-1)  # four teams of two
    left = np.array([[[0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 1, 0, 0], [0] * 8]])
    paid = np.where(owner == 2, 5.0, 1.0)  # the most goes to a player that never wins
    measures = {"return": paid, "length": paid, "solved_rate": left, "facts/survived": left}
    found = Standings(tuple("abc"), ("x",), owner, measures)
    np.testing.assert_array_equal(found.by_world["won"][:, 0], [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(found.games.won[..., 0], [[0, 1, 1], [1, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(found.games.drawn[..., 0], [[0, 2, 3], [2, 0, 3], [3, 3, 0]])
    assert [row["won"] for row in found.rows()] == [0.25, 0.25, 0]
    table = standings_table("title", found)
    assert [column.header for column in table.columns][:3] == ["player", "solved\nrate", "worlds\nwon"]
    assert list(table.columns[2].cells) == ["0.0% ± 0.0", "25.0% ± 25.0", "25.0% ± 25.0"]


def test_memories_stay_with_their_seats_and_bots_know_where_they_sit():
    shared = SharedSeats((Remembers(), Resident(ENV, by_seat)))
    played, owner, tasks = jax.device_get(lives(ENV, shared, KEY, ((), ()), levels_of(20)))
    does = np.where(owner == 0, tasks, np.arange(N_SEATS))
    np.testing.assert_array_equal(played.returns, played.lengths * does)


def test_one_player_in_all_seats_is_the_crowd():
    """Memories, observations and actions are dealt out and put back."""
    levels = levels_of(4)
    played, owner, _ = jax.device_get(lives(ENV, SharedSeats((Remembers(),)), KEY, ((),), levels))
    alone = jax.device_get(jax.jit(crowds.Crowd(ENV, Remembers()).lives)(KEY, (), levels))
    assert not owner.any()
    jax.tree.map(np.testing.assert_array_equal, played, alone)


def test_tasks_that_differ_are_no_error_of_the_mean_over_them():
    """All worlds on a task are alike: played again, they give the same."""
    owner, returns = np.zeros((2, 5, 1), int), np.repeat([0.0, 10.0], 5).reshape(2, 5, 1)
    found = Standings(("one",), ("a", "b"), owner, {"return": returns})
    assert [x.tolist() for x in found.mean("return")] == [[5.0], [0.0]]


def test_worlds_on_the_same_levels_do_not_make_errors_smaller():
    """Four rounds on three levels, which alone decide what happens, say as much as one round."""
    owner = np.tile([0, 1], (1, 3, 1))
    one, four = (
        Standings(("x", "y"), ("a",), np.tile(owner, (1, n, 1)), {"return": np.tile(paid, (1, n, 1))}, rounds=n)
        for paid in [np.array([[[5.0, 1.0], [0.0, 4.0], [4.0, 1.0]]])]
        for n in (1, 4)
    )
    assert [x.tolist() for x in one.mean("return")] == [x.tolist() for x in four.mean("return")]
    assert one.mean("return")[1][1] == pytest.approx(1.0)  # of 1, 4 and 1
    score = np.random.default_rng(0).normal(size=(2, 1, 20))
    single, again = (world_intervals(np.tile(score, n), fixed=1, rounds=n)[0] for n in (1, 9))
    # The draw that every pair gets counts for less beside more worlds.
    np.testing.assert_allclose(again, single, atol=20)  # 100 where each world counts as its own


def test_means_and_errors_are_those_of_plain_loops():
    levels = jax.tree.map(lambda x: x.reshape(2, 5, -1), levels_of(10))
    params = [(4, 2), (6, 1)]
    found = gathered(ENV, ["one", "other"], [Fixed(), Fixed()], KEY, params, levels, ["a", "b"])
    assert found.owner.shape == (2, 10, N_SEATS)
    for k, player in enumerate(found.players):
        worlds = []
        for m in range(2):
            worlds.append([])
            for e in range(10):
                mine = [g for g in range(N_SEATS) if found.owner[m, e, g] == k]
                assert len(mine) == (4, 3)[k]
                returns = [params[e // 5][k] * lives_of(levels[m, e % 5])[g] for g in mine]
                worlds[m].append(np.mean(returns))
        mean, error = (x[k] for x in found.mean("return"))
        assert mean == pytest.approx(np.mean(worlds))
        # Both rounds are on the same five levels.
        errors = [np.std([np.mean([task[e], task[e + 5]]) for e in range(5)], ddof=1) / np.sqrt(5) for task in worlds]
        assert error == pytest.approx(np.hypot(*errors) / 2)
        rows = [row for row in found.rows() if row["player"] == player]
        assert np.mean([row["return"] for row in rows]) == pytest.approx(mean)
        assert [(row["task"], row["worlds"], row["lives"]) for row in rows] == [(x, 10, 10 * (4, 3)[k]) for x in "ab"]
    # Who has won a world of whom, by plain loops.
    games, returns = found.games, found.by_world["return"]
    assert games.won[0, 1].tolist() == [sum(returns[0, m] > returns[1, m]) for m in range(2)]
    assert games.won[1, 0].tolist() == [sum(returns[0, m] < returns[1, m]) for m in range(2)]
    assert games.n_games[0, 1].tolist() == games.n_games[1, 0].tolist() == [10, 10]
    assert not games.n_games[0, 0].any()
    assert games.steps[0, 1].tolist() == [found.measures["length"][m].max(axis=1).sum() for m in range(2)]
    ranking = Ranking.of(games, 0, world_intervals(found.decides, rounds=found.rounds))
    np.testing.assert_array_equal(ranking.intervals, world_intervals(returns, rounds=2))
    assert "95% intervals over worlds" in str(matrix_table(ranking).caption)
    # Even tasks are solved by all, odd ones by nobody: two kinds share 100 points, whoever plays.
    points = points_table(found, str, ENV.task_kind)
    assert [list(column.cells) for column in points.columns][1:] == [["50.0", "0.0", "50.0"]] * 2
    table = standings_table("title", found)
    assert list(table.columns[0].cells) == ["one", "other"]  # the higher return first


def test_a_kind_that_a_player_had_no_task_of_is_unknown_and_counts_for_all():
    """Both make half of the progress in every life. The first player had no agent with the task of kind b."""
    half = np.full((1, 1, 3), 0.5)
    measures = dict.fromkeys(("solved_rate", "return", "length", "progress"), half)
    found = Standings(("mine", "other"), ("x",), np.array([[[0, 1, 1]]]), measures, np.array([[[0, 0, 1]]]))
    table = points_table(found, lambda number: f"t{number}", lambda number: "ab"[number])
    assert [list(column.cells) for column in table.columns] == [
        ["a", "b", "all"],
        ["25.0", "-", "-"],
        ["25.0", "25.0", "50.0"],
    ]
    assert "its agents had no task of this kind" in str(table.caption)


@pytest.mark.parametrize("width", [80, 200])
def test_checkpoints_of_one_run_can_be_told_apart_on_a_narrow_terminal(width):
    names = ("runs/x", *(f"runs/x/archive/update-{update}.npz" for update in (200, 300, 400)))
    each = dict.fromkeys(("return", "length", "solved_rate", "progress", "facts/survived"), np.full((1, 2, 4), 123.5))
    found = Standings(names, ("x",), np.tile(np.arange(4), (1, 2, 1)), each, np.zeros((1, 2, 4), int))
    for table in (standings_table("title", found), points_table(found, str, str)):
        console = Console(width=width, file=io.StringIO())
        console.print(table)
        shown = console.file.getvalue()
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        if width > 80:
            assert all(name in shown for name in names)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    env = {"name": "NMMO", "preset": "mini", "n_players": 4, "max_steps": 8}
    model = {"name": "nmmo", "size": "tiny"}
    for seed, name in enumerate(("a", "b")):
        save_tiny_run(root / name, env=env, model=model, seed=seed)
    return root


def run(words, monkeypatch, root) -> int:
    monkeypatch.chdir(root)
    return evaluate.main([str(word) for word in words])


@pytest.mark.deep
def test_the_command_plays_worlds_prints_tables_and_keeps_a_file(runs, monkeypatch, capsys):
    words = ("--run", "a", "--opponents", "b", "random", "bot", "--tasks", "HeldOutMaps", "--n-episodes", 3)
    assert run(words, monkeypatch, runs) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 players share the seats: 3 worlds on each held-out task" in said
    assert "a world is won by the higher mean return; a draw is not a win" in said
    assert "95% intervals over worlds" in said
    matrix, path = sorted((runs / "a" / "evaluations" / "shared").glob("*.csv"))
    assert path.name == "update4-against-b-random-bot.csv"
    assert matrix.name == "update4-against-b-random-bot-matrix.csv"
    meetings = list(csv.DictReader(matrix.open()))
    assert len(meetings) == 4 * 3
    assert {row["n_games"] for row in meetings} == {"3"}
    rows = list(csv.DictReader(path.open()))
    assert [row["player"] for row in rows] == ["a", "b", "random", "bot"]
    assert sum(int(row["lives"]) for row in rows) == 3 * 4
    columns = {name for name in rows[0] if not name.startswith("facts/")}
    assert columns <= set(SHARED.metrics) | set(RESULTS.metrics)
    again = path.read_text()
    path.unlink()
    assert run(words, monkeypatch, runs) == 0
    assert path.read_text() == again  # the same worlds
    words = ("--label", "A=a", "B=b", "--opponents", "random", "--tasks", "HeldOutMaps", "--n-episodes", 2)
    assert run((*words, "--out", "shared.csv"), monkeypatch, runs) == 0
    assert [row["player"] for row in csv.DictReader((runs / "shared.csv").open())] == ["A", "B", "random"]
    assert "note: 4 seats for 3 players: 2 for A; 1 for each of B, random\n" in capsys.readouterr().out


@pytest.mark.deep
def test_copies_of_a_bank_share_the_seats_as_far_as_there_is_room(tmp_path, monkeypatch, capsys):
    """Three copies, four seats, two other players: the oldest copy and the newest one play."""
    env = {"name": "NMMO", "preset": "mini", "n_players": 4, "max_steps": 8}
    runner = {"name": "selfplay", "n_parallel": 4, "n_steps": 4, "rollouts_per_batch": 2, "capacity": 3, "every": 1}
    runner |= {"n_opponents": 2}
    model = {"name": "nmmo", "size": "tiny"}
    _, state = save_tiny_run(tmp_path / "a", env=env, model=model, runner=runner, n_updates=6)
    words = ("--run", "a", "--opponents", "random", "bank", "--tasks", "HeldOutMaps", "--n-episodes", 2)
    assert run(words, monkeypatch, tmp_path) == 0
    assert "copies of the bank for which there is no room: 1" in capsys.readouterr().out
    (path,) = set((tmp_path / "a" / "evaluations" / "shared").glob("*.csv")) - set(tmp_path.rglob("*-matrix.csv"))
    copies = np.asarray(state.curriculum.bank.record.serial)
    expected = ["a", "random", f"copy {copies.min()}", f"copy {copies.max()}"]
    assert [row["player"] for row in csv.DictReader(path.open())] == expected


@pytest.mark.parametrize(
    ("opponents", "sentence"),
    [
        (("bank",), "opponents is bank: a keeps no copies of its student, its runner is 'dr'"),
        (
            ("random", "bot", "b", "b/checkpoints/4"),
            "there are 5 players, and NMMO has 4 seats",
        ),
        (("randon",), "did you mean 'random'"),
    ],
)
def test_what_cannot_share_a_world_is_refused(runs, monkeypatch, capsys, opponents, sentence):
    assert run(("--run", "a", "--opponents", *opponents), monkeypatch, runs) == 2
    assert sentence in capsys.readouterr().err


def test_worlds_that_cost_too_much_are_refused(runs, monkeypatch, capsys):
    words = ("--run", "a", "--opponents", "random", "--tasks", "HeldOutMaps", "--most-steps", 100)
    assert run(words, monkeypatch, runs) == 2
    assert "all worlds may take 3,200 environment steps" in capsys.readouterr().err

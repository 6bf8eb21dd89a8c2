"""`minimax-evaluate --opponents`: who meets whom, the figures in tables and files, and what is refused."""

import csv
import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_run import tiny_config, tiny_states

from docs.make.metric_tables import GAMES, RESULTS
from minimax_lib.commands.evaluate import found_runs, main
from minimax_lib.config import save_yaml, to_dict
from minimax_lib.config.evaluate import parse
from minimax_lib.config.shipped import shipped_agents
from minimax_lib.envs.lasertag import LaserTag
from minimax_lib.envs.matrix_game import UNEVEN_ROCK_PAPER_SCISSORS, MatrixGame
from minimax_lib.envs.registry import FAMILIES, register_env
from minimax_lib.evaluation.match_tables import Fare, Ranking, fare_table, matrix_table, wilson
from minimax_lib.evaluation.matches import CrossTable, Entrant
from minimax_lib.evaluation.ratings import ratings
from minimax_lib.experiment.meeting_plan import planned
from minimax_lib.experiment.members import Member, different_updates
from minimax_lib.opponents.bank import EMPTY
from minimax_lib.playing.players import own_bot
from minimax_lib.runners.build import make_agent
from minimax_lib.store.checkpoint import Checkpoints
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.loaded import LoadedRun, load_run
from minimax_lib.store.parameters import about_params, load_params
from minimax_lib.store.saved import Run


@dataclasses.dataclass(frozen=True)
class PlainGame(MatrixGame):
    """A game for two without a bot."""


@dataclasses.dataclass(frozen=True)
class GameWithBot(MatrixGame):
    def bot(self, key, state, seat):
        """Always the first action with the row, the last one with the column."""
        return jnp.where(state.role[seat] == 0, 0, 2)


GAME = {"name": "PlainGame", "payoff": UNEVEN_ROCK_PAPER_SCISSORS}
SELFPLAY = {"name": "selfplay", "capacity": 3, "every": 1, "n_opponents": 2}
SERIALS = (7, EMPTY, 4)  # of the three slots
PAYOFF = np.array(UNEVEN_ROCK_PAPER_SCISSORS)
N = 200  # games in each seat
DEVIATIONS = 4.5


@pytest.fixture(scope="module", autouse=True)
def registered():
    """The two games, while the tests of this file run: other tests go through all that are registered."""
    for cls in (PlainGame, GameWithBot):
        register_env(cls.__name__, cls)
    yield
    for cls in (PlainGame, GameWithBot):
        FAMILIES.pop(cls)


def save_run(folder: Path, runner=SELFPLAY, **settings):
    """(configuration, the states of updates 2 and 4) of a run whose agents prefer some actions."""
    config = tiny_config(folder, runner, **({"env": GAME} | settings))
    states = [with_bank(louder(jax.device_get(state))) for state in tiny_states(config, 2)]
    folder.mkdir(parents=True)
    save_yaml(config, folder / "config.yaml")
    with Checkpoints(folder / "checkpoints", keep=2, config=to_dict(config)) as checkpoints:
        for update, state in zip((2, 4), states, strict=True):
            checkpoints.save(update, state)
    return config, states


def louder(state):
    """All parameters are larger, so that the policies are far from uniform."""

    def scaled(tree):
        return jax.tree.map(lambda x: 8 * x, tree)

    curriculum = state.curriculum
    if hasattr(curriculum, "bank"):
        curriculum = curriculum.replace(bank=curriculum.bank.replace(params=scaled(curriculum.bank.params)))
    return state.replace(students=state.students.replace(params=scaled(state.students.params)), curriculum=curriculum)


def with_bank(state):
    if not hasattr(state.curriculum, "bank"):
        return state
    bank = state.curriculum.bank
    serial = np.broadcast_to(np.asarray(SERIALS, np.int32), bank.record.serial.shape)
    return state.replace(
        curriculum=state.curriculum.replace(bank=bank.replace(record=bank.record.replace(serial=serial)))
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """a: two seeds; b: another one of the same method; c: without a bank; d: another game; e: the game has a bot."""
    root = tmp_path_factory.mktemp("runs")
    made = {"a": save_run(root / "a", n_seeds=2), "b": save_run(root / "b", seed=5)}
    save_run(root / "c", {"name": "dr"})
    save_run(root / "e", {"name": "dr"}, env=GAME | {"name": "GameWithBot"})
    save_run(root / "d", env=GAME | {"payoff": ((1, -1), (-1, 1))})
    return root, made


def evaluate(root, monkeypatch, *words) -> int:
    monkeypatch.chdir(root)
    return main([str(word) for word in words])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@functools.cache
def probabilities(config):
    """A function of parameters: the probabilities of the actions. The game shows nothing but a constant."""
    agent = make_agent(config).agent
    one = np.ones(1, bool)
    policy = jax.jit(
        lambda params: agent.policy(params, jnp.ones((1, 1), jnp.float32), agent.init_carry((1,)), one)[0].probs[0]
    )
    return lambda params: np.asarray(policy(params))


def expected(own, other) -> dict[str, float]:
    both = np.outer(own, other)
    return {"win": both[PAYOFF > 0].sum(), "draw": both[PAYOFF == 0].sum(), "loss": both[PAYOFF < 0].sum()}


def check(row, own, other) -> None:
    """The shares of a row of a file are those of two policies."""
    for name, share in expected(np.asarray(own, float), np.asarray(other, float)).items():
        bound = DEVIATIONS * np.sqrt(share * (1 - share) / int(row["n_games"])) + 1e-6
        assert abs(float(row[name]) - share) < bound, (name, row)


RANDOM = np.full(3, 1 / 3)


def test_the_bank_is_met_copy_by_copy(runs, monkeypatch, capsys):
    """Each seed meets its own copies, the oldest first, and an empty slot is nobody."""
    root, made = runs
    config, states = made["a"]
    assert evaluate(root, monkeypatch, "--run", "a", "--opponents", "bank", "random", "--n-episodes", N) == 0
    rows = read(root / "a/evaluations/matches/update4-against-bank-random.csv")
    found = [(row["seed"], row["opponent"], row["opponent_seed"], row["opponent_copy"]) for row in rows]
    assert found == [
        line
        for seed in "01"
        for line in ((seed, "random", "", ""), (seed, "bank", seed, "4"), (seed, "bank", seed, "7"))
    ]
    policy, students, bank = probabilities(config), states[1].students.params, states[1].curriculum.bank.params
    spread = []
    for row in rows:
        seed = int(row["seed"])
        own = policy(jax.tree.map(lambda x, seed=seed: x[seed, 0], students))
        other = RANDOM
        if row["opponent"] == "bank":
            slot = SERIALS.index(int(row["opponent_copy"]))
            other = policy(jax.tree.map(lambda x, seed=seed, slot=slot: x[seed, slot], bank))
        check(row, own, other)
        spread += [np.max(own), np.max(other)]
        assert (row["n_games"], row["length"], row["update"], row["task"]) == (
            str(2 * N),
            "1.0",
            "4",
            "TrainingDistribution",
        )
    assert max(spread) > 0.6  # else any policy would do
    printed = capsys.readouterr().out
    assert f"6 pairs, {6 * 2 * N:,} games, at most {6 * 2 * N:,} environment steps" in printed
    assert printed.index("random") < printed.index("copy 4") < printed.index("copy 7")
    assert "Elo" not in printed  # of two players


@pytest.mark.deep
def test_all_meet_all_where_there_are_several(runs, monkeypatch, capsys):
    root, made = runs
    words = ("--run", "a", "--opponents", "random", "b", "a/checkpoints/2", "--n-episodes", N)
    for _ in range(2):  # the same games are the same files
        assert evaluate(root, monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    folder = root / "a/evaluations/matches"
    assert [path.name for path in sorted(folder.glob("*-b-a*"))] == [
        "update4-against-random-b-a-matrix.csv",
        "update4-against-random-b-a.csv",
    ]
    rows = read(folder / "update4-against-random-b-a.csv")
    (config, states), (_, others) = made["a"], made["b"]
    policy = probabilities(config)
    assert len(rows) == 2 * (1 + 1 + 2)
    for row in rows:
        own = policy(jax.tree.map(lambda x, row=row: x[int(row["seed"]), 0], states[1].students.params))
        state = {"b": others[1], "a/checkpoints/2": states[0]}.get(row["opponent"])
        place = 0 if row["opponent"] == "b" else int(row["opponent_seed"] or 0)
        other = RANDOM
        if state:
            other = policy(jax.tree.map(lambda x, place=place: x[place, 0], state.students.params))
        check(row, own, other)
    assert {(row["opponent"], row["opponent_seed"], row["opponent_update"]) for row in rows} == {
        ("random", "", ""),
        ("b", "5", "4"),
        ("a/checkpoints/2", "0", "2"),
        ("a/checkpoints/2", "1", "2"),
    }
    matrix = read(folder / "update4-against-random-b-a-matrix.csv")
    # Every column has its line in docs/metrics.md.
    assert set(rows[0]) | set(matrix[0]) == set(GAMES.metrics) | set(rows[0]) & set(RESULTS.metrics)
    names = ["a", "random", "b", "a/checkpoints/2"]
    assert [(row["player"], row["opponent"]) for row in matrix] == [(p, o) for p in names for o in names if p != o]
    won, drawn = np.zeros((2, 4, 4))
    for row in matrix:
        i, j = names.index(row["player"]), names.index(row["opponent"])
        won[i, j], drawn[i, j] = (float(row[name]) * int(row["n_games"]) for name in ("win", "draw"))
        assert float(row["elo_low"]) <= float(row["elo"]) <= float(row["elo_high"])
    elo = {row["player"]: float(row["elo"]) for row in matrix}
    np.testing.assert_allclose([elo[name] for name in names], ratings(won.round(), drawn.round(), 1), atol=1e-6)
    assert elo["random"] == 0
    printed = " ".join(printed.split())
    assert all(text in printed for text in ("All against all", "log-odds", "Elo of random is 0", f"{elo['b']:.0f}"))


@pytest.mark.deep
def test_the_bot_of_the_game_plays_its_seat(runs, monkeypatch):
    """With the row it plays the first action, with the column the last: half and half."""
    root, _ = runs
    assert evaluate(root, monkeypatch, "--run", "e", "--opponents", "bot", "random", "--n-episodes", N) == 0
    rows = read(root / "e/evaluations/matches/update4-against-bot-random-matrix.csv")
    (row,) = [row for row in rows if (row["player"], row["opponent"]) == ("random", "bot")]
    check(row, RANDOM, np.array([0.5, 0, 0.5]))


@pytest.mark.deep
def test_methods_are_put_side_by_side(runs, monkeypatch, capsys):
    root, _ = runs
    words = ("--compare", "a", "b", "c", "--opponents", "random", "--n-episodes", 20, "--out", "all.csv")
    assert evaluate(root, monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    assert "selfplay: 20 sampled games on each held-out task in each seat" in printed
    assert "dr: 20 sampled games on each held-out task in each seat" in printed
    assert [row["opponent"] for row in read(root / "c/evaluations/matches/update4-against-random.csv")] == [
        *("selfplay",) * 3,
        "random",
    ]
    matrix = read(root / "all.csv")
    assert {row["player"] for row in matrix} == {"selfplay", "dr", "random"}
    games = {(row["player"], row["opponent"]): int(row["n_games"]) for row in matrix}
    assert games["selfplay", "dr"] == games["dr", "selfplay"] == games["selfplay", "random"] == 3 * 40
    assert games["dr", "random"] == 40


@pytest.mark.deep
def test_pairs_are_left_out_above_the_limit(runs, monkeypatch, capsys):
    root, _ = runs
    words = ("--run", "a", "--opponents", "random", "b", "--n-episodes", 10, "--most-steps", 65)
    assert evaluate(root, monkeypatch, *words) == 0
    printed = capsys.readouterr().out
    assert "3 of 5 pairs, drawn at random (--most-steps 65)" in printed
    assert "3 pairs, 60 games, at most 60 environment steps" in printed


def test_a_run_without_a_game_has_no_file_and_the_others_keep_theirs(runs, monkeypatch, capsys, tmp_path):
    """Of the three seeds of two runs, one meets the opponent."""
    root, _ = runs
    words = ("--label", "both=[ab]", "--opponents", "random", "--n-episodes", 10, "--most-steps", 20)
    assert evaluate(root, monkeypatch, *words, "--tasks", "TrainingDistribution", "--out", tmp_path / "x.csv") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 3 pairs, drawn at random" in printed
    assert printed.count("written: ") == 1
    (without,) = (name for name in "ab" if f"note: {name} has no game" in printed)
    (written,) = {"a", "b"} - {without}
    newest = max((root / written / "evaluations" / "matches").glob("*.csv"), key=lambda path: path.stat().st_mtime_ns)
    assert {(row["opponent"], row["n_games"]) for row in read(newest)} == {("random", "20")}


REFUSED = {
    ("--opponents",): "--opponents is empty: it must be random, bot, bank or folders of runs",
    ("--opponents", "radom"): "unknown opponent 'radom': choose from random, bot, bank",
    ("--opponents", "bot"): "--opponents is bot: PlainGame has none, choose from random, bank or runs",
    ("--opponents", "a"): "--opponents is 'a', which is evaluated itself: name another one",
    ("--opponents", "random", "random"): "--opponents is 'random' twice: name it once",
    ("--opponents", "a/checkpoints/3"): "opponent 'a/checkpoints/3' does not exist: choose from a/checkpoints/2, a/",
    ("--opponents", "./ab"): "unknown run 'ab': choose from ",
    (
        "--opponents",
        "ab",
    ): f"unknown opponent 'ab': choose from random, bot, bank, {', '.join(shipped_agents())}, a, b, c, d, e",
    ("--opponents", "d"): "a and d cannot play together: observation space is ",
    ("--opponents", "maze/sfl"): "a and maze/sfl cannot play together: number of agents is 2 and 1",
    ("--opponents", "random", "--robust"): "--robust is True, which means nothing with --opponents",
    ("--opponents", "random", "--n-levels", "5"): "--n-levels is '5', which is for --robust and --scores",
    ("--opponents", "random", "--out", "x.csv"): "--out is 'x.csv', which is for --compare only",
    ("--most-steps", "5"): "--most-steps is '5', which is for --opponents only: add that, or leave it out",
    ("--opponents", "random", "--most-steps", "0"): "--most-steps is 0: it must be at least 1",
    ("--opponents", "random", "--most-steps", "5"): "--most-steps is 5: the games of one pair alone may take 200",
    ("--opponents", "random", "--tasks", "Cross"): "unknown held-out task 'Cross': choose from",
    ("--opponents", "random", "--student", "1"): "--student is 1: a has 1, counted from 0",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_refused(words, runs, monkeypatch, capsys):
    root, _ = runs
    before = sorted(root.rglob("*"))
    assert evaluate(root, monkeypatch, "--run", "a", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {REFUSED[words]}")
    assert error.count("\n") == 1
    assert sorted(root.rglob("*")) == before


def test_a_run_without_a_bank_is_refused(runs, monkeypatch, capsys):
    root, _ = runs
    assert evaluate(root, monkeypatch, "--run", "c", "--opponents", "bank") == 2
    assert "c keeps no copies of its student, its runner is 'dr'" in capsys.readouterr().err


@pytest.mark.deep
def test_tasks_that_differ_in_the_bot_are_one(tmp_path, monkeypatch):
    """LaserTag has each map twice, against a random player and against a script."""
    save_run(tmp_path / "tag", env={"name": "LaserTag"})
    monkeypatch.chdir(tmp_path)

    def meeting(*words):
        settings = parse(["--run", "tag", "--opponents", *words])
        return planned(settings, {"": found_runs(settings)})

    for words, tasks, n_left_out in (
        (["random", "--tasks", "Cross", "CrossBot", "Star"], ("Cross", "Star"), 1),
        (["random", "--tasks", "CrossBot"], ("CrossBot",), 0),
        (["bot", "--tasks", "Cross"], ("Cross",), 0),
    ):
        found = meeting(*words)
        assert (found.tasks, found.n_left_out) == (tasks, n_left_out)
        assert isinstance(found.held_out.env, LaserTag)
        assert found.bot is (own_bot if "bot" in words else None)  # the game's written player is that script
    assert not any(name.endswith("Bot") for name in meeting("random").tasks)
    save_run(tmp_path / "blind", env={"name": "LaserTag", "actions": ["left", "forward", "fire"]})
    assert evaluate(tmp_path, monkeypatch, "--run", "blind", "--opponents", "bot") == 2


@pytest.mark.deep
def test_a_copy_is_an_agent_of_its_own(runs, tmp_path):
    """It acts, plays and is exported with its own parameters, which are those in its slot of its seed's bank."""
    root, made = runs
    config, states = made["a"]
    policy, (run, other) = probabilities(config), [load_run(root / "a", seed=seed) for seed in (0, 1)]
    assert run.copies == (4, 7)
    for loaded, place in ((run, 0), (other, 1)):
        for number in run.copies:
            copy, slot = loaded.copy(number), SERIALS.index(number)
            bank = states[1].curriculum.bank.params
            own = jax.tree.map(lambda x, place=place, slot=slot: x[place, slot], bank)
            jax.tree.map(np.testing.assert_array_equal, copy.params, own)
            action, _ = copy.act(np.ones(1, np.float32))
            assert action == np.argmax(policy(own))
    copy = run.copy(7)
    assert repr(copy).endswith("update 4, seed 0 of 0 to 1, student 0 of 0, copy 7)")
    rows, _ = copy.act(np.ones((2, 1), np.float32))  # what both agents see
    assert rows.tolist() == 2 * [int(copy.act(np.ones(1, np.float32))[0])]
    for episode in (copy.play(), copy.play(jnp.zeros((), jnp.int32)), copy.play("TrainingDistribution")):
        assert episode.length == 1
        assert abs(episode.episode_return) in set(np.abs(PAYOFF).flat)
        assert episode.solved == (episode.episode_return > 0)
    exported = load_params(copy.export(tmp_path / "copy.npz"))
    jax.tree.map(np.testing.assert_array_equal, exported, jax.device_get(copy.params))
    assert about_params(tmp_path / "copy.npz")["copy"] == 7
    # From a copy to the student, to another seed and to another copy.
    jax.tree.map(np.testing.assert_array_equal, copy.of().params, run.params)
    jax.tree.map(np.testing.assert_array_equal, copy.of(1).copy(4).params, other.copy(4).params)
    assert copy.copy(4).copies == run.copies


@pytest.mark.deep
def test_copies_that_are_not_there_are_named(runs):
    root, _ = runs
    run = load_run(root / "a")
    with pytest.raises(ValueError, match=f"^copy is 5: the bank of {root}/a, seed 0, has 4, 7$"):
        run.copy(5)
    for ask in (lambda run: run.copies, lambda run: run.copy(0)):
        with pytest.raises(ValueError, match=f"^{root}/c keeps no copies of its student, its runner is 'dr'$"):
            ask(load_run(root / "c"))
        with pytest.raises(ValueError, match=r"parameters alone: the bank of opponents is in checkpoints$"):
            ask(load_run("lasertag/small2"))


@pytest.mark.deep
def test_of_several_devices_the_bank_is_one(tmp_path):
    """Each has the same; the kept numbers may have fewer bits than those of the student."""
    config = tiny_config(tmp_path / "run", SELFPLAY | {"n_parallel": 8}, env=GAME, n_devices=2, n_seeds=2)
    (state,) = map(with_bank, tiny_states(config))
    bank = state.curriculum.bank
    bank = bank.replace(params=jax.tree.map(lambda x: x.astype(jnp.bfloat16), bank.params))
    assert bank.record.serial.shape == (2, 2, 3)
    state = state.replace(curriculum=state.curriculum.replace(bank=bank))
    run = LoadedRun(Run(RunFolder(tmp_path / "run"), config, None), 4, state, seed=1)
    assert run.copies == (4, 7)
    own = jax.tree.map(lambda x: np.asarray(x)[1, 0, SERIALS.index(7)].astype(np.float32), bank.params)
    jax.tree.map(np.testing.assert_array_equal, run.copy(7).params, own)
    assert {x.dtype for x in jax.tree.leaves(run.copy(7).params)} == {np.dtype("float32")}


# Tables


def cells_of(table) -> list[list[str]]:
    return [list(column.cells) for column in table.columns]


def test_a_table_of_fares():
    won, drawn = np.array([[8, 1], [6, 3]]), np.array([[1, 2], [2, 0]])
    fare = Fare("them", won, drawn, 10 - won - drawn)
    table = fare_table("x", ("easy", "hard"), (0, 1), [fare, Fare("nobody", *np.zeros((3, 2, 2), int))])
    # 18 of 40 games won: on average 70% of the easy ones and 20% of the hard ones.
    low, high = wilson(18, 40)
    assert [column[0] for column in cells_of(table)] == [
        "them",
        "40",
        "45.0%",
        "12.5%",
        "42.5%",
        f"{100 * low:.1f} to {100 * high:.1f}%",
        " 45  45",
        "hard 20.0%",
    ]
    assert [column[1] for column in cells_of(table)][:2] == ["nobody", "0"]
    assert "in the order 0, 1" in str(table.caption)


def test_seeds_whose_checkpoints_are_of_different_updates_are_told():
    players = [("mine", 2), ("mine", 4), ("yours", 4), ("yours", 4), ("random", None)]
    members = [Member(Entrant(group, None), group, update=update) for group, update in players]
    assert list(different_updates(members)) == ["the checkpoints of mine are of different updates, 2 to 4"]


def test_a_seed_that_has_not_met_an_opponent_keeps_its_place():
    """Its value in the row is a dash: the note says in which order the seeds are."""
    won, games = np.array([[8], [0], [2]]), np.array([[10], [0], [10]])
    table = fare_table("x", ("only",), (0, 1, 2), [Fare("them", won, 0 * won, games - won)])
    assert "in the order 0, 1, 2" in str(table.caption)
    assert cells_of(table)[-1][0].split() == ["80", "-", "20"]


def test_five_seeds_have_an_interval():
    won = np.arange(5)[:, None]
    table = fare_table("x", ("only",), range(5), [Fare("them", won, 0 * won, 10 - won)])
    assert [str(column.header) for column in table.columns][-2:] == ["IQM", "95% bootstrap\ninterval"]
    assert cells_of(table)[-2] == ["20.0%"]
    assert " to " in cells_of(table)[-1][0]


@pytest.mark.parametrize(
    ("won", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)]
)
def test_the_interval_of_wilson(won, n, low, high):
    """The textbook's numbers."""
    assert wilson(won, n) == pytest.approx((low, high), abs=1e-4)


def test_a_cycle_is_shown_beside_the_ratings():
    won = np.array([[0, 80, 20], [20, 0, 80], [80, 20, 0]])[..., None]
    ranking = Ranking.of(CrossTable(("x", "y", "z"), won, 0 * won, won + won.swapaxes(0, 1)), 0)
    table = matrix_table(ranking)
    assert cells_of(table)[:2] == [["1 x", "2 y", "3 z"], ["0", "0", "0"]]
    assert cells_of(table)[3:] == [["", "20", "80"], ["80", "", "20"], ["20", "80", ""]]
    assert "95% intervals over games" in str(table.caption)
    assert "100.0% of the log-odds" in str(table.caption)

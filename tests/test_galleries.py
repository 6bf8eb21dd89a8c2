"""Galleries of levels, `minimax-draw`, and the pictures of a run under way."""

import hashlib
import re
import shlex
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from doc_blocks import run_blocks
from PIL import Image
from tiny_run import save_tiny_run, tiny_config, tiny_states
from toy_program import EVALUATION, toy_config, toy_program

from minimax_lib import load_run
from minimax_lib.commands.draw import main
from minimax_lib.config import parse as parse_train
from minimax_lib.config.draw import parse as parse_draw
from minimax_lib.config.play import parse as parse_play
from minimax_lib.curricula.level_buffer import Ancestors
from minimax_lib.envs.maze.render import draw_level
from minimax_lib.experiment.level_pictures import LevelPictures
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.pictures import galleries
from minimax_lib.pictures.galleries import NotThere
from minimax_lib.store.checkpoint import fingerprint
from minimax_lib.store.folder import RunFolder
from minimax_lib.store.loaded import KeptLevels

PAGE = Path(__file__).parent.parent / "docs" / "pictures.md"
ACCEL = {"name": "accel", "capacity": 6, "n_edits": 2}
FAST = {"eval": {"every": 0, "tasks": ["TrainingDistribution"]}}


@pytest.fixture(scope="module")
def accel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "accel"
    save_tiny_run(folder, ACCEL, updates=(4, 8), **FAST)
    return folder


@pytest.fixture(scope="module")
def paired(tmp_path_factory):
    small = {"name": "ff", "dense_width": 8}
    folder = tmp_path_factory.mktemp("runs") / "paired"
    save_tiny_run(folder, {"name": "paired", "teacher": {"model": small}}, updates=(4, 8))
    return folder


@pytest.fixture(scope="module")
def dr(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "dr"
    save_tiny_run(folder)
    return folder


def places(picture, tile):
    """[y, x] of every place where `tile` is in the picture."""
    middle = tile[tile.shape[0] // 2]
    rows = np.lib.stride_tricks.sliding_window_view(picture, middle.shape, axis=(1, 2))[:, :, 0]
    found = np.argwhere((rows == middle).all(axis=(2, 3))) - [tile.shape[0] // 2, 0]
    return [(y, x) for y, x in found if np.array_equal(picture[y : y + len(tile), x : x + tile.shape[1]], tile)]


@pytest.mark.deep
def test_the_best_levels_are_drawn_in_the_order_of_their_scores(accel):
    run = load_run(accel)
    kept = run.level_buffer
    picture = galleries.best_levels(run, n=4, columns=2)
    tiles = [draw_level(galleries.at(kept.levels, slot)) for slot in kept.ranked[:4]]
    found = [place for tile in tiles for place in places(picture, tile)]
    assert len(found) == 4
    assert found == sorted(found)
    assert len({y for y, _ in found}) == len({x for _, x in found}) == 2
    assert not places(picture, draw_level(galleries.at(kept.levels, kept.ranked[4])))


def test_captions_say_what_is_known():
    kept = KeptLevels(None, np.ones(2, bool), np.array([0.5, 0.25], np.float32))
    assert galleries.caption(kept, 1) == "score 0.25"
    known = KeptLevels(None, kept.filled, kept.scores, None, np.array([1200, 0]), np.array([40, 0]))
    assert galleries.caption(known, 0) == "score 0.50, age 1,200, 40 edits"
    assert galleries.in_words({"n_walls": 12.0, "shortest_path": 7.0, "solvable": 1.0}) == "12 walls, path 7"
    assert galleries.in_words({"n_walls": 12.0, "shortest_path": 0.0, "solvable": 0.0}) == "12 walls, unsolvable"
    assert galleries.in_words({"mass": 1.234}) == "mass 1.23"


def test_every_source_shows_its_own_levels(accel):
    (fresh, empty, _), (replayed, parents, _), (mutated, children, _) = galleries._sources(load_run(accel), 6, seed=0)
    assert (fresh, replayed, mutated[:7]) == ("fresh", "replayed", "mutated")
    assert not empty.wall_map.any()  # the generator of ACCEL makes empty mazes
    kept = load_run(accel).level_buffer.levels.wall_map
    assert all((kept == one).all(axis=(1, 2)).any() for one in parents.wall_map)
    changed = (parents.wall_map != children.wall_map).sum(axis=(1, 2))
    assert changed.max() <= 2  # each child is of the level above it
    assert changed.any()


@pytest.mark.deep
def test_a_method_without_replay_has_fresh_levels_alone(dr):
    assert [name for name, *_ in galleries._sources(load_run(dr), 3, seed=0)] == ["fresh"]
    assert galleries.sources(load_run(dr), 3).ndim == 3


def test_a_method_without_replay_has_no_best_levels_and_no_designs(dr):
    with pytest.raises(NotThere, match="keeps no levels"):
        galleries.best_levels(load_run(dr))
    with pytest.raises(NotThere, match="has no teacher"):
        galleries.designs([load_run(dr)])


@pytest.mark.deep
def test_designs_are_those_of_the_teacher_at_each_checkpoint(paired):
    early, late = (load_run(paired, checkpoint=update) for update in (4, 8))
    key = jax.random.key(0)
    once, again = (galleries.fresh_levels(early, 3, key).wall_map for _ in range(2))
    np.testing.assert_array_equal(once, again)
    # What it designs depends on its parameters.
    other = galleries.fresh_levels(late, 3, key)
    assert (once != other.wall_map).any()
    both, first = galleries.designs([early, late], 3), galleries.designs([early], 3)
    assert both.shape[0] > first.shape[0]
    assert places(both, draw_level(galleries.at(other, 0)))


def kept_with_ancestors(counts):
    """Three levels whose walls are numbers: level i is i, its ancestors are 10 * i + generation."""
    levels = np.arange(3, dtype=np.int32)
    older = 10 * levels[:, None] + np.arange(1, 4, dtype=np.int32)
    ancestors = Ancestors(levels=older, count=np.array(counts, np.int32))
    scores = np.array([0.1, 0.3, 0.2], np.float32)
    return KeptLevels(levels, np.ones(3, bool), scores, ancestors=ancestors)


def test_a_lineage_goes_from_the_oldest_ancestor_to_the_level():
    run = types.SimpleNamespace(level_buffer=kept_with_ancestors([1, 3, 0]), path="x", update=5)
    assert galleries.with_parents(run) == [1, 0]  # by score, and the third has none
    levels, words = zip(*galleries.lineage(run, 1), strict=True)
    assert [int(level) for level in levels] == [13, 12, 11, 1]
    assert words == ("3 generations before", "2 generations before", "1 generation before", "score 0.30")
    assert [int(level) for level, _ in galleries.lineage(run, 0)] == [1, 0]


@pytest.mark.deep
def test_where_there_are_no_ancestors_it_says_how_to_keep_them(accel):
    with pytest.raises(NotThere, match=r"only ACCEL with --runner.n-ancestors does"):
        galleries.lineages(load_run(accel))
    run = types.SimpleNamespace(level_buffer=kept_with_ancestors([0, 0, 0]), path="x", update=5)
    with pytest.raises(NotThere, match="no level yet at update 5 that has a parent"):
        galleries.with_parents(run)


# ------------------------------------------------------------------------------------------------------ minimax-draw


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pictures_of_a_run_are_written_and_nothing_in_it_is_changed(accel, elsewhere, capsys):
    before = contents(accel)
    words = ["--what", "best", "sources", "designs", "--checkpoints", "all", "--format", "png", "gif"]
    assert main([str(accel), *words]) == 0
    assert contents(accel) == before
    names = {path.name for path in Path("pictures").glob("[!.]*")}
    assert names == {
        "accel-best-4.png", "accel-best-8.png", "accel-best.gif",
        "accel-sources-4.png", "accel-sources-8.png", "accel-sources.gif",
    }  # fmt: skip
    assert f"not drawn: designs: {accel} has no teacher that designs levels\n" in capsys.readouterr().out
    with Image.open("pictures/accel-best.gif") as film:
        # A frame for each checkpoint, and the last one stays: equal frames are one, shown for longer.
        assert film.n_frames == 2
        frame = np.asarray(film.convert("RGB")).astype(int)
    still = np.asarray(Image.open("pictures/accel-best-4.png")).astype(int)
    assert np.abs(frame - still).mean() < 3  # a GIF has fewer colours


@pytest.mark.deep
def test_designs_over_time_are_one_picture(paired, elsewhere):
    assert main([str(paired), "--what", "designs", "--checkpoints", "all", "--columns", "3"]) == 0
    runs = [load_run(paired, checkpoint=update) for update in (4, 8)]
    np.testing.assert_array_equal(np.asarray(Image.open("pictures/paired-designs.png")), galleries.designs(runs, 3))


@pytest.mark.deep
def test_files_of_others_are_kept(accel, elsewhere):
    (elsewhere / "pictures").mkdir()
    mine = elsewhere / "pictures" / "accel-best-8.png"
    mine.write_text("mine")
    for _ in range(2):
        assert main([str(accel), "--what", "best"]) == 0
    assert mine.read_text() == "mine"
    assert {path.name for path in mine.parent.glob("*.png")} == {"accel-best-8.png", "accel-best-8-2.png"}


def test_where_nothing_can_be_drawn_the_status_is_1(dr, elsewhere, capsys):
    assert main([str(dr), "--what", "best"]) == 1
    assert capsys.readouterr().err == "error: nothing can be drawn from these runs\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run is given: name their folders first, as in minimax-draw runs/my-run"),
        (["/nowhere"], "run '/nowhere' does not exist"),
        (["RUN/config.yaml"], "*/accel/config.yaml is a file: runs are folders (say *"),
        (["RUN", "--what", "bests"], "unknown what 'bests': choose from best, * (did you mean 'best'?)"),
        (["RUN", "--format", "jpg"], "unknown format 'jpg': choose from png, gif, mp4*"),
        (
            ["RUN", "--checkpoints", "new"],
            "--checkpoints is 'new': it must be all, latest, or numbers of updates",
        ),
        (["RUN", "--checkpoints", "5"], "* has no checkpoint 5: choose from 4, 8, latest"),
        (["RUN", "--seed", "3"], "--seed is 3: * has 0"),
        (["RUN", "--student", "1"], "--student is 1: * has 1, counted from 0"),
        (["RUN", "--tasks", "Labyrnth"], "unknown held-out task 'Labyrnth': * (did you mean 'Labyrinth'?)"),
        (["RUN", "--n-levels", "0"], "--n-levels is 0: it must be at least 1"),
        (["RUN", "--fps", "5"], "--fps is '5', which is for films only: add --format gif, or leave it out"),
        (
            ["RUN", "--what", "best", "--tasks", "Labyrinth"],
            "--tasks is 'Labyrinth', which is for --what episodes only: add that, or leave it out",
        ),
        (["RUN", "--what", "episodes", "--n-levels", "5"], "--n-levels is '5', which is for --what best only"),
        (["RUN", "--fps", "60", "--format", "gif"], "--fps is 60.0: it must be at most 50 for a GIF; browsers show a "),
        (["RUN", "--fps", "0"], "--fps is 0.0: it must be positive, and at most 100"),
        (["RUN", "RUN"], "run '*' is given twice: give it once"),
    ],
)
def test_bad_requests_are_one_line_and_status_2(words, message, accel, elsewhere, capsys):
    assert main([word.replace("RUN", str(accel)) for word in words]) == 2
    error = capsys.readouterr().err
    position = len("error: ")
    assert error.count("\n") == 1
    for part in message.split("*"):
        position = error.index(part, position) + len(part)
    assert not list(elsewhere.iterdir())


def test_a_run_with_plugins_is_refused(tmp_path, elsewhere, capsys):
    save_tiny_run(tmp_path / "runs" / "strange")
    config = tmp_path / "runs" / "strange" / "config.yaml"
    config.write_text(config.read_text().replace("plugins: []", "plugins: [not_there]"))
    assert main([str(config.parent), "--what", "sources"]) == 2
    assert "--plugins not_there" in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------- in the training


def drawn(pictures, update, state):
    pictures.begin(update, state)
    return pictures.taken(wait=True)


@pytest.mark.deep
def test_a_run_under_way_draws_what_its_method_has(tmp_path):
    config = tiny_config(tmp_path / "run", ACCEL, **FAST)
    (tmp_path / "run").mkdir()
    (state,), said = tiny_states(config), []
    before = fingerprint(state)
    pictures = LevelPictures(config, RunFolder(tmp_path / "run"), said.append)
    update, found = drawn(pictures, 20, state)
    assert (update, list(found), said) == (20, ["best", "sources", "episodes"], [])
    assert fingerprint(state) == before
    files = contents(tmp_path / "run")
    assert {Path(file).name for file in files} == {f"update20-{name}.png" for name in found}
    for name, picture in found.items():
        np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / f"run/levels/update20-{name}.png")), picture)
    drawn(pictures, 20, state)
    assert contents(tmp_path / "run") == files  # a resumed run has the same pictures


def test_pictures_that_fail_are_a_line(tmp_path, monkeypatch):
    config = tiny_config(tmp_path / "run", ACCEL, **FAST)
    (state,), said = tiny_states(config), []
    monkeypatch.setattr(LevelPictures, "_draw", lambda *_: 1 // 0)
    pictures = LevelPictures(config, RunFolder(tmp_path / "run"), said.append)
    assert drawn(pictures, 20, state) is None
    assert said == ["the pictures of update 20 have failed: integer division or modulo by zero"]


@pytest.mark.deep
def test_pictures_come_at_their_interval_and_change_nothing(tmp_path, monkeypatch):
    def draw(pictures, update, state):
        folder = pictures._folder.path / "levels"
        folder.mkdir(exist_ok=True)
        (folder / f"update{update}-w.txt").write_text(str(np.asarray(state.students.params["w"]).tolist()))
        return {"w": np.zeros((1, 1, 3), np.uint8)}

    monkeypatch.setattr(LevelPictures, "_draw", draw)
    states, program = {}, toy_program(toy_config(tmp_path))
    for every in (0, 6):
        config = toy_config(tmp_path / str(every), pictures_every=every)
        runner = ExperimentRunner(config, program, EVALUATION)
        states[every] = fingerprint(runner.train())
    assert states[0] == states[6]
    files = {path.name for path in (tmp_path / "6" / "run" / "levels").iterdir()}
    assert files == {f"update{update}-w.txt" for update in (0, 6, 12, 18, 24)}
    assert not (tmp_path / "0" / "run" / "levels").exists()


def test_tensorboard_gets_the_pictures(tmp_path):
    from minimax_lib.experiment.writers.tensorboard import TensorBoardWriter

    writer = TensorBoardWriter(tmp_path)
    assert hasattr(writer, "write_pictures")
    writer.write_pictures(20, 3, {"best": np.zeros((4, 5, 3), np.uint8)})
    writer.close()
    (file,) = (tmp_path / "seed_3").iterdir()
    assert b"pictures/best" in file.read_bytes()
    assert b"PNG" in file.read_bytes()


def test_an_environment_without_pictures_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pictures_every is 5: it must be 0, as Gymnax has no method"):
        tiny_config(tmp_path / "run", env={"name": "Gymnax"}, pictures_every=5)
    with pytest.raises(ValueError, match="pictures_every is -1: it must be at least 0"):
        tiny_config(tmp_path / "run", pictures_every=-1)


@pytest.mark.deep
def test_an_interrupted_run_draws_the_updates_that_are_left(tmp_path, monkeypatch):
    drawn_at = []
    monkeypatch.setattr(LevelPictures, "_draw", lambda pictures, update, state: drawn_at.append(update) or {})
    config = toy_config(tmp_path, pictures_every=6, n_updates=12)
    program = toy_program(config)
    ExperimentRunner(config, program, EVALUATION).train()
    longer = toy_config(tmp_path, pictures_every=6, resume=True)
    ExperimentRunner(longer, program, EVALUATION).train()
    assert drawn_at == [0, 6, 12, 18, 24]


@pytest.mark.deep
def test_the_page_on_pictures_runs(elsewhere):
    save_tiny_run(elsewhere / "runs" / "my-run", {"name": "plr", "capacity": 8})
    run_blocks(PAGE, elsewhere)
    assert Path("film.gif").stat().st_size > 1000
    assert Image.open("sources.png").size[0] > 500


COMMANDS = re.findall(r"^(minimax-(?:draw|play|train)) (.*?)(?: +#.*)?$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("command", "words"), COMMANDS, ids=" ".join)
def test_the_commands_of_the_page_are_understood(command, words):
    parsers = {"minimax-draw": parse_draw, "minimax-play": parse_play, "minimax-train": parse_train}
    parsers[command](shlex.split(words))

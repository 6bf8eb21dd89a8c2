"""Runs of other people: opening one runs nothing that its folder names, and edited or moved ones are told apart."""

import functools
import json
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import yaml
from toy_program import toy_config, toy_experiment, toy_program

from minimax_lib.commands import evaluate
from minimax_lib.config import Config, from_dict, parse, save_yaml, to_dict
from minimax_lib.store.checkpoint import Checkpoints, placed
from minimax_lib.store.provenance import configuration_of, edited, sealed, words_of
from minimax_lib.store.saved import find_run

SPY = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
SETTINGS = {
    "env": {"name": "AMaze", "height": 3, "width": 3, "n_walls": 2, "max_steps": 12},
    "model": {"name": "ff", "dense_width": 8},
}


def train(config: Config, **arguments: int) -> int:
    return toy_experiment(config, **arguments).run()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The configuration of a toy run that is finished."""
    config = toy_config(tmp_path_factory.mktemp("runs"))
    assert train(config) == 0
    return config


@pytest.fixture
def run(finished, tmp_path):
    """The same run in a folder that may be altered."""
    config = toy_config(tmp_path / "runs")
    shutil.copytree(finished.run_folder, config.run_folder)
    alter(config.run_folder, log_dir=config.log_dir)
    return config


def alter(folder: Path, **settings) -> None:
    """Edits config.yaml."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | settings))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "."}


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A run whose config.yaml names a module, which lies there and in the current folder, and a cache."""
    folder = tmp_path / "theirs" / "run"
    (folder / "checkpoints" / "10").mkdir(parents=True)
    config = from_dict(SETTINGS | {"name": "run", "log_dir": "theirs", "compilation_cache": str(folder / "cache")})
    save_yaml(config, folder / "config.yaml")
    alter(folder, plugins=["spy_of_a_run"])
    for place in (folder, tmp_path):
        (place / "spy_of_a_run.py").write_text(SPY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    assert "spy_of_a_run" not in sys.modules
    assert str(tmp_path) not in sys.path
    assert not list(tmp_path.rglob("imported"))


# ------------------------------------------------------------------------------------------------ plugins and caches

NAMES = "is of a run with plugins, which are imported only if you name them: add --plugins spy_of_a_run if you trust it"


def test_an_evaluation_imports_nothing_that_a_run_names(stranger, capsys):
    assert evaluate.main(["--run", str(stranger)]) == 2
    printed = capsys.readouterr().err
    assert printed == f"error: '{stranger / 'config.yaml'}' {NAMES} (--plugins alone goes on without)\n"


def test_an_evaluation_uses_the_cache_of_its_own_flags(stranger, monkeypatch):
    caches = []
    monkeypatch.setattr(evaluate, "keep_compiled_programs", caches.append)
    monkeypatch.setattr(evaluate, "evaluate", lambda *_: None)
    assert evaluate.main(["--run", str(stranger), "--plugins"]) == 0
    assert evaluate.main(["--run", str(stranger), "--plugins", "--compilation-cache", "mine"]) == 0
    assert caches == ["auto", "mine"]


@pytest.mark.parametrize("flags", [["--resume"], []], ids=["resumed", "started again"])
def test_training_imports_nothing_that_a_run_names(stranger, flags):
    words = ["--config", str(stranger / "config.yaml"), *flags]
    with pytest.raises(ValueError, match=NAMES):
        parse(words)
    config = parse([*words, "--plugins"])
    assert config.plugins == ()
    assert config.compilation_cache == "auto"
    assert parse([*words, "--plugins", "--compilation-cache", "mine"]).compilation_cache == "mine"


def test_a_resume_takes_no_plugins_from_any_file(stranger, tmp_path):
    """The file need not lie in the folder of the run that it resumes."""
    shutil.copy(stranger / "config.yaml", tmp_path / "copy.yaml")
    with pytest.raises(ValueError, match="add --plugins spy_of_a_run"):
        parse(["--config", "copy.yaml", "--resume"])
    alter(stranger, plugins=["os; x", "b"])
    with pytest.raises(ValueError, match="add --plugins 'os; x' b if you trust them"):
        parse(["--config", str(stranger / "config.yaml")])


def test_a_run_does_not_make_a_process_join_others(stranger):
    alter(stranger, plugins=[], distributed=True, hosts={"coordinator": "elsewhere:1"})
    words = ["--config", str(stranger / "config.yaml"), "--resume"]
    with pytest.raises(ValueError, match="says distributed: say --distributed yourself to resume a run so"):
        parse(words)
    assert not parse([*words, "--no-distributed"]).distributed


EVENTS: list[str] = []


@functools.cache
def listen() -> None:
    """Notes what only foreign code would do, in EVENTS; Python never forgets such a hook."""
    watched = ("pickle.find_class", "os.system", "os.exec", "subprocess.Popen", "socket.connect", "compile")
    sys.addaudithook(lambda event, _: EVENTS.append(event) if event in watched else None)


@pytest.fixture
def events() -> list[str]:
    listen()
    EVENTS.clear()
    return EVENTS


def test_reading_a_checkpoint_runs_nothing(tmp_path, events):
    """Neither orbax nor what it reads with imports, unpickles, starts or connects to anything."""
    make = lambda: {"w": jnp.arange(4.0), "key": jax.random.split(jax.random.key(0), 2)}  # noqa: E731
    with Checkpoints(tmp_path, config={"seed": 1}) as checkpoints:
        checkpoints.save(1, make())
    with Checkpoints(tmp_path, read_only=True) as checkpoints:
        before = set(sys.modules)
        eval("1")
        assert events == ["compile"]  # they are heard
        events.clear()
        assert checkpoints.restore(placed(jax.eval_shape(make))).update == 1
        assert events == []
        files = [str(getattr(sys.modules[name], "__file__", "")) for name in set(sys.modules) - before]
        assert not [file for file in files if file.startswith(str(tmp_path))]


# ------------------------------------------------------------------------------------------------ edited, moved, older


def test_a_checkpoint_keeps_its_configuration(finished):
    update, config = configuration_of(finished.run_folder / "checkpoints")
    assert update == 24
    assert config == yaml.safe_load((finished.run_folder / "config.yaml").read_text())


def test_an_edited_configuration_is_refused_as_flags_are(run, capsys):
    """config.yaml says what the flags say, and the checkpoint says otherwise."""
    alter(run.run_folder, n_seeds=2, seed=5)
    before = content(run.run_folder)
    assert train(toy_config(run.log_dir, seed=5, resume=True, n_updates=30)) == 2
    assert capsys.readouterr().err == (
        f"error: cannot resume {run.run_folder} with another configuration: seed was 0 and is now 5 "
        "(config.yaml has been edited: the checkpoint of update 24 belongs to another)\n"
    )
    assert content(run.run_folder) == before
    assert train(toy_config(run.log_dir, seed=6, resume=True)) == 2  # flags that config.yaml does not know either
    assert "seed was 5 and is now 6 (--config" in capsys.readouterr().err


def test_of_many_changes_a_few_are_shown():
    own = {f"setting_{i}": i for i in range(9)}
    changes = edited(own, dict.fromkeys(own, "x" * 1000), free={"setting_0"})
    assert [change.split()[0] for change in changes] == [*(f"setting_{i}" for i in range(1, 6)), "and"]
    assert changes[-1] == "and 3 more"
    assert max(map(len, changes)) <= 150


def test_what_is_free_may_be_edited(run, capsys):
    alter(run.run_folder, n_updates=26, log_every=1, keep_checkpoints=9)
    assert train(toy_config(run.log_dir, n_updates=26, log_every=1, keep_checkpoints=9, resume=True)) == 0
    assert "goes on from update 24" in capsys.readouterr().out


def test_an_evaluation_of_an_edited_run_is_refused(tmp_path, capsys):
    config = from_dict(SETTINGS)
    folder = tmp_path / "run"
    words = {"crc32": 0, "config": to_dict(config)}
    write_words(folder / "checkpoints" / "10", sealed(words))
    save_yaml(config, folder / "config.yaml")
    assert find_run(folder, "latest").config == config
    alter(folder, env=SETTINGS["env"] | {"n_walls": 3})
    assert evaluate.main(["--run", str(folder)]) == 2
    assert capsys.readouterr().err == (
        f"error: {folder / 'config.yaml'} has been edited: the checkpoint of update 10 belongs to another "
        "configuration, env.n_walls was 2 and is now 3\n"
    )


def write_words(checkpoint: Path, words: dict) -> None:
    (checkpoint / "integrity").mkdir(parents=True, exist_ok=True)
    (checkpoint / "integrity" / "metadata").write_text(json.dumps(words))


def test_runs_of_earlier_versions_are_resumed_by_their_config_yaml(run, capsys):
    for checkpoint in (run.run_folder / "checkpoints").iterdir():
        write_words(checkpoint, {"crc32": words_of(checkpoint)["crc32"]})
    assert configuration_of(run.run_folder / "checkpoints") == (24, None)
    assert train(toy_config(run.log_dir, n_updates=26, resume=True)) == 0
    assert "goes on from update 24" in capsys.readouterr().out
    assert configuration_of(run.run_folder / "checkpoints")[1]["n_updates"] == 26


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        *(
            pytest.param(text, marks=pytest.mark.deep)
            for text in ("", "[" * 100_000, '{"crc32": 1, "config": {"seed": 1}, "words_crc32": 2}')
        ),
    ],
)
def test_damaged_words_are_those_of_no_checkpoint(run, text):
    """The run is that of the checkpoint before, and the damaged one is set aside as ever."""
    newest = run.run_folder / "checkpoints" / "24"
    (newest / "integrity" / "metadata").write_text(text)
    with pytest.raises(ValueError, match=r"metadata|Expecting value"):
        words_of(newest)
    assert configuration_of(run.run_folder / "checkpoints")[0] == 20
    with Checkpoints(run.run_folder / "checkpoints", read_only=True) as checkpoints:
        restored = checkpoints.restore(placed(toy_program(run).shape))
    assert (restored.update, list(restored.damaged)) == (20, [24])


def test_a_moved_folder_says_that_there_is_nothing_to_resume(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alter(run.run_folder, log_dir="runs", env="AMaze")  # as a run that was started from this folder
    words = ["--config", str(run.run_folder / "config.yaml"), "--resume"]
    assert parse(words).run_folder == Path("runs/run")
    moved = tmp_path / "archive" / "renamed"
    shutil.move(run.run_folder, moved)
    words = ["--config", str(moved / "config.yaml"), "--resume"]
    with pytest.raises(ValueError, match="it would resume 'runs/run', where there is nothing to resume") as error:
        parse(words)
    hint = f"--log-dir {moved.parent} --name renamed"
    assert f"({hint} resumes the run beside the file)" in str(error.value)
    assert parse([*words, *hint.split()]).run_folder == moved
    shutil.copytree(moved, run.run_folder)  # of a copy it is not clear which one is meant
    with pytest.raises(ValueError, match=r"it would resume 'runs/run' \(--log-dir"):
        parse(words)
    assert not parse(words[:-1]).resume  # a run that begins is where its configuration says


def test_a_resume_without_a_run_says_so_and_begins(tmp_path, capsys):
    assert train(toy_config(tmp_path, n_updates=2, resume=True)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "there is nothing to resume in" in said
    assert "the run begins there" in said

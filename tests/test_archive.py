"""The archive of a run: parameters alone, of chosen updates, whatever happens to the run."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from crash import Runs
from rich.console import Console
from tiny_run import save_tiny_run
from toy_program import EVALUATION, ToyRunner, toy_config, toy_experiment, toy_program

import minimax_lib
from minimax_lib.commands.evaluate import main
from minimax_lib.config import Config, to_dict
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.store import archive
from minimax_lib.store.parameters import about_params, load_params, save_params
from minimax_lib.store.saved import find_run, restore

ARCHIVED = {"archive_every": 6, "checkpoint_every": 8}


def train(config: Config, **faults: int) -> Any:
    return toy_experiment(config, **faults).train()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "archive").iterdir())}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    yield runs
    runs.close()


def test_it_holds_the_parameters_of_all_seeds_at_every_such_update(tmp_path):
    config = toy_config(tmp_path, n_updates=14, **ARCHIVED)
    final = train(config)
    found = archive.archived(config.run_folder / "archive")
    assert list(found) == [6, 12, 14]  # the end of the run is one of them
    assert sorted(files(config.run_folder)) == ["update-12.npz", "update-14.npz", "update-6.npz"]
    program = toy_program(config)
    state = program.init(config.seed)
    for update, path in found.items():
        state, _ = program.run(state, update)
        params = load_params(path)
        assert params.keys() == {"w"}
        np.testing.assert_array_equal(params["w"], state.students.params["w"])
        assert params["w"].shape == (2, 1, 4)
        about = about_params(path)
        assert (about["update"], about["seeds"]) == (update, [0, 1])
        assert about["config"]["archive_every"] == 6
    np.testing.assert_array_equal(load_params(found[14])["w"], final.students.params["w"])


@pytest.fixture(scope="module")
def whole(runs):
    """The archive of a run that nothing disturbed."""
    assert runs({"archive_every": 6, "name": "whole"}) == 0
    return {name: load_params(runs.folder / "whole" / "archive" / name)["w"] for name in files(runs.folder / "whole")}


@pytest.mark.deep
@pytest.mark.parametrize("how", ["kill_before", "kill_after"])
def test_after_kill_9_each_file_is_there_once_and_the_same(runs, whole, how):
    settings = {"archive_every": 6, "name": how}
    assert runs(settings, fault=["minimax_lib.store.archive:keep", 2, how]) == -signal.SIGKILL
    kept = files(runs.folder / how)
    assert len(kept) == (1 if how == "kill_before" else 2)
    (runs.folder / how / "archive" / "update-18.npz.partial").write_bytes(b"as of a process that was killed")
    assert runs(settings | {"resume": True}) == 0
    now = files(runs.folder / how)
    assert list(now) == list(whole) == ["update-12.npz", "update-18.npz", "update-24.npz", "update-6.npz"]
    for name, w in whole.items():
        np.testing.assert_array_equal(load_params(runs.folder / how / "archive" / name)["w"], w)
    assert kept.items() <= now.items()  # untouched


def test_a_file_with_other_parameters_is_not_overwritten(tmp_path):
    one, other = {"a": {"b": np.arange(3.0)}}, {"a": {"b": np.ones(3)}}
    assert archive.keep(tmp_path, 4, one, {"seeds": [0]}) is None
    before = files_in(tmp_path)
    assert archive.keep(tmp_path, 4, one, {"seeds": [0], "more": 1}) is None
    assert files_in(tmp_path) == before
    moved = archive.keep(tmp_path, 4, other, {"seeds": [0]})
    assert moved == tmp_path / "others" / "update-4.npz"
    assert moved.read_bytes() == before["update-4.npz"]
    np.testing.assert_array_equal(load_params(tmp_path / "update-4.npz")["a"]["b"], np.ones(3))
    (tmp_path / "update-5.npz").write_bytes(b"half of a f")
    assert archive.keep(tmp_path, 5, one, {}) == tmp_path / "others" / "update-5.npz"


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_parameters_that_are_not_finite_are_not_kept(tmp_path):
    config = toy_config(tmp_path, archive_every=2, checkpoint_every=24)
    assert toy_experiment(config, overflows_at=4).run() == 1
    assert list(archive.archived(config.run_folder / "archive")) == [2]


def test_parameters_that_no_file_can_hold_are_refused_before_the_run(tmp_path):
    class Listed(ToyRunner):
        def init(self, key):
            state = super().init(key)
            return state.replace(students=state.students.replace(params=[state.students.params["w"]]))

    config = toy_config(tmp_path, archive_every=2)
    with pytest.raises(ValueError, match=r"^archive_every is 2: params is a list: only nested dicts of arrays can be"):
        ExperimentRunner(config, SeedRunner(Listed(), 2), EVALUATION)
    assert not config.run_folder.exists()


def test_a_negative_interval_is_refused():
    with pytest.raises(ValueError, match=r"^archive_every is -1: it must be at least 0$"):
        Config(archive_every=-1)


# ---------------------------------------------------------------------------------------------------------- reading


@pytest.fixture(scope="module")
def archived_run(tmp_path_factory):
    """(folder, parameters of update 2) of a run of three seeds whose only checkpoint is that of update 4."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    config, state = save_tiny_run(folder, updates=(4,), seed=5, n_seeds=3)
    params = jax.tree.map(lambda x: -np.asarray(x), state.students.params)
    archive.keep(folder / "archive", 2, params, {"seeds": [5, 6, 7], "config": to_dict(config)})
    return folder, params


def test_a_run_is_loaded_from_its_archive(archived_run):
    folder, params = archived_run
    newest = minimax_lib.load_run(folder)
    assert (newest.update, list(newest.archive)) == (4, [2])
    run = minimax_lib.load_run(folder, checkpoint=2, seed=6)
    assert run.update == 2
    jax.tree.map(np.testing.assert_array_equal, run.params, jax.tree.map(lambda x: x[1, 0], params))
    jax.tree.map(np.testing.assert_array_equal, load_params(newest.archive[2]), dict(params))
    with pytest.raises(ValueError, match=r"update-2.npz holds parameters alone: levels are in checkpoints$"):
        _ = run.level_buffer
    with pytest.raises(ValueError, match=r"has no checkpoint 3: choose from 2, 4, latest$"):
        minimax_lib.load_run(folder, checkpoint=3)


def test_an_archive_is_read_to_be_evaluated(archived_run):
    folder, params = archived_run
    update, found = restore(find_run(folder, 2), Console())
    assert update == 2
    jax.tree.map(np.testing.assert_array_equal, found, dict(params))


def test_the_archive_is_enough_when_the_checkpoints_are_gone(archived_run, tmp_path):
    folder, _ = archived_run
    shutil.copytree(folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    run = find_run(tmp_path / "run", "latest")
    assert (run.update, run.archive) == (2, tmp_path / "run" / "archive" / "update-2.npz")


def test_an_archive_of_something_else_is_refused(archived_run, tmp_path, capsys):
    _, params = archived_run
    config, _ = save_tiny_run(tmp_path / "run", updates=(4,), seed=5, n_seeds=3)
    place = tmp_path / "run" / "archive"
    words = ["--run", str(tmp_path / "run"), "--checkpoint", "2"]

    def said(**changes: Any) -> str:
        (place / "update-2.npz").unlink(missing_ok=True)
        about = {"seeds": [5, 6, 7], "config": to_dict(config)} | changes
        archive.keep(place, 2, params, about)
        assert main(words) in (1, 2)
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    edited = to_dict(dataclasses.replace(config, ppo=dataclasses.replace(config.ppo, lr=0.5)))
    assert "the archive of update 2 belongs to another configuration, ppo.lr was 0.5 and is now" in said(config=edited)
    assert "does not hold the parameters of this run" in said(seeds=[0, 1, 2])
    (place / "update-2.npz").write_bytes(b"no archive")
    assert main(words) == 2
    assert "is not an .npz file" in capsys.readouterr().err
    (place / "update-2.npz").unlink()
    np.savez(place / "update-2.npz", **{"params/w": np.zeros(2), "about": np.array(json.dumps([1]))})
    assert main(words) == 2
    assert "is damaged: the text 'about'" in capsys.readouterr().err


def test_files_that_are_none_of_the_archive_are_passed_over(tmp_path):
    for name in ("update-07.npz", "update-x.npz", "update-3.npz.partial", "other.npz", "update-³.npz"):
        (tmp_path / name).touch()
    save_params(tmp_path / "update-30.npz", {"w": np.ones(1)})
    save_params(tmp_path / "update-4.npz", {"w": np.ones(1)})
    assert list(archive.archived(tmp_path)) == [4, 30]
    assert archive.archived(tmp_path / "none") == {}

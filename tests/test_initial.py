"""Runs whose students begin with the parameters of another run, of a trained agent or of a file (--init-from)."""

import shutil
from fnmatch import fnmatch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import minimax_lib
from minimax_lib.commands.train import main
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.store.parameters import save_params
from minimax_lib.store.saved import find_run, restored_state
from tests.tiny_run import TINY, save_tiny_run, tiny_config, tiny_states

# So small a step changes no parameter of 32 bits: what a run ends with is what it began with.
STILL = ("--ppo.lr", "1e-30")


def train(folder, name, *flags, n_updates=1):
    words = []
    for group, settings in TINY.items():
        for key, value in settings.items():
            words += [f"--{group}" if key == "name" else f"--{group}.{key.replace('_', '-')}", str(value)]
    words += ["--runner.n-parallel", "4", "--runner.n-steps", "4", "--n-updates", str(n_updates)]
    quiet = () if "--report" in flags else ("--no-report",)
    return main([*words, *STILL, *quiet, "--log-dir", str(folder), "--name", name, *map(str, flags)])


def students(path):
    return restored_state(find_run(path, "latest")).state.students


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_each_seed_begins_with_its_own_and_goes_on_without_the_other_run(tmp_path, capsys):
    _, state = save_tiny_run(tmp_path / "source", seed=5, n_seeds=3)
    flags = ("--init-from", tmp_path / "source", "--seed", 6, "--n-seeds", 2, "--ppo.ema-decay", 0.5)
    assert train(tmp_path, "run", *flags) == 0
    assert "begin with the parameters of" in capsys.readouterr().out
    found = students(tmp_path / "run")
    wanted = jax.tree.map(lambda x: x[1:], state.students.params)  # of the seeds 6 and 7
    assert_same(found.params, wanted)
    assert_same(found.average, wanted)
    shutil.rmtree(tmp_path / "source")
    assert train(tmp_path, "run", *flags, "--resume", n_updates=2) == 0
    assert_same(students(tmp_path / "run").params, wanted)


def test_one_seed_is_for_all_and_the_average_comes_before_the_last_parameters(tmp_path):
    _, state = save_tiny_run(tmp_path / "source", ppo={"n_epochs": 1, "ema_decay": 0.9})
    assert train(tmp_path, "run", "--init-from", tmp_path / "source", "--seed", 3, "--n-devices", 2) == 0
    assert_same(students(tmp_path / "run").params, state.students.average)


def test_students_of_as_many_begin_with_their_own_and_others_with_the_first(tmp_path):
    _, state = save_tiny_run(tmp_path / "pair", {"name": "paired"})
    paired = ("--runner", "paired", "--runner.rollouts-per-batch", 3)
    assert train(tmp_path, "two", "--init-from", tmp_path / "pair", *paired, n_updates=3) == 0
    assert_same(students(tmp_path / "two").params, state.students.params)
    assert train(tmp_path, "one", "--init-from", tmp_path / "pair") == 0
    assert_same(students(tmp_path / "one").params, jax.tree.map(lambda x: x[:, :1], state.students.params))


def test_files_hold_one_agent_or_all_of_a_run(tmp_path):
    _, state = save_tiny_run(tmp_path / "source", n_seeds=2)
    one = minimax_lib.load_run(tmp_path / "source", seed=1).export(tmp_path / "one.npz")
    assert train(tmp_path, "run", "--init-from", one, "--n-seeds", 2) == 0
    second = jax.tree.map(lambda x: jnp.stack([x[1], x[1]]), state.students.params)
    assert_same(students(tmp_path / "run").params, second)
    everything = save_params(tmp_path / "all.npz", state.students.params)
    assert train(tmp_path, "all", "--init-from", everything, "--n-seeds", 2) == 0
    assert_same(students(tmp_path / "all").params, state.students.params)


def test_the_report_compares_with_what_the_run_began_with(tmp_path, monkeypatch):
    """A run that is resumed compares with an untrained agent, and says so: the other run may have gone."""
    told = []

    def report(config, agent, first, trained, folder, console, doing, first_name):
        told.append((first_name, first))
        raise ValueError("no report")

    monkeypatch.setattr("minimax_lib.experiment.run.final_report", report)
    _, state = save_tiny_run(tmp_path / "source", seed=5)
    flags = ("--init-from", tmp_path / "source", "--report")
    assert train(tmp_path, "run", *flags) == 0
    assert told[0][0] == "initial"
    assert_same(told[0][1], state.students.params)
    shutil.rmtree(tmp_path / "source")
    assert train(tmp_path, "run", *flags, "--resume") == 0
    assert told[1][0] == "untrained"
    assert not np.array_equal(jax.tree.leaves(told[1][1])[0], jax.tree.leaves(state.students.params)[0])


def test_a_damaged_checkpoint_of_the_other_run_is_one_line(tmp_path, capsys, monkeypatch):
    save_tiny_run(tmp_path / "source", updates=(2, 4))
    for path in (tmp_path / "source" / "checkpoints" / "4").rglob("*"):
        if path.is_file() and path.stat().st_size > 1000:
            path.write_bytes(b"0")
    monkeypatch.setattr(ExperimentRunner, "run", lambda runner: 0)
    assert train(tmp_path, "run", "--init-from", tmp_path / "source") == 0
    said = capsys.readouterr().err
    assert fnmatch(said, f"warning: {tmp_path / 'source'}: the checkpoint of update 4 is damaged (*): taking 2\n")
    assert said.count("\n") == 1


def test_an_archive_of_another_number_of_seeds_says_how_many(tmp_path, capsys):
    (state,) = tiny_states(tiny_config(tmp_path / "source", n_seeds=2))
    everything = save_params(tmp_path / "all.npz", state.students.params)
    assert train(tmp_path, "run", "--init-from", everything, "--n-seeds", 3) == 2
    said = capsys.readouterr().err
    assert "holds 2 seeds with 1 student each, and this run has 3 seeds with 1 student each: give as many" in said
    assert "network" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("all_seeds", [False, True])
def test_parameters_that_are_not_finite_are_refused_before_anything_is_compiled(
    all_seeds, tmp_path, capsys, monkeypatch
):
    (state,) = tiny_states(tiny_config(tmp_path / "source"))
    params = jax.tree.map(
        lambda x: np.full(x.shape if all_seeds else x.shape[2:], np.nan, x.dtype), state.students.params
    )
    file = save_params(tmp_path / "bad.npz", params)
    monkeypatch.setattr(ExperimentRunner, "run", lambda runner: pytest.fail("the training was reached"))
    assert train(tmp_path, "run", "--init-from", file) == 2
    said = capsys.readouterr().err
    assert fnmatch(said, "error: --init-from is *bad.npz', which has numbers that are not finite in params/params/*\n")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--init-from", "sourse"), "init_from: unknown run 'sourse': choose from *(did you mean 'source'?)"),
        (("--init-from", ""), "--init-from is '': it must be a run, a trained agent or an .npz file; leave it out *"),
        (("--init-from", "nothing.npz"), "*nothing.npz*"),
        (("--init-from", "~nosuchuser/run"), "--init-from is '~nosuchuser/run': there is no home folder '~nosuchuser'"),
        (("--init-from", "~nosuchuser/run.npz"), "--init-from is '~nosuchuser/run.npz': there is no home folder *"),
        (("--init-from", "strange"), "*--plugins*"),
        (("--init-from", "damaged"), "init_from: no checkpoint in *damaged* is not what was saved"),
        (("--init-from", "source", "--seed", 2), "*has the seeds 0 to 2, and this run has 2 to 3"),
        (
            ("--init-from", "source", "--seed", 0, "--model.conv-filters", 8),
            "*another network than this run; different: params/params/",
        ),
    ],
)
def test_what_cannot_be_begun_with_is_refused_and_nothing_is_written(flags, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("source", "damaged", "strange"):
        save_tiny_run(tmp_path / name, n_seeds=3)
    config = tmp_path / "strange" / "config.yaml"
    config.write_text(config.read_text().replace("plugins: []", "plugins: [somebody.world]"))
    for path in (tmp_path / "damaged" / "checkpoints").rglob("*"):
        if path.is_file() and path.stat().st_size > 1000:
            path.write_bytes(b"0")
    assert train(tmp_path, "run", "--n-seeds", 2, *flags) == 2
    said = capsys.readouterr().err
    assert fnmatch(said, f"error: {words}*")
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()

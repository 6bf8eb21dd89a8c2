"""`load_run`: of a run of any method everything can be reached, and nothing that its folder names is run."""

import dataclasses
import errno
import functools
import json
import os
import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from rich.console import Console
from tiny_run import save_tiny_run, tiny_config, tiny_states

import minimax_lib
from minimax_lib.config import Config, save_yaml
from minimax_lib.curricula.level_buffer import LevelBuffer
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.envs.base import Environment
from minimax_lib.playing.episodes import mode
from minimax_lib.store import loaded, parameters
from minimax_lib.store.checkpoint import on_host
from minimax_lib.store.files import UnreadLines
from minimax_lib.store.folder import RunFolder, RunRefused
from minimax_lib.store.saved import Run, restore

REPLAYING = {
    "plr": {"name": "plr", "capacity": 6},
    "accel": {"name": "accel", "capacity": 6, "n_edits": 2},
    "traced": {"name": "traced", "capacity": 6},
    "cenie": {"name": "cenie", "capacity": 6},
    "repaired": {"name": "plr", "capacity": 6, "generator": {"name": "teacher"}, "n_students": 2},
    "episode_plr": {"name": "episode_plr", "capacity": 6, "n_fresh": 2},
}
OTHERS = {
    "dr": {"name": "dr"},
    "sfl": {"name": "sfl", "n_scored": 8, "n_kept": 4, "n_episodes": 2},
    "ncc": {"name": "ncc", "capacity": 6, "n_new": 2},
    "paired": {"name": "paired"},
    "tasks": {"name": "tasks", "n_levels": 4},
    "box": {"name": "box"},
    "selfplay": {"name": "selfplay", "capacity": 2, "n_opponents": 2},
    "maestro": {"name": "maestro", "capacity": 2, "plr": {"capacity": 3}},
}
GAME = {"name": "LaserTag", "height": 4, "width": 4, "min_side": 3, "max_steps": 12}
ENV_OF = {"box": {"name": "Pendulum"}, "selfplay": GAME, "maestro": GAME}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of robust PLR with three seeds and tables."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    config, state = save_tiny_run(folder, REPLAYING["plr"], updates=(2, 4), seed=5, n_seeds=3)
    (folder / "metrics.csv").write_text("update,seed,loss\n2,5,0.5\n2,6,nan\n4,5,\n4,")
    (folder / "eval.csv").write_text("update,seed,task,solved\n2,5,Labyrinth,0.25\n")
    run = minimax_lib.load_run(folder)
    assert (run.config, run.env, run.update, run.checkpoints, run.seeds) == (config, config.env, 4, [2, 4], (5, 6, 7))
    assert equal(numbers(run.state), numbers(state))
    return run


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The folder of a run that keeps no levels, with two checkpoints."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    save_tiny_run(folder, updates=(2, 4))
    return folder


@pytest.fixture
def own(plain, tmp_path):
    """A copy of it, which may be altered."""
    return shutil.copytree(plain, tmp_path / "run")


def equal(one, other) -> bool:
    def same(x, y):
        x, y = np.asarray(x), np.asarray(y)
        return x.dtype == y.dtype and x.shape == y.shape and bool((x == y).all())

    return jax.tree.structure(one) == jax.tree.structure(other) and all(jax.tree.leaves(jax.tree.map(same, one, other)))


# ------------------------------------------------------------------------------------------------ what is reached


SLOW = ("repaired", "paired")  # a large teacher, which lies where a student does


@pytest.mark.parametrize(
    "runner",
    [pytest.param(name, marks=pytest.mark.deep) if name in SLOW else name for name in (*REPLAYING, *OTHERS)],
)
def test_everything_of_every_method_is_reached(runner, tmp_path):
    settings = (REPLAYING | OTHERS)[runner]
    env = {"env": ENV_OF[runner]} if runner in ENV_OF else {}
    config = tiny_config(tmp_path / "run", settings, n_seeds=2, seed=3, **env)
    [state] = tiny_states(config)
    # Not by way of the disk, which takes longer; the runs of the other tests are.
    run = loaded.LoadedRun(Run(RunFolder(tmp_path / "run"), config, None), 4, state, seed=3)
    state = numbers(state)
    for i, j in np.ndindex(2, run.n_students):
        own = jax.tree.map(lambda x, i=i, j=j: x[i, j], state.students.params)
        assert equal(run.of(run.seeds[i], j).params, own)
    second = run.of(4)
    assert equal(second.of().params, second.params)  # a seed that is not named stays
    assert equal(numbers(second.curriculum), jax.tree.map(lambda x: x[1], state.curriculum))
    if runner in REPLAYING:
        depth = {"accel": 1, "traced": 2, "cenie": 1}.get(runner, 0)
        buffer = functools.reduce(lambda part, _: part.inner, range(depth), state.curriculum).buffer
        for name in ("levels", "scores", "best_returns", "ages", "n_mutations", "filled"):
            assert equal(getattr(second.level_buffer, name), jax.tree.map(lambda x: x[1], getattr(buffer, name)))
    elif runner == "maestro":  # the levels of both co-players
        assert equal(second.level_buffer.scores, state.curriculum.buffers.scores[1].reshape(6))
        assert second.level_buffer.levels.walls.shape == (6, 4, 4)
    elif runner == "sfl":
        kept = second.level_buffer
        assert equal(kept.scores, state.curriculum.learnability[1])
        assert equal(kept.levels, jax.tree.map(lambda x: x[1], state.curriculum.levels))
        assert len(kept) == 4
        assert kept.ages is None
    elif runner == "ncc":
        assert equal(second.level_buffer.scores, state.curriculum.scores[1])
        assert second.level_buffer.filled.all()
    else:
        with pytest.raises(ValueError, match=f"^{tmp_path}/run keeps no levels: its runner is '{runner}'$"):
            run.level_buffer  # noqa: B018


def test_the_methods_above_are_all_there_are():
    tried = {settings["name"] for settings in (REPLAYING | OTHERS).values()}
    assert {"dr", "plr", "accel", "sfl", "paired"} <= tried
    assert tried >= {name for name in RUNNERS.names() if RUNNERS[name].__module__.startswith("minimax_lib.")}


def numbers(tree):
    """`tree` with its numbers on the host: of keys, the words that they consist of."""
    return jax.tree.map(on_host, tree)


def test_the_levels_of_all_devices_are_one_buffer(tmp_path):
    """Two devices that share the rows keep three levels each, of each of two seeds."""
    _, state = save_tiny_run(tmp_path / "run", REPLAYING["plr"], n_seeds=2, n_devices=2)
    state, run = numbers(state), loaded.load_run(tmp_path / "run", seed=1)
    assert state.curriculum.buffer.scores.shape == (2, 2, 3)
    assert equal(run.level_buffer.scores, state.curriculum.buffer.scores[1].reshape(6))
    assert run.level_buffer.levels.wall_map.shape == (6, 5, 5)
    assert equal(run.params, jax.tree.map(lambda x: x[1, 0], state.students.params))


@pytest.mark.deep
def test_averaged_parameters_are_those_of_the_run(tmp_path):
    """To load, to evaluate and to export."""
    _, state = save_tiny_run(tmp_path / "run", ppo={"n_epochs": 1, "ema_decay": 0.9}, n_seeds=2)
    average, run = numbers(state.students.average), loaded.load_run(tmp_path / "run", seed=1)
    assert not equal(average, numbers(state.students.params))
    own = jax.tree.map(lambda x: x[1, 0], average)
    assert equal(run.params, own)
    assert equal(numbers(restore(run.run, Console(quiet=True))[1]), average)
    assert equal(parameters.load_params(run.export(tmp_path / "mine.npz")), own)


def test_levels_are_ranked_by_score():
    empty = loaded.KeptLevels({"x": np.arange(4)}, np.array([True, False, True, True]), np.array([1, -np.inf, 3, 3]))
    assert len(empty) == 3
    assert empty.ranked.tolist() == [2, 3, 0]
    assert empty.best(2)["x"].tolist() == [2, 3]
    assert empty.best(9)["x"].tolist() == [2, 3, 0]


def test_a_buffer_of_a_curriculum_of_ones_own_is_found(run):
    buffer = run.state.curriculum.buffer
    mine = dataclasses.replace(run, state=run.state.replace(curriculum={"mine": (buffer, jnp.zeros(3))}))
    assert isinstance(buffer, LevelBuffer)
    assert equal(mine.level_buffer.scores, np.asarray(buffer.scores)[0])


def test_tables_are_read_by_column(run):
    with pytest.warns(UnreadLines, match=r"metrics.csv: line 5 has no line break: it is left out"):
        metrics = run.metrics
    assert metrics["update"].tolist() == [2, 2, 4]
    np.testing.assert_array_equal(metrics["loss"], [0.5, np.nan, np.nan])
    assert run.evals["task"].tolist() == ["Labyrinth"]
    assert run.evals["solved"].tolist() == [0.25]


def test_a_run_says_in_one_line_what_it_is(run):
    assert repr(run.of(6)) == f"LoadedRun({str(run.path)!r}, update 4, seed 6 of 5 to 7, student 0 of 0)"


# ------------------------------------------------------------------------------------------------ what is refused


def refused(*arguments, **named) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011, the text is what is tested
        loaded.load_run(*arguments, **named)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_run_is_found_by_its_name_and_a_configuration_is_not_taken_for_one(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").symlink_to(run.path.parent)
    assert loaded.load_run(run.path.name).path.resolve() == run.path.resolve()
    assert refused("maze/quickstart") == (
        "run 'maze/quickstart' does not exist: it is a configuration, "
        "which is trained with minimax-train maze/quickstart"
    )


def test_what_is_not_there_is_refused_in_one_line(run, tmp_path):
    assert refused(run.path.with_name("rum")) == (
        f"unknown run '{run.path.with_name('rum')}': choose from {run.path} (did you mean {str(run.path)!r}?)"
    )
    assert refused(tmp_path / "none") == f"run '{tmp_path / 'none'}' does not exist"
    assert refused(tmp_path) == f"{tmp_path} is not the folder of a run: it has no config.yaml"
    table = run.path / "metrics.csv"
    assert refused(table) == f"{table} is a file: runs are folders (say {run.path})"
    checkpoints = run.path / "checkpoints"
    assert refused(checkpoints) == f"{checkpoints} is not the folder of a run: it has no config.yaml (say {run.path})"
    assert refused(run.path, checkpoint=3) == f"{run.path} has no checkpoint 3: choose from 2, 4, latest"
    assert "has no checkpoint '2'" in refused(run.path, checkpoint="2")
    assert refused(run.path, seed=4) == f"seed is 4: {run.path} has 5 to 7"
    assert refused(run.path, student=1) == f"student is 1: {run.path} has 0"
    assert refused(run.path, checkpoint=4.0) == f"{run.path} has no checkpoint 4.0: choose from 2, 4, latest"
    assert refused(3) == "path is 3: it must be the folder of a run, or the name of one"
    assert "it must be at most 4000 bytes long" in refused("x" * 5000)
    assert refused("~nosuchuser/x") == "path is '~nosuchuser/x': there is no home folder '~nosuchuser'"
    assert refused(run.path, plugins=3) == "plugins is 3: it must be a list of text"
    assert refused(run.path, plugins="os") == "plugins is 'os': it must be a list of text"
    assert "plugin 'not_there' cannot be imported" in refused(run.path, plugins=["not_there"])


def test_an_older_checkpoint_is_taken_where_it_is_asked_for(run):
    older = loaded.load_run(run.path, checkpoint=2)
    assert older.update == 2
    assert not equal(older.params, run.params)


def test_a_run_without_a_checkpoint_is_refused(own):
    for update in "24":
        shutil.rmtree(own / "checkpoints" / update)
    assert "holds no checkpoint" in refused(own)


@pytest.mark.deep
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(own):
    (own / "checkpoints" / "4" / "integrity" / "metadata").write_text("{}")
    with pytest.warns(UserWarning, match=r"the checkpoint of update 4 is damaged .*: taking 2"):
        assert loaded.load_run(own).update == 2
    assert "can be read; that of update 4" in refused(own, checkpoint=4)


def test_a_folder_of_another_version_is_refused(own):
    """Its settings are not those of today, or its state has another form."""
    shutil.rmtree(own / "checkpoints" / "4")
    file = own / "config.yaml"
    settings = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(settings | {"n_updatez": 3}))
    assert "n_updatez" in refused(own)
    wider = settings | {"model": {"name": "ff", "dense_width": 16}}
    file.write_text(yaml.safe_dump(wider))
    words = own / "checkpoints" / "2" / "integrity" / "metadata"
    words.write_text(json.dumps({"crc32": json.loads(words.read_text())["crc32"]}))  # as before it kept its settings
    assert "no checkpoint in" in refused(own)


def test_what_the_folder_names_is_imported_only_if_it_is_asked_for(own, tmp_path, monkeypatch):
    file = own / "config.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"plugins": ["spy_of_a_loaded_run"]}))
    (tmp_path / "spy_of_a_loaded_run.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert refused("run") == (
        "'run/config.yaml' is of a run with plugins, which are imported only if you name them: add "
        "plugins=['spy_of_a_loaded_run'] if you trust it (plugins=() goes on without)"
    )
    assert loaded.load_run("run", plugins=()).config.plugins == ()
    assert not (tmp_path / "imported").exists()
    loaded.load_run("run", plugins=["spy_of_a_loaded_run"])
    assert (tmp_path / "imported").exists()


def test_nothing_in_the_folder_changes(run, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    loaded.load_run(run.path).of(6).export(tmp_path / "agent.npz")
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before


# ------------------------------------------------------------------------------------------------ acting and playing


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    """A run whose agent has a memory, with two seeds."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    model = {"name": "lstm", "memory_width": 8, "conv_filters": 2}
    save_tiny_run(folder, model=model, updates=(2,), n_seeds=2)
    return loaded.load_run(folder)


@pytest.fixture(scope="module")
def level(recurrent):
    return jax.jit(recurrent.env.sample_level)(jax.random.key(1))


def test_acting_by_hand_is_the_episode_that_is_played(recurrent, level):
    """Greedy: each call gets the memory of the last one, and only the first observation opens the episode."""
    played = recurrent.play(level, greedy=True)
    step = jax.jit(recurrent.env.step)
    state, ts = jax.jit(recurrent.env.reset)(jax.random.key(0), level)
    carry, states = None, [state]
    for _ in range(played.length):
        action, carry = recurrent.act(ts.obs, carry)
        assert (action.shape, action.dtype) == ((), jnp.int32)
        state, ts = step(jax.random.key(0), state, action)
        states.append(state)
    assert ts.done
    assert equal(played.states, jax.tree.map(lambda *xs: np.stack(xs), *states))
    assert played.episode_return == float(ts.reward)


def test_rows_act_as_one_by_one(recurrent, level):
    ts = jax.jit(recurrent.env.reset)(jax.random.key(0), level)[1]
    other = {"image": ts.obs["image"] + 1, "direction": np.int64(2)}  # Gymnasium's numbers are longer
    both = jax.tree.map(lambda x, y: np.stack([x, y]), ts.obs, other)
    n_programs = loaded.act._cache_size()
    together, carry = recurrent.act(both)
    carry_of = [recurrent.act(obs)[1] for obs in (ts.obs, other)]
    assert together.tolist() == [int(recurrent.act(obs)[0]) for obs in (ts.obs, other)]
    for i in (0, 1):
        for x, y in zip(jax.tree.leaves(carry), jax.tree.leaves(carry_of[i]), strict=True):
            np.testing.assert_allclose(x[i], y[0], atol=1e-6)
    # Memory is cleared where an episode opens, and kept where it goes on.
    _, fresh = recurrent.act(both, carry, first=np.array([True, False]))
    _, all_fresh = recurrent.act(both, carry, first=True)
    _, kept = recurrent.act(both, carry)
    for cleared, anew, on, start in zip(*map(jax.tree.leaves, (fresh, all_fresh, kept, carry)), strict=True):
        np.testing.assert_array_equal(cleared[0], start[0])
        np.testing.assert_array_equal(anew, start)
        np.testing.assert_array_equal(cleared[1], on[1])
        assert (on != start).any()
    recurrent.of(1).act(both, carry)
    assert loaded.act._cache_size() <= n_programs + 2  # for a row, which the test above may have compiled, and for two


def test_actions_are_drawn_with_a_key(recurrent, level):
    ts = jax.jit(recurrent.env.reset)(jax.random.key(0), level)[1]
    many = jax.tree.map(lambda x: np.repeat(np.asarray(x)[None], 50, axis=0), ts.obs)
    drawn = [recurrent.act(many, key=jax.random.key(seed))[0] for seed in (0, 0, 1)]
    assert equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    assert len(set(drawn[0].tolist())) > 1
    assert len(set(recurrent.act(many)[0].tolist())) == 1


def test_what_cannot_be_acted_on_is_refused(recurrent, level):
    ts = jax.jit(recurrent.env.reset)(jax.random.key(0), level)[1]
    with pytest.raises(ValueError, match=r"obs is \{'direction': 'int32\[\]'\}: it must be .*, or rows of such"):
        recurrent.act({"direction": ts.obs["direction"]})
    with pytest.raises(ValueError, match="or rows of such"):
        recurrent.act({"direction": np.zeros(3, int), "image": np.zeros((2, 5, 5, 3))})
    _, carry = recurrent.act(ts.obs)
    with pytest.raises(ValueError, match="carry is the memory of 1 rows: obs has 2"):
        recurrent.act(jax.tree.map(lambda x: np.stack([x, x]), ts.obs), carry)


def test_an_episode_is_drawn_by_its_key(recurrent, level):
    key = jax.random.key(3)
    played = recurrent.play(level, key)
    assert played.states.agent_pos.shape == (played.length + 1, 2)
    assert equal(played.level, jax.device_get(level))
    assert repr(played).startswith(f"Episode({'solved' if played.solved else 'not solved'} in {played.length} steps")
    # Levels from the disk are NumPy's.
    assert equal(recurrent.play(jax.device_get(level), key).states, played.states)
    others = [recurrent.play(level, jax.random.key(seed)).states.agent_dir.tolist() for seed in range(5)]
    assert played.states.agent_dir.tolist() != others[0] or others[0] != others[1]
    picture = played.picture()
    assert picture.dtype == np.uint8
    assert played._repr_png_()[:4] == b"\x89PNG"
    assert recurrent.draw(jax.tree.map(lambda x: np.asarray(x)[None], level)).shape[2] == 3


def test_what_cannot_be_played_is_refused(recurrent):
    with pytest.raises(ValueError, match=r"the level is int32\[\]: it must be Level\("):
        recurrent.play(3)
    with pytest.raises(ValueError, match="did you mean 'SixteenRooms'"):
        recurrent.play("SixteenRoom")
    with pytest.raises(ValueError, match="did you mean 'SixteenRooms'"):
        recurrent.play_tasks("SixteenRoom")
    with pytest.raises(ValueError, match="level is 'benchmark', a group of 12: name one of them"):
        recurrent.play("benchmark")


def test_an_episode_of_one_agent_is_no_replay(tmp_path):
    alone = loaded.Episode(Environment(), (), {"x": np.zeros((2, 1))}, 0.0, 1, 0.0, {})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^world is of the class Episode: it must be a CrowdEpisode"):
        minimax_lib.save_replay(alone, tmp_path / "game.npz")


def test_environments_that_draw_nothing_say_so(run):
    undrawn = loaded.Episode(Environment(), (), {"x": np.zeros((2, 1))}, 0.0, 1, 0.0, {})  # type: ignore[arg-type]
    assert undrawn._repr_png_() is None
    with pytest.raises(ValueError, match="no picture: Environment has no method to draw its episodes"):
        undrawn.picture()


# ------------------------------------------------------------------------------------------------ export


def test_exported_parameters_come_back_as_they_were(run, tmp_path):
    file = run.of(6).export(tmp_path / "new" / "agent.npz")
    back = minimax_lib.load_params(file)
    assert equal(back, run.of(6).params)
    about = parameters.about_params(file)
    assert (about["seed"], about["student"], about["update"]) == (6, 0, 4)
    assert about["config"]["runner"]["name"] == "plr"
    with np.load(file, allow_pickle=False) as archive:  # as any other program reads it
        assert archive["params/params/value/bias"].shape == (1,)
        assert all(array.dtype.kind in "fU" for array in archive.values())


def test_a_file_at_home_is_written_and_read_there(tmp_path, monkeypatch):
    """As `load_run` finds runs. It went into a folder called ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    params = {"a": np.arange(3.0)}
    assert parameters.save_params("~/new/agent.npz", params, {"seed": 3}) == tmp_path / "new" / "agent.npz"
    assert equal(minimax_lib.load_params("~/new/agent.npz"), params)
    assert parameters.about_params("~/new/agent.npz") == {"seed": 3}
    with pytest.raises(ValueError, match=r"path is '~nosuchuser/x.npz': there is no home folder '~nosuchuser'"):
        parameters.save_params("~nosuchuser/x.npz", params)


def test_nothing_is_overwritten(run, tmp_path):
    file = run.export(tmp_path / "agent.npz")
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"agent.npz exists: no file is overwritten"):
        run.export(file)
    assert file.read_bytes() == before
    with pytest.raises(ValueError, match=r"path is 'agent.npy': it must end with .npz"):
        run.export("agent.npy")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"a": [np.zeros(1)]}, "params/a is a list: only nested dicts of arrays can be exported"),
        ({"a/b": np.zeros(1)}, "params has the key 'a/b': a key must be text without a slash"),
        ({"a": jnp.zeros(1, jnp.bfloat16)}, "params/a is of the type bfloat16"),
    ],
)
def test_what_npz_cannot_hold_is_refused(params, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        parameters.save_params(tmp_path / "agent.npz", params)
    assert not (tmp_path / "agent.npz").exists()


def test_files_that_hold_no_parameters_are_refused(tmp_path):
    file = tmp_path / "agent.npz"
    with pytest.raises(ValueError, match=r"agent.npz does not exist"):
        minimax_lib.load_params(file)
    file.write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(ValueError, match=r"agent.npz is not an .npz file of plain arrays"):
        minimax_lib.load_params(file)
    np.savez(tmp_path / "objects.npz", **{"params/a": np.array([mode], dtype=object)})
    with pytest.raises(ValueError, match=r"is not an .npz file of plain arrays"):  # nothing is unpickled
        minimax_lib.load_params(tmp_path / "objects.npz")
    np.savez(tmp_path / "others.npz", a=np.zeros(1))
    with pytest.raises(ValueError, match="holds no parameters"):
        minimax_lib.load_params(tmp_path / "others.npz")


def test_a_run_is_found_again_from_another_folder_and_missed_when_it_has_gone(run, tmp_path, monkeypatch):
    """The path is kept whole, and tables of a folder that is not there are not empty."""
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    loaded = minimax_lib.load_run("copy")
    for path in ("copy/config.yaml", "~/copy"):
        assert minimax_lib.load_run(path).path == loaded.path == copy
    monkeypatch.chdir("/")
    assert loaded.checkpoints
    assert loaded.metrics
    copy.rename(tmp_path / "moved")
    for read in ("checkpoints", "archive", "metrics", "evals", "origins"):
        with pytest.raises(ValueError, match="copy' is not a folder any more: load the run again from where it is now"):
            getattr(loaded, read)


@pytest.mark.parametrize("part", ["checkpoints", "archive"])
def test_what_may_not_be_read_is_not_taken_for_nothing(part, tmp_path, monkeypatch):
    save_yaml(Config(), tmp_path / "config.yaml")
    listed = os.listdir

    def refused(path):  # simulated: root may read everything
        if Path(path).name == part:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", refused)
    said = f"^{tmp_path}/{part} cannot be read: Permission denied$"
    with pytest.raises(ValueError, match=said):
        minimax_lib.load_run(tmp_path)
    if part == "checkpoints":
        with pytest.raises(RunRefused, match=said):
            RunFolder(tmp_path).holds_run()
        assert RunFolder(tmp_path).newest().endswith("cannot be read: Permission denied")

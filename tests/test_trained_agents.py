"""Trained agents that ship with the package: made of a run, found by name, and used as runs are."""

import ast
import json
import shutil
import sys
from pathlib import Path, PurePath

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from tiny_run import save_tiny_run, tiny_config

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import ship

import minimax_lib
from minimax_lib.commands import draw, evaluate, plot, train
from minimax_lib.commands.play import watched
from minimax_lib.config import shipped, to_dict
from minimax_lib.config.listing import listing
from minimax_lib.pictures.galleries import NotThere, best_levels, fresh_levels
from minimax_lib.playing.episodes import Played, WholeEpisodes
from minimax_lib.store import saved
from minimax_lib.store.parameters import save_params
from minimax_lib.trees import tree_size

ROOT = Path(__file__).parents[1]
SETTINGS = {
    "ppo": {"n_epochs": 1, "ema_decay": 0.9},
    "wandb": {"mode": "offline", "entity": "somebody"},
}
EVAL = "update,seed,task,return,solved_rate\n2,4,A,0.1,0.2\n4,4,A,0.4,0.5\n4,4,B,0.4,1.0\n4,3,A,0.1,0.1\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of robust PLR with two seeds, an average of its parameters, and tables."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    save_tiny_run(folder, {"name": "plr", "capacity": 6}, (2, 4), seed=3, n_seeds=2, **SETTINGS)
    (folder / "metrics.csv").write_text("update,seed,env_steps,seconds\n2,4,10,5\n4,3,21,9.6\n4,4,20,9.6\n")
    (folder / "eval.csv").write_text(EVAL)
    origin = {"update": 0, "version": "0.1.0", "commit": "abc", "jax": "1", "machine": "cpu"}
    (folder / "origin.jsonl").write_text(json.dumps(origin) + "\n")
    (folder / "evaluations").mkdir()
    columns = "seed,task,solved_rate,n_worst,update,n_episodes,actions,protocol,student,n_levels\n"
    row = "4,worst 1%,0.25,2,4,10,sampled,,0,200\n"
    (folder / "evaluations" / "update4-robust.csv").write_text(columns + row + row.replace(",0,200", ",1,200"))
    return folder


@pytest.fixture(scope="module")
def loaded_run(run):
    return minimax_lib.load_run(run)


@pytest.fixture(scope="module")
def package(run, tmp_path_factory) -> Path:
    """A package with the trained agent maze/toy, the seed 4 of the run."""
    folder = tmp_path_factory.mktemp("site") / "package"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipped, "AGENTS", folder / "trained")
        assert ship.main([str(run), "maze/toy", "--seed", "4"]) == 0
    return folder


@pytest.fixture
def agents(package, tmp_path, monkeypatch) -> Path:
    """The folder of trained agents in a copy of the package. The current folder is an empty one."""
    monkeypatch.setattr(shipped, "AGENTS", shutil.copytree(package, tmp_path / "package") / "trained")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return shipped.AGENTS


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def equal(one, other) -> bool:
    same = jax.tree.map(lambda x, y: x.dtype == y.dtype and np.array_equal(x, y), one, other)
    return jax.tree.structure(one) == jax.tree.structure(other) and jax.tree.all(same)


def refused(call, *arguments, **named) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011, the text is what is tested
        call(*arguments, **named)
    assert "\n" not in str(error.value)
    return str(error.value)


# ------------------------------------------------------------------------------------------------ what is loaded


def test_an_agent_is_the_seed_of_the_run_that_it_was_made_of(loaded_run, agents):
    own, agent = loaded_run.of(4), minimax_lib.load_run("maze/toy")
    assert repr(agent) == "LoadedRun('maze/toy', update 4, seed 4 of 4, student 0 of 0)"
    assert equal(agent.params, own.params)  # the average, as in evaluations
    assert not equal(agent.params, jax.tree.map(lambda x: x[1, 0], own.state.students.params))
    assert not equal(agent.params, own.of(3).params)
    assert [origin.commit for origin in agent.origins] == ["abc"]
    form = jax.eval_shape(lambda key: agent.env.reset(key, agent.env.sample_level(key))[1].obs, jax.random.key(0))
    random = np.random.default_rng(0)
    obs = jax.tree.map(lambda x: random.integers(0, 3, (6, *x.shape)).astype(x.dtype), form)
    assert equal(agent.act(obs)[0], own.act(obs)[0])
    assert minimax_lib.load_params(agent.export("agent.npz")).keys() == agent.params.keys()


def test_an_agent_has_the_settings_of_the_run_and_nothing_of_its_machine(run, loaded_run, agents):
    own, agent = to_dict(loaded_run.config), to_dict(minimax_lib.load_run("maze/toy").config)
    for name in ("env", "model", "runner", "ppo", "eval", "n_updates"):
        assert agent[name] == own[name]
    assert (agent["seed"], agent["n_seeds"], agent["log_dir"], agent["wandb"]["entity"]) == (4, 1, "runs", "")
    for path, content in contents(agents).items():
        assert str(run.parent).encode() not in content, path


def test_what_is_recorded_of_an_agent(agents):
    about = shipped.about_agent(agents / "maze" / "toy")
    assert {name: about[name] for name in ("name", "env", "method", "model", "seed", "updates", "env_steps")} == {
        **{"name": "maze/toy", "env": "AMaze", "method": "plr", "model": "ff"},
        **{"seed": 4, "updates": 4, "env_steps": 20},
    }
    assert about["command"] == "minimax-train --config package/trained/maze/toy/config.yaml"
    robust, during = about["evaluations"]
    assert (robust["tasks"], robust["by_task"], robust["solved_rate"]) == ("random levels", {"worst 1%": 0.25}, None)
    assert (during["tasks"], during["by_task"], during["solved_rate"]) == ("A B", {"A": 0.5, "B": 1.0}, 0.75)
    assert listing(["agents"])[1] == "  maze/toy  plr with ff, 4 updates; it solves 75% of A B"
    assert ship.table().splitlines()[2].startswith("| `maze/toy` | plr, ff | 4 | 0 |  |  |  | .25 | 0.0")


def test_a_run_of_the_user_comes_first(run, agents):
    here = Path("maze/toy")
    here.mkdir(parents=True)
    assert minimax_lib.load_run("maze/toy").path == agents / "maze" / "toy"  # a folder without a run
    here.rmdir()
    here.symlink_to(run)
    assert minimax_lib.load_run("maze/toy").path == here.absolute()


def test_unknown_names_are_refused_with_what_there_is(agents, capsys):
    message = "unknown run 'maze/tot': choose from maze/toy (did you mean 'maze/toy'?)"
    assert refused(minimax_lib.load_run, "maze/tot") == message
    assert refused(saved.find_run, Path("toy"), "latest").endswith("choose from maze/toy (did you mean 'maze/toy'?)")
    for main, words in ((evaluate.main, ["--run"]), (evaluate.main, ["--compare"]), (draw.main, [])):
        assert main([*words, "maze/tot"]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
    assert refused(minimax_lib.load_run, "maze/toy", checkpoint=3) == (
        f"{agents / 'maze' / 'toy'} has no checkpoint 3: choose from 4, latest"
    )
    assert refused(minimax_lib.load_run, "maze/toy", seed=3) == "seed is 3: maze/toy has 4"


def test_what_needs_more_than_parameters_says_so(agents, capsys):
    agent = minimax_lib.load_run("maze/toy")
    alone = "maze/toy ships with its parameters alone"
    assert refused(lambda: agent.level_buffer) == f"{alone}: levels are in checkpoints"
    for drawn in (lambda: best_levels(agent), lambda: fresh_levels(agent, 1, jax.random.key(0))):
        with pytest.raises(NotThere, match=f"^{alone}: "):
            drawn()
    assert plot.main(["maze/toy"]) == 2
    assert capsys.readouterr().err == f"error: {alone}: there is nothing to draw of its training\n"
    before = contents(agents)
    assert train.main(["--config", str(agents / "maze" / "toy" / "config.yaml"), "--resume"]) == 2
    assert capsys.readouterr().err == (
        f"error: {alone}, and 'runs/maze_toy' holds no run: leave out --resume, to train with its settings from the "
        "beginning\n"
    )
    assert train.main(["--log-dir", str(agents / "maze"), "--name", "toy"]) == 2
    assert "holds files and no run" in capsys.readouterr().err
    assert contents(agents) == before


# ------------------------------------------------------------------------------------------------ commands


def played(self: WholeEpisodes, key: jax.Array, params, levels) -> Played:
    """Episodes that are all solved, without a network."""
    ones = jnp.ones(tree_size(levels), jnp.float32)
    return Played(returns=ones, lengths=ones.astype(jnp.int32), progress=ones, facts={})


def test_an_agent_is_evaluated_and_nothing_is_written_into_the_package(run, agents, monkeypatch, capsys):
    monkeypatch.setattr(WholeEpisodes, "play", played)
    before = contents(agents)
    words = ["--tasks", "MiniMaze", "--n-episodes", "3"]
    assert evaluate.main(["--run", "maze/toy", *words]) == 0
    file = Path("evaluations/maze/toy/update4-MiniMaze.csv")
    assert capsys.readouterr().out.endswith(f"written: {file}\n")
    assert file.read_text().splitlines()[1].startswith("4,MiniMaze,1.0")
    # It is evaluated again: another version of the package may have had another agent of this name.
    file.write_text(file.read_text().replace("1.0", "0.0"))
    assert evaluate.main(["--label", "toy=maze/toy", *words]) == 0
    out = capsys.readouterr().out
    assert "toy: 1 seed (maze/toy)" in out
    assert "written: evaluations/maze/toy/update4-MiniMaze-2.csv" in out
    assert "100.0%" in out
    assert contents(agents) == before


def test_an_agent_is_watched(agents):
    from minimax_lib.config.play import parse

    assert callable(watched(parse(["--run", "maze/toy"])))
    assert refused(watched, parse(["--run", "maze/toy", "--student", "1"])) == (
        "student is 1: maze/toy has 1, counted from 0"
    )


# ------------------------------------------------------------------------------------------------ how one is made


def status_and_error(words, capsys) -> tuple[object, str]:
    with pytest.raises(SystemExit) as stopped:
        ship.main(words)
    return stopped.value.code, capsys.readouterr().err.splitlines()[-1]


@pytest.mark.deep
def test_what_cannot_ship_is_refused(run, agents, monkeypatch, capsys):
    before = contents(agents)

    def refusal(*words) -> str:
        code, line = status_and_error([str(run), *words], capsys)
        assert code == 2
        return line.partition("error: ")[2]

    assert refusal("maze/toy") == "the agent 'maze/toy' exists: add --replace, or choose another name"
    assert refusal("Maze/x") == "name is 'Maze/x': it must be GROUP/NAME in small letters, such as maze/sfl"
    assert refusal("maze/x", "--seed", "5") == f"seed is 5: {run} has 3, 4"
    missing = f"{run} has no row in metrics.csv of update 2 and seed 3: evaluate it first"
    assert refusal("maze/x", "--seed", "3", "--checkpoint", "2") == missing
    monkeypatch.setattr(ship, "MOST_BYTES", 1000)
    assert "they must be 1,000 at most" in refusal("maze/toy", "--seed", "4", "--replace")
    assert contents(agents) == before


@pytest.mark.deep
def test_an_agent_is_replaced_where_that_is_asked_for(run, loaded_run, agents):
    assert ship.main([str(run), "maze/toy", "--seed", "3", "--replace", "--command", "mine"]) == 0
    assert list(shipped.shipped_agents()) == ["maze/toy"]
    assert shipped.about_agent(agents / "maze" / "toy")["command"] == "mine"
    assert equal(minimax_lib.load_run("maze/toy").params, loaded_run.of(3).params)


def test_parameters_that_are_not_finite_float32_do_not_ship():
    for x in (np.zeros((2, 1), np.float16), np.full((2, 1), np.nan, np.float32)):
        assert "it must be finite numbers of float32" in refused(ship.of_seed, {"a": x}, 0)


# ------------------------------------------------------------------------------------------------ what ships


EVERY_TIME = ("lasertag/small2", "maze/accel", "maze/paired", "nmmo/mini", "walker/basic")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.deep] * (n not in EVERY_TIME)) for n in shipped.shipped_agents()]
)
def test_every_agent_that_ships_loads_and_has_the_form_of_its_configuration(name):
    """Reading compares the types and shapes of the parameters with those of the configuration; nothing is compiled."""
    folder = shipped.shipped_agents()[name]
    agent = minimax_lib.load_run(name)
    about = shipped.about_agent(folder)
    assert (about["name"], about["seed"], about["updates"]) == (name, agent.seed, agent.update)
    assert any(one["solved_rate"] for one in about["evaluations"])
    assert ship.size_of(folder) < ship.MOST_BYTES
    assert agent.origins


def test_parameters_of_another_form_are_refused(agents):
    folder = agents / "maze" / "toy"
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    (file,) = folder.glob("archive/*.npz")
    params = minimax_lib.load_params(file)
    file.unlink()
    wide = jax.tree.map(lambda x: np.concatenate([x, x], axis=-1), params)
    save_params(file, wide, {"update": 4, "seeds": [4], "config": settings})
    assert refused(minimax_lib.load_run, "maze/toy") == f"{file} does not hold the parameters of this run"


def test_every_file_of_an_agent_is_in_a_distribution(agents):
    """setup.py lists them; a built wheel takes too long to make here."""
    calls = [node for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(node, ast.Call)]
    data = next(word.value for call in calls for word in call.keywords if word.arg == "package_data")
    patterns = ast.literal_eval(data)["minimax_lib"]
    real = ROOT / "minimax_lib" / "trained"
    files = [path.relative_to(folder.parent) for folder in (agents, real) for path in contents(folder)]
    assert len(files) >= 4
    for file in files:
        assert any(len(file.parts) == len(PurePath(p).parts) and file.match(p) for p in patterns), file


def test_an_agent_and_a_configuration_may_have_one_name(agents):
    """The name after --config is that of a configuration, and the name after --run that of an agent."""
    assert shipped.located("maze/dr").suffix == ".yaml"
    assert shipped.located_run("maze/dr") == Path("maze/dr")
    assert not shipped.located("maze/toy").exists()
    assert tiny_config(agents / "maze" / "toy").run_folder == shipped.located_run("maze/toy")

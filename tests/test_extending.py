"""docs/extending.md: its files are those of docs/examples, every part passes its check, and every command works."""

import ast
import math
import re
import shlex
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from minimax_lib.commands import evaluate, train
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.curricula.scores import SCORES
from minimax_lib.envs.registry import FAMILIES
from minimax_lib.models.registry import MODELS
from minimax_lib.runners.build import make_runner
from minimax_lib.store.tables import read_table

ROOT = Path(__file__).parents[1]
EXAMPLES, TEXT = ROOT / "docs" / "examples", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
FILES = dict(re.match(r"# (\S+)\n(.*)", text, re.DOTALL).groups() for kind, text in BLOCKS if kind == "python")
COMMANDS = [
    line
    for kind, text in BLOCKS
    if kind == "bash"
    for line in text.replace("\\\n", " ").splitlines()
    if line.startswith("minimax-")
]
CHECKS = [
    node.name
    for node in ast.parse((EXAMPLES / "test_drift.py").read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]
SMALL = {  # laid over drift.yaml, so that the commands can run as they are written
    "env": {"name": "Drift", "max_steps": 4},
    "model": {"name": "fading", "width": 4},
    "runner": {"n_steps": 4, "n_parallel": 64},
    "ppo": {"n_epochs": 1},
    "eval": {"every": 0},
    "n_updates": 2,
    "report": False,
}


@pytest.fixture(scope="module", autouse=True)
def plugin():
    """The plugin can be imported, and is forgotten afterwards: other tests look at all that is registered."""
    tables = (FAMILIES, MODELS._table, SCORES._table, RUNNERS._table, GENERATORS._table)
    before = [dict(table) for table in tables]
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))
    for table, items in zip(tables, before, strict=True):
        table.clear()
        table.update(items)
    for name in [name for name in sys.modules if name.split(".")[0] in ("drift", "test_drift")]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a reader of the page stands: beside drift.yaml."""
    (text,) = [text for kind, text in BLOCKS if kind == "yaml"]
    path = tmp_path_factory.mktemp("reader")
    (path / "drift.yaml").write_text(yaml.safe_dump(yaml.safe_load(text) | SMALL))
    return path


def test_the_page_shows_the_files():
    written = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*drift*/*.py")} | {"test_drift.py"}
    assert set(FILES) == written
    for name, text in FILES.items():
        assert text == (EXAMPLES / name).read_text(encoding="utf-8"), f"docs/extending.md and {name} differ"
    assert max(map(len, TEXT.splitlines())) <= 120


def test_the_first_file_needs_none_of_the_others():
    """The page trains with it before the others are written."""
    top = [node for node in ast.parse(FILES["drift/world.py"]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in top if "drift" in ast.unparse(node)]


@pytest.mark.parametrize(
    "check", [check if check == "test_environment" else pytest.param(check, marks=pytest.mark.deep) for check in CHECKS]
)
def test_every_part_passes_its_check(check):
    import test_drift

    getattr(test_drift, check)()


def test_there_is_a_check_for_every_part():
    assert len(CHECKS) == 6
    assert all(f"`{name}`" in TEXT for name in re.findall(r"check_\w+", FILES["test_drift.py"]))


LONG = [command for command in COMMANDS if "drift.yaml" in command]
SHORT = [command for command in COMMANDS if command not in LONG and "evaluate" not in command]
# These three run everything that the plugin has. What the others are made of is trained in other tests.
TRAINED = [c for c in LONG if "generator" not in c and re.search(r"--runner (dr|accel|paired)", c)]


def words_of(command):
    return shlex.split(command)[1:]


@pytest.mark.parametrize("command", SHORT)
def test_commands_without_training(command, folder, monkeypatch, capsys):
    """The lists, the help, and the run with one file alone, as far as it can be refused."""
    monkeypatch.chdir(folder)
    words = words_of(command)
    if "--list" in words or "--help" in words:
        with pytest.raises(SystemExit) as ended:
            train.main(words)
        assert ended.value.code == 0
        said = capsys.readouterr().out
        listed, flags = ("Drift", "warmup", "fading", "squared_td_error"), ("--runner.rate", "--model.width")
        assert all(word in said for word in (listed if "--list" in words else flags))
    else:
        train.check(train.parse(words))


@pytest.mark.deep
@pytest.mark.parametrize("command", TRAINED)
def test_methods_train(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert train.main(words_of(command)) == 0
    _, rows = read_table(train.parse(words_of(command)).run_folder / "metrics.csv")
    assert rows[-1]["update"] == "2"
    assert math.isfinite(float(rows[-1]["loss"]))


TRACED = [command for command in LONG if command not in TRAINED]


@pytest.mark.parametrize("command", [TRACED[0], *(pytest.param(c, marks=pytest.mark.deep) for c in TRACED[1:])])
def test_parts_fit_together(command, folder, monkeypatch):
    """Traced, without compiling."""
    monkeypatch.chdir(folder)
    config = train.parse(words_of(command))
    train.check(config)
    runner = make_runner(config)
    state = jax.eval_shape(runner.init, jax.random.key(0))
    after, metrics = jax.eval_shape(runner.step, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert {"return", "loss"} <= set(metrics)


@pytest.mark.deep
def test_a_run_is_evaluated_and_drawn(folder, monkeypatch, capsys):
    """After the runs above: the one that the page evaluates is among them."""
    monkeypatch.chdir(folder)
    (command,) = [command for command in COMMANDS if "evaluate" in command]
    words = words_of(command)
    if not (folder / words[words.index("--run") + 1]).exists():
        assert train.main(words_of(LONG[0])) == 0
    assert evaluate.main([*words, "--n-episodes", "2"]) == 0
    said = capsys.readouterr().out
    assert all(task in said for task in ("Calm", "Against", "Across", "Strong", "Anywhere"))


def test_episodes_are_drawn():
    from drift.world import Boat, Drift

    level = jax.vmap(jax.vmap(Drift().sample_level))(jax.random.split(jax.random.key(0), (5, 3)))
    states = Boat(level=level, position=level.start, time=jnp.zeros((5, 3), jnp.int32))
    picture = Drift().draw_episodes(jax.device_get(states), np.ones((5, 3), bool), ["a", "b", "c"], columns=2)
    assert picture.dtype == np.uint8
    assert picture.shape[0] > picture.shape[1] > 200  # two rows of two, with captions
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 4

"""Files and flags read one notation alike, or refuse it; and what is said of settings names what was given."""

import functools
import importlib
import re
from pathlib import Path
from typing import Literal

import pytest
import yaml

from minimax_lib.commands import train
from minimax_lib.config.files import Loader, read_yaml, write_yaml
from minimax_lib.config.flags import parse
from minimax_lib.config.sweep import read_sweep
from minimax_lib.config.sweep_command import parse as parse_sweep
from minimax_lib.config.values import Plain, Words, convert
from minimax_lib.registry import unknown_name

SCALARS = re.findall(
    r"\S+",
    "007 010 0o10 0x10 0b1 1e5 1E5 1e-4 1.5e5 1_000 1_0.5 1:30 1:30.5 yes no on off y n true True TRUE tRUE false "
    "null Null ~ none None .inf -.inf +.inf inf .nan nan 2026-11-25 2026-11-25T10:00:00 +5 -0 +1.5 1. 0.5 .5 00.5 = "
    "<< 1,000 \u0663 7 7.0 0 auto online",
)
HINTS = [
    str,
    int,
    float,
    bool,
    int | None,
    float | None,
    str | None,
    int | Literal["auto"],
    Literal["no", "none"],
    bool | Literal["online"],
]
SETTINGS = ["name", "seed", "report", "runner.rollouts_per_batch", "wandb", "plugins"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def outcome(function, *given):
    """(the type of what comes back, it), or what is said."""
    try:
        value = function(*given)
    except ValueError as error:
        return str(error)
    return type(value), value


def assert_alike(scalar, in_file, by_flag):
    """Both mean the same, or the file is refused: as the flag is, or with what to do."""
    if isinstance(in_file, str):
        assert "\n" not in in_file
        assert isinstance(by_flag, str) or "put it in quotes" in in_file, (scalar, in_file, by_flag)
    else:
        assert in_file == by_flag, scalar


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_a_scalar_means_the_same_in_a_file_and_in_a_flag(hint):
    for scalar in ["", *SCALARS]:
        value = yaml.load(f"x: {scalar}", Loader)["x"]
        assert_alike(scalar, outcome(convert, value, hint, "x"), outcome(convert, Words((scalar,)), hint, "x"))


@pytest.mark.deep
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_scalar_means_the_same_to_a_command(setting):
    *groups, last = setting.split(".")

    def value_of(words):
        return functools.reduce(getattr, setting.split("."), parse(words))

    for scalar in ["", *SCALARS]:
        text = "".join(f"{'  ' * i}{group}:\n" for i, group in enumerate(groups))
        Path("a.yaml").write_text(f"{text}{'  ' * len(groups)}{last}: {scalar}\n")
        assert_alike(scalar, outcome(value_of, ["--config", "a.yaml"]), outcome(value_of, [f"--{setting}={scalar}"]))


@pytest.mark.parametrize("scalar", ["007", "no", "2026-11-25", "1:30", "null", "7", ""])
def test_quotes_make_text(scalar):
    Path("a.yaml").write_text(f"name: {scalar}")
    assert train.main(["--config", "a.yaml"]) == 2
    Path("a.yaml").write_text(f"name: '{scalar}'")
    assert parse(["--config", "a.yaml"]).name == scalar


def test_the_text_of_a_value_is_shown_as_it_was_written(capsys):
    Path("a.yaml").write_text("seed: 0x10")
    assert train.main(["--config", "a.yaml"]) == 2
    assert capsys.readouterr().err == "error: seed is '0x10': it must be an integer\n"
    Path("a.yaml").write_text("name: 2026-11-25")
    assert train.main(["--config", "a.yaml"]) == 2
    line = "error: name is '2026-11-25': it must be text (in a file, put it in quotes)\n"
    assert capsys.readouterr().err == line


def test_a_file_that_is_written_again_says_the_same():
    text = "a: 007\nb: [no, 1_000, '007']\nc: 7\nd:\n"
    Path("a.yaml").write_text(text)
    tree = read_yaml("a.yaml")
    assert tree == {"a": Plain("007"), "b": [Plain("no"), Plain("1_000"), "007"], "c": 7, "d": Plain("")}
    Path("b.yaml").write_text(yaml.safe_dump(tree))
    again = read_yaml("b.yaml")
    assert again == tree
    assert [type(item) for item in again["b"]] == [Plain, Plain, str]


def test_text_that_could_be_taken_for_something_else_is_written_in_quotes():
    texts = ["", "none", "None", "007", "no", "1_000", "1:30", "2026-11-25", "null", "~", ".inf", "nonesuch", "1e5"]
    write_yaml({"a": texts, "b": None, "c": True, "d": 1e-5, "e": float("inf")}, "a.yaml")
    tree = read_yaml("a.yaml")
    assert tree == {"a": texts, "b": None, "c": True, "d": 1e-5, "e": float("inf")}
    assert {type(text) for text in tree["a"]} == {str}


def test_sweeps_read_values_as_trainings_do():
    assert parse_sweep(["lr", "--name", "007", "--seed", "1_000"])[2] == {"name": ("007",), "seed": ("1_000",)}
    Path("s.yaml").write_text("config: maze/dr\nvary: {seed: [1_0, 2_0]}\nsettings:\n")
    assert read_sweep("s.yaml", parse_sweep(["s.yaml", "--name", "007"])[2]).keys.name == "007"
    Path("s.yaml").write_text("config: maze/dr\nvary: {seed: [1, 2]}\nname: 007\n")
    with pytest.raises(ValueError, match="put it in quotes"):
        read_sweep("s.yaml")


# ---------------------------------------------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    "text", ["runner.score: max_mc", "runner: plr\nrunner.score: max_mc", "ppo.lr: 1", "env.no: 1"]
)
def test_a_dotted_name_in_a_file_says_how_it_is_written_there(text, capsys):
    Path("a.yaml").write_text(text)
    assert train.main(["--config", "a.yaml"]) == 2
    error = capsys.readouterr().err
    assert "in a file, the settings of a group stand under its name, as '" in error
    assert "did you mean" not in error


def test_a_suggestion_is_never_what_was_typed():
    for typed in ("a", "a.b", 7, "A"):
        for meant in (None, str(typed), "b"):
            error = str(unknown_name("thing", typed, ["a", "a.b", "7", "b"], meant=meant))
            assert f"did you mean '{typed}'" not in error
    assert "did you mean 'a'" in str(unknown_name("thing", "A", ["a"]))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("env: &a {height: *a}", "env.height"),
        ("runner: {teacher: {ppo: &x [1, {a: [*x]}]}}", "runner.teacher.ppo.a"),
        ("plugins: &x [*x]", "plugins"),
        ("a: {b: 1}\nseed: &x [a, *x]", "seed"),
        ("? &x [*x]\n: 1", ""),
        ("&x {*x : 1}", ""),
    ],
)
def test_a_value_that_contains_itself_is_refused_with_the_name_of_the_setting(text, place, capsys):
    Path("a.yaml").write_text(text)
    assert train.main(["--config", "a.yaml"]) == 2
    said = (
        rf"error: config file 'a.yaml' has a value that contains itself, {place}( \(|.*\().*: it must be written out\n"
    )
    assert re.fullmatch(said, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runner", "sfl", "--runner.n-scored", "10"], "--runner.n-scored is 10: runner.n_kept is 128"),
        (["--runner", "sfl", "--runner.n-scored", "10", "--runner.n-kept", "20"], "--runner.n-kept is 20: "),
        (["--runner", "sfl", "--runner.n-scored", "0"], "--runner.n-scored is 0: it must be at least 1"),
        (["--n-seed-devices", "3"], "--n-seed-devices is 3: n_devices is 1: it must be a multiple of n_seed_devices"),
        (["--model", "s5", "--model.dt-min", "5"], "--model.dt-min is 5.0: model.dt_max is 0.1"),
        (["--env", "Pendulum", "--env.hold-steps", "9000"], "--env.hold-steps=9000"),
        (["--env", "Pendulum", "--env.max-steps", "2"], "--env.max-steps is 2: env.hold_steps="),
    ],
)
def test_the_setting_that_was_given_is_named(words, said, capsys):
    assert train.main(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")


@pytest.mark.parametrize("blank", [" ", "\u00a0", "\u200b", "\t "])
def test_a_name_that_cannot_be_seen_is_refused(blank, capsys):
    for words in (["--name", blank], ["--log-dir", f"a/{blank}"], ["--compilation-cache", blank]):
        assert train.main(words) == 2
        assert words[0] in capsys.readouterr().err
    with pytest.raises(ValueError, match="name is"):
        read_sweep("accel", {"name": blank})


@pytest.mark.parametrize("place", ["file", "file/below"])
@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train", []),
        ("evaluate", ["--run", "maze/dr"]),
        ("draw", ["maze/dr"]),
        ("report", ["maze/dr"]),
        ("play", ["--run", "maze/dr"]),
    ],
)
def test_a_file_cannot_keep_compiled_programs(command, words, variable, place, monkeypatch, capsys):
    Path("file").touch()
    if variable:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", place)
    else:
        words = [*words, "--compilation-cache", place]
    assert importlib.import_module(f"minimax_lib.commands.{command}").main(words) == 2
    assert capsys.readouterr().err.endswith("it must be a folder, and 'file' is a file\n")


@pytest.mark.parametrize(
    "text",
    [
        '{"grid_id": "a", "grid": {}, "args": {"env_name": ["MultiGrid-v0"], "num_processes": [32]}}',
        '{"grid_id": "a", "args": {"seed": [1], "n_total_updates": 30000, "train_runner": "dr"}}',
        '{"args": {"seed": [1]}}',
        '{"num_train_envs": 32, "num_steps": 256, "entropy_coeff": 0.1}',
    ],
)
def test_a_configuration_of_another_library_is_recognised(text, capsys):
    Path("a.json").write_text(text)
    assert train.main(["--config", "a.json"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "error: config file 'a.json' is of another library, as minimax or dcd: docs/coming_from.md says"
    )
    assert said.count("\n") == 1

"""Configurations as dataclasses, plain values and YAML: conversion, selection, layers, round trips."""

import contextlib
import dataclasses
import importlib.util
import math
import re
import tracemalloc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minimax_lib.agents.ppo import PPO
from minimax_lib.commands.train import check
from minimax_lib.config import Config, from_dict, load_yaml, parse, save_yaml, to_dict
from minimax_lib.config.aliases import NAMES_ELSEWHERE, SETTING_OF
from minimax_lib.config.files import read_yaml
from minimax_lib.config.shipped import shipped, summary
from minimax_lib.config.tree import build, flat, names_of, overlay, registry_of, setting_hints, to_tree
from minimax_lib.config.values import Words, convert
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.grid.generators.registry import FAMILIES
from minimax_lib.envs.registry import ENVS
from minimax_lib.messages import UNPRINTABLE
from minimax_lib.models.registry import MODELS
from minimax_lib.models.settings import LSTM, S5
from minimax_lib.registry import Registry
from minimax_lib.runners.build import with_devices
from minimax_lib.store.folder import differences
from minimax_lib.tasks.registry import SFLSettings, StratifiedSettings

CONFIGS = Path(__file__).parent.parent / "configs"
EXPERIMENTS = sorted({*CONFIGS.rglob("*.yaml")} - {*CONFIGS.glob("sweeps/*.yaml")})


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, Words(("7",)), 7),
        (int, Words(("-7",)), -7),
        (int, 7, 7),
        (float, Words(("1e-4",)), 1e-4),
        (float, "1e-4", 1e-4),  # what PyYAML makes of it
        (float, 3, 3.0),
        (bool, Words(()), True),
        (bool, Words(("False",)), False),
        (bool, True, True),
        (str, Words(("7",)), "7"),
        (float | None, Words(("None",)), None),
        (float | None, None, None),
        (float | None, Words(("0.5",)), 0.5),
        (str | None, "None", "None"),
        (str | None, Words(("none",)), None),
        (Literal["rank", 3], Words(("3",)), 3),
        (Literal["rank", 3], "rank", "rank"),
        (tuple[str, ...], Words(("a", "b")), ("a", "b")),
        (tuple[str, ...], Words(()), ()),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[int, float], Words(("1", "2")), (1, 2.0)),
    ],
)
def test_values_take_the_declared_type(hint, value, expected):
    converted = convert(value, hint, "x")
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (int, Words(("1.5",)), "x is '1.5': it must be an integer"),
        (int, Words(("1", "2")), "x is '1 2': it must be an integer"),
        (int, Words(()), "x is without a value: it must be an integer"),
        (int, True, "x is True: it must be an integer"),
        (int, "7", "x is '7': it must be an integer"),
        (int, 7.0, "x is 7.0: it must be an integer"),
        (int, 2**31, "x is 2147483648: it must be an integer of 32 bits, 2147483647 at most"),
        (float, 1e39, "x is 1e+39: it must be a number of 32 bits, 3.40282e+38 at most"),
        (float, True, "x is True: it must be a number"),
        (float, "fast", "x is 'fast': it must be a number"),
        (float, math.nan, "x is nan: it must be a number"),
        (float, [1.0], "x is [1.0]: it must be a number"),
        (bool, 1, "x is 1: it must be true or false"),
        (bool, Words(("maybe",)), "x is 'maybe': it must be true or false"),
        (str, 7, "x is 7: it must be text (in a file, put it in quotes)"),
        (float | None, "no", "x is 'no': it must be a number or none"),
        (tuple[int, ...], Words(("1", "b")), "x is '1 b': it must be a list of integers"),
        (tuple[str, ...], "abc", "x is 'abc': it must be a list of text"),
        (tuple[int, int], [1], "x is [1]: it must be a list of 2 integers"),
        (Literal["rank", "greedy"], "rnk", "unknown x 'rnk': choose from rank, greedy (did you mean 'rank'?)"),
    ],
)
def test_values_of_another_type_are_refused(hint, value, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        convert(value, hint, "x")


def test_a_setting_of_an_unsupported_type_is_the_programmers_error():
    with pytest.raises(TypeError, match="a setting cannot be of type"):
        convert({}, dict, "x")


@dataclasses.dataclass(frozen=True)
class Small:
    width: int = 4
    mode: Literal["a", "b"] = "a"


@dataclasses.dataclass(frozen=True)
class Deep:
    depth: int
    small: Small = dataclasses.field(default_factory=lambda: Small(width=8))


SHAPES: Registry[Any] = Registry("shape", {"small": Small, "deep": Deep})


@dataclasses.dataclass(frozen=True)
class Whole:
    shape: Annotated[Any, SHAPES] = Small(width=6)
    sides: tuple[int, ...] = (1, 2)
    hidden: int = dataclasses.field(default=5, init=False)


def test_groups_are_chosen_by_name_with_the_defaults_of_where_they_stand():
    assert build(Whole, {}) == Whole()
    assert build(Whole, {"shape": {"mode": "b"}}) == Whole(shape=Small(6, "b"))
    assert build(Whole, {"shape": "small"}) == Whole(shape=Small(6))
    deep = Whole(shape=Deep(2, Small(8, "b")), sides=())
    tree = {"shape": {"name": "deep", "depth": 2, "small": {"width": 8, "mode": "b"}}, "sides": []}
    assert build(Whole, {"shape": {"name": "deep", "depth": 2, "small": {"mode": "b"}}, "sides": []}) == deep
    assert to_tree(deep) == tree
    assert build(Whole, tree) == deep


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"shape": "deep"}, "shape.depth has no default: it must be given"),
        ({"shape": "depe"}, "unknown shape 'depe': choose from small, deep (did you mean 'deep'?)"),
        ({"shape": 3}, "shape is 3: it is a group of settings, as in shape.SETTING"),
        ({"shape": None}, "shape is None: it is a group of settings, as in shape.SETTING"),
        ({"wdith": 3}, "unknown setting 'wdith': choose from shape, sides (did you mean 'shape.width'?)"),
        ({"shape": {"wdith": 3}}, "unknown setting 'shape.wdith': choose from shape.width, shape.mode (did you mean "),
        ({"hidden": 3}, "unknown setting 'hidden': choose from shape, sides"),
        ({"sides": {"a": 1}}, "sides is {'a': 1}: it must be a list of integers"),
        ({7: 1}, "unknown setting '7': choose from shape, sides"),
    ],
)
def test_trees_that_fit_no_settings_are_refused(tree, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build(Whole, tree)


def test_a_later_layer_changes_what_it_names_and_nothing_else():
    below = {"seed": 1, "shape": {"name": "small", "width": 2, "mode": "b"}}
    assert overlay(below, {"shape": {"width": 3}})["shape"] == {"name": "small", "width": 3, "mode": "b"}
    assert overlay(below, {"shape": "small"}) == below
    assert overlay(below, {"shape": {"name": "deep", "depth": 1}})["shape"] == {"name": "deep", "depth": 1}
    assert overlay(below, {"shape": Words(("deep",))}) == {"seed": 1, "shape": {"name": Words(("deep",))}}
    assert overlay({"shape": {"width": 3}}, {"shape": "small"})["shape"] == {"width": 3, "name": "small"}
    assert overlay({"shape": "small"}, {"shape": {"width": 3}})["shape"] == {"name": "small", "width": 3}
    assert below == {"seed": 1, "shape": {"name": "small", "width": 2, "mode": "b"}}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, impossible ones among them."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    names = names_of(hint)
    if names:
        return st.sampled_from(names.names())
    if get_origin(hint) in (UnionType, Union):
        return st.one_of(*map(values_of, get_args(hint)))
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    return {
        bool: st.booleans(),
        int: st.integers(-1, 40) | st.integers(-(2**31) + 1, 2**31 - 1),
        float: st.floats(allow_nan=False, width=32),
        str: st.text(st.characters(exclude_categories=UNPRINTABLE))
        | st.sampled_from(["null", "no", "1e-4", "a: b", "none", "\xa0"]),
        NoneType: st.none(),
    }[hint]


@st.composite
def settings_of(draw, cls: type) -> Any:
    """Settings of a class with every field drawn that takes what is drawn for it."""
    drawn = cls()
    for name, hint in setting_hints(cls).items():
        registry = registry_of(hint)
        if registry is not None:
            value = draw(st.sampled_from([registry[n] for n in registry.names()]).flatmap(settings_of))
        elif dataclasses.is_dataclass(hint):
            value = draw(settings_of(hint))
        else:
            value = draw(values_of(hint))
        try:
            drawn = dataclasses.replace(drawn, **{name: value})
        except ValueError:
            continue
    return drawn


@pytest.mark.parametrize("n_examples", [8, pytest.param(60, marks=pytest.mark.deep)])
def test_a_saved_configuration_gives_itself_back(tmp_path_factory, n_examples):
    every = list(HealthCheck)
    # The few examples of the default suite are always the same; the deep test draws others each time.
    found = settings(max_examples=n_examples, deadline=None, suppress_health_check=every, derandomize=n_examples == 8)
    found(given(data=st.data())(gives_itself_back))(tmp_path_factory)


def gives_itself_back(tmp_path_factory, data):
    config = dataclasses.replace(data.draw(settings_of(Config)), plugins=())
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    save_yaml(config, path)
    assert load_yaml(path) == config
    assert read_yaml(path) == to_dict(config)


def enlarged(cls: type, size: int) -> Any:
    """Settings of a class with each whole number set to `size`, where it takes that."""
    drawn = cls()
    for name, hint in setting_hints(cls).items():
        if int in (hint, *get_args(hint)):
            with contextlib.suppress(ValueError):
                drawn = dataclasses.replace(drawn, **{name: size})
    return drawn


@pytest.mark.parametrize("size", [4000, 5000, 2**31 - 1])
@pytest.mark.parametrize("registry", [ENVS, FAMILIES, MODELS, RUNNERS], ids=["env", "family", "model", "runner"])
def test_no_setting_makes_something_huge_before_it_is_checked(registry, size):
    tracemalloc.start()
    try:
        for name in registry.names():
            enlarged(registry[name], size)
            assert tracemalloc.get_traced_memory()[1] < 2**25, name
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("group", ["env", "model", "runner"])
def test_every_registered_class_round_trips_by_name(group, tmp_path):
    registry = {"env": ENVS, "model": MODELS, "runner": RUNNERS}[group]
    for name in registry.names():
        config = from_dict({group: name})
        assert type(getattr(config, group)) is registry[name]
        save_yaml(config, tmp_path / "config.yaml")
        assert load_yaml(tmp_path / "config.yaml") == config


def test_every_setting_of_a_file_can_be_given_by_a_flag(tmp_path):
    changed = [
        "--seed=3",
        "--ppo.lr=2e-4",
        "--eval.tasks",
        "Labyrinth",
        "MiniMaze",
        "--model=gru",
        "--env.no-replace-walls",
    ]
    config = parse([*changed, "--ppo.lr-final", "0", "--eval.greedy", "--name=x"])
    save_yaml(config, tmp_path / "config.yaml")
    assert parse(["--config", str(tmp_path / "config.yaml")]) == config
    assert config.ppo.lr == 2e-4
    assert config.ppo.lr_final == 0.0
    assert config.eval.tasks == ("Labyrinth", "MiniMaze")
    assert (config.env.replace_walls, config.eval.greedy) == (False, True)


def test_the_run_is_named_after_what_it_runs():
    config = Config()
    assert config.run_name == "amaze-dr-lstm-s0"
    assert config.run_folder == Path("runs/amaze-dr-lstm-s0")
    assert dataclasses.replace(config, name="mine").run_name == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_updates": 0}, "n_updates is 0: it must be at least 1"),
        ({"log_every": 0}, "log_every is 0: it must be at least 1"),
        ({"n_seeds": -2}, "n_seeds is -2: it must be at least 1"),
        ({"seed": -1}, "seed is -1: it must be between 0 and 2147483646"),
        ({"seed": 2**31 - 8, "n_seeds": 8}, "seed is 2147483640: it must be between 0 and 2147483639"),
        ({"n_devices": 0}, "n_devices is 0: it must be at least 1"),
        (
            {"n_devices": 4, "n_seed_devices": 3},
            "n_devices is 4: it must be a multiple of n_seed_devices, which is 3",
        ),
        (
            {"n_devices": 4, "n_seed_devices": 2, "n_seeds": 5},
            "n_seeds is 5: it must be a multiple of n_seed_devices, which is 2",
        ),
        ({"name": "a/b"}, "name is 'a/b': it must be the name of a folder, without the way to it"),
        ({"name": ".."}, "name is '..': it must be the name of a folder, without the way to it"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Config(**changes)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"ppo": {"gamma": 2}}, "ppo.gamma is 2.0"),
        ({"runner": {"name": "paired", "teacher": {"ppo": {"gamma": 2}}}}, "runner.teacher.ppo.gamma is 2.0"),
        (
            {"runner": {"name": "paired", "teacher": {"ppo": {"ema_decay": 0.9}}}},
            "runner.teacher.ppo.ema_decay is 0.9: it must be 0 for a teacher",
        ),
        (
            {"runner": {"name": "plr", "generator": {"name": "teacher", "model": {"name": "ff", "head_width": 0}}}},
            "runner.generator.model.head_width is 0",
        ),
        ({"runner": {"name": "plr", "n_steps": 0}}, "runner.n_steps is 0"),
    ],
)
def test_a_refused_setting_is_named_in_full_wherever_its_group_stands(tree, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        from_dict(tree)


def for_everybody() -> set[Path]:
    """The first experiment of each runner and of each environment, in the order of their names.

    Libraries of other people take seconds to import, so their environments are for deep tests.
    """
    firsts: dict[str, Path] = {}
    for path in EXPERIMENTS:
        tree = read_yaml(path)
        for group in ("env", "runner"):
            chosen = tree[group]
            firsts.setdefault(f"{group} {chosen if isinstance(chosen, str) else chosen['name']}", path)
    return {path for path in firsts.values() if path.parent.name not in ("craftax", "gymnax")}


EVERY_TIME = for_everybody()


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path in EVERY_TIME else pytest.mark.deep, id=path.stem) for path in EXPERIMENTS],
)
def test_the_experiments_in_the_repository_are_possible(path):
    if path.parent.name == "craftax" and not importlib.util.find_spec("craftax"):
        pytest.skip("craftax is not installed")
    check(with_devices(load_yaml(path)))


def test_there_are_experiments_to_check():
    assert EXPERIMENTS


def test_every_experiment_is_shipped_and_says_what_it_is_in_its_first_line():
    assert len(shipped()) == len(EXPERIMENTS)
    for name, path in shipped().items():
        assert load_yaml(name) == load_yaml(path)
        assert summary(path).endswith("."), name


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"runner": "plr"}, {"runner": PLR()}),
        ({"runner": PLR}, {"runner": PLR()}),
        ({"model": "s5"}, {"model": S5()}),
        ({"ppo": PPO}, {}),
        ({"runner": PLR(generator="finite")}, {"runner": PLR(generator=FiniteList())}),
        (
            {"runner": TasksMethod(core=StratifiedSettings(inner="sfl"))},
            {"runner": TasksMethod(core=StratifiedSettings(inner=SFLSettings()))},
        ),
        ({"plugins": ["json"]}, {"plugins": ("json",)}),
        ({"seed": 3, "resume": True}, {"seed": 3, "resume": True}),
    ],
)
def test_names_and_classes_stand_for_settings_in_python(given, meant):
    assert Config(**given) == Config(**meant)
    assert all(type(getattr(Config(**given), name)) is type(value) for name, value in meant.items())


def test_the_environment_is_chosen_by_name_in_python():
    config = Config(env="Pendulum", runner="accel", model="gru")
    assert config == from_dict({"env": "Pendulum", "runner": "accel", "model": "gru"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runner": "plrr"}, r"unknown runner 'plrr': choose from dr, .* \(did you mean 'plr'\?\)"),
        ({"env": 3}, r"env is 3: it must be the name of one environment \(AMaze, .*\), or its settings"),
        ({"env": LSTM()}, r"env is LSTM\(.*\), settings of a model: it must be the name of one environment .*"),
        ({"model": None}, "model is None: it must be the name of one model .*"),
        ({"runner": int}, "<class 'int'> is not a registered runner: .*"),
        ({"runner": PLR(generator="finit")}, r"unknown generator 'finit': .* \(did you mean 'finite'\?\)"),
        ({"ppo": {"lr": 1.0}}, r"ppo is {'lr': 1.0}: it must be settings of the class PPO"),
        ({"eval": "all"}, "eval is 'all': it must be settings of the class Evaluation"),
        ({"n_updates": "3"}, "n_updates is '3': it must be an integer"),
        ({"seed": 1.0}, "seed is 1.0: it must be an integer"),
        ({"log_dir": None}, "log_dir is None: it must be text .*"),
        ({"plugins": "mine"}, "plugins is 'mine': it must be a list of text"),
    ],
)
def test_values_of_another_type_are_refused_in_python(given, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Config(**given)


def test_the_names_elsewhere_lead_to_settings_that_exist():
    groups = [{"runner": name} for name in RUNNERS.names()]
    known = {name.removesuffix(".name") for group in groups for name in flat(to_dict(from_dict(group)))}
    assert set(NAMES_ELSEWHERE) <= known
    names = [name for others in NAMES_ELSEWHERE.values() for name in others]
    assert len(set(names)) == len(names)  # each leads to one setting
    assert not {name for name in names if name in setting_hints(Config)}
    assert set(SETTING_OF.values()) == set(NAMES_ELSEWHERE)


FLOWS = {"n_evals": 1, "levels_per_row": 1, "rollouts_per_batch": None, "continue_episodes": None}


@pytest.mark.parametrize(
    ("name", "saved", "flags", "message"),
    [
        (
            "dr",
            {"levels_per_row": 1, "rollouts_per_batch": None},
            "--runner.levels-per-row 2",
            "levels_per_row is not a setting of dr; it belongs to plr, accel, traced, cenie, sfl, ncc, paired: ",
        ),
        (
            "plr",
            {"continue_episodes": None},
            "--runner.continue-episodes",
            "continue_episodes is not a setting of plr",
        ),
        (
            "tasks",
            FLOWS,
            "--runner.n-evals 2",
            "n_evals is not a setting of tasks; it belongs to dr, plr, accel, traced, cenie, sfl, ",
        ),
        (
            "tasks",
            {"continue_episodes": True},
            "--runner.rollouts-per-batch 3",
            "rollouts_per_batch is not a setting of",
        ),
        (
            "selfplay",
            {"levels_per_row": 1},
            "--runner.levels-per-row 4",
            "levels_per_row is not a setting of selfplay",
        ),
        ("box", FLOWS, "--runner.levels-per-row x", "levels_per_row is 'x': it must be an integer"),
    ],
)
def test_a_method_has_the_settings_of_its_schedule_and_reads_older_files(name, saved, flags, message):
    config = from_dict({"runner": {"name": name, **saved}})
    assert config == from_dict({"runner": name})
    assert not saved.keys() & to_dict(config)["runner"].keys()
    with pytest.raises(ValueError, match=rf"^runner.{message}"):
        parse(["--runner", name, *flags.split()])


def test_a_setting_of_an_earlier_version_is_accepted_and_means_nothing():
    old = {"model": {"name": "lstm", "slow_images": True}}
    teacher = {"name": "paired", "teacher": {"model": {"name": "s5", "slow_images": True}}}
    assert from_dict(old) == from_dict({"model": "lstm"})
    now = to_dict(from_dict({}))
    assert not differences(now | {"model": now["model"] | old["model"]}, now)  # a run with such a file can be resumed
    assert from_dict({"runner": teacher}).runner.teacher.model == S5()


def test_a_wrong_path_of_a_file_names_the_file_of_the_run_that_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs/a").mkdir(parents=True)
    Path("runs/a/config.yaml").write_text("seed: 1\n")
    for wrong, line in {
        "runs/a": "config file 'runs/a' is a folder: it must be a file (say runs/a/config.yaml)",
        "runs": "config file 'runs' is a folder: it must be a file",
        "runs/b/config.yaml": "(did you mean 'runs/a/config.yaml'?)",
        "a": "(did you mean 'runs/a/config.yaml'?)",
    }.items():
        with pytest.raises(ValueError, match=re.escape(line) + "$"):
            read_yaml(wrong)

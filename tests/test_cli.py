"""The command line: precedence, one-line refusals before anything is written, help, plugins, exit statuses."""

import functools
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from minimax_lib.commands.train import main
from minimax_lib.config import help as help_texts
from minimax_lib.config import parse, to_dict
from minimax_lib.config.flags import left_behind_by
from minimax_lib.config.idle import idle_in
from minimax_lib.config.tree import flat
from minimax_lib.curricula.levels.generators import GENERATORS
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.curricula.scores import SCORES, register_score
from minimax_lib.envs.registry import ENVS, FAMILIES
from minimax_lib.experiment.compilation import keep_compiled_programs
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.models.registry import MODELS
from minimax_lib.runners import build

ROOT = Path(__file__).parent.parent
SHIPPED_ENVS = (
    "AMaze",
    "GridWorld",
    "Pendulum",
    "BipedalWalker",
    "LaserTag",
    "NMMO",
    "Gymnax",
    "Craftax",
    "CraftaxTasks",
)
PLUGIN = '''
import dataclasses
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import register_env
from minimax_lib.models.registry import register_model
from minimax_lib.models.settings import FeedForward
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.registry import register_runner

@dataclasses.dataclass(frozen=True)
class Ice(AMaze):
    """Frozen ground."""

    slipperiness: float = 0.25
    """How often a step slips."""

@dataclasses.dataclass(frozen=True)
class Tiny(FeedForward):
    dense_width: int = 8
    """Very few units."""

@dataclasses.dataclass(frozen=True)
class Annealed(DR):
    n_stages: int = 3
    """Stages of the annealing."""

register_env("Ice", Ice)
register_model("tiny", Tiny)
register_runner("annealed", Annealed)
'''


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXPLANATIONS = functools.cache(help_texts.explanations)


@pytest.fixture(autouse=True)
def explained_once(monkeypatch):
    """Each class is read from its source once, not for every text that is shown."""
    monkeypatch.setattr(help_texts, "explanations", EXPLANATIONS)


def run(*words: str, script: str = "train.py") -> subprocess.CompletedProcess:
    """The program, in its own process, in the current folder, which is its home too."""
    env = os.environ | {"HOME": os.getcwd(), "XDG_CACHE_HOME": os.getcwd(), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(ROOT / script), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(params=["in this process", pytest.param("as a program", marks=pytest.mark.deep)])
def command(request, monkeypatch, capsys):
    """What runs the program: (status, stdout, stderr) for words. Plugins that it imports are forgotten afterwards."""

    def here(*words: str) -> tuple[int, str, str]:
        try:
            status = main(words)
        except SystemExit as stopped:
            status = stopped.code
        return (status, *capsys.readouterr())

    def program(*words: str) -> tuple[int, str, str]:
        finished = run(*words)
        return finished.returncode, finished.stdout, finished.stderr

    # Other tests have a plugin of this name.
    monkeypatch.setattr(sys, "path", [place for place in sys.path if not Path(place, "mine.py").exists()])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    families = dict(FAMILIES)
    for cls, family in families.items():
        if family.name and family.name not in SHIPPED_ENVS:
            del FAMILIES[cls]  # another test file has registered it
    for registry in (MODELS, RUNNERS):
        monkeypatch.setattr(registry, "_table", dict(registry._table))
    yield program if request.param == "as a program" else here
    FAMILIES.clear()
    FAMILIES.update(families)
    sys.modules.pop("mine", None)


Command = Callable[..., tuple[int, str, str]]


def test_flags_override_files_and_later_files_earlier_ones(elsewhere):
    (elsewhere / "a.yaml").write_text(
        "seed: 1\nn_seeds: 2\nppo: {lr: 1e-3, gamma: 0.9}\nenv: {name: AMaze, height: 7}\n"
    )
    (elsewhere / "b.yaml").write_text("seed: 2\nppo:\n  gamma: 0.8\n")
    config = parse(["--ppo.gamma", "0.7", "--config", "a.yaml", "--env.width=9", "--config=b.yaml"])
    assert (config.seed, config.n_seeds) == (2, 2)
    assert (config.ppo.lr, config.ppo.gamma) == (1e-3, 0.7)
    assert (config.env.height, config.env.width) == (7, 9)
    assert parse(["--config", "b.yaml", "a.yaml"]).seed == 1


def test_choosing_another_name_leaves_the_settings_of_the_first_behind(elsewhere):
    (elsewhere / "a.yaml").write_text("model: {name: ff, dense_width: 8}\n")
    assert parse(["--config", "a.yaml", "--model", "gru"]) == parse(["--model", "gru"])
    assert parse(["--model.head_width", "4", "--config", "a.yaml", "--model", "gru"]).model.head_width == 4
    assert parse(["--config", "a.yaml", "--model", "ff"]).model.dense_width == 8


LEFT_BEHIND = [
    (["--config", "maze/cpu/dr", "--model", "lstm"], "memory_width 256 (was 64), memory_span None (was 30)"),
    (["--config", "maze/cpu/dr", "--model", "lstm", "--model.memory-width=64"], "memory_span None (was 30)"),
    (
        ["--config", "maze/cpu/plr", "--runner", "accel", "--runner.levels-per-row=8"],
        "robust True (was False), temperature 0.3 (was 1.0)",
    ),
    (["--config", "maze/cpu/paired", "--runner.teacher.model", "lstm"], "conv_filters 128 (was 8)"),
    (["--config", "a.yaml", "b.yaml"], None),  # the second file says it itself
    (["--config", "maze/cpu/dr", "--model", "gru"], None),  # the same choice
    (["--config", "maze/cpu/dr", "--model", "ff"], None),  # shares no setting that was changed
    (["--config", "maze/dr", "--runner", "accel"], None),
]


@pytest.mark.parametrize(("words", "changed"), LEFT_BEHIND)
def test_a_shared_setting_that_is_left_behind_is_named(words, changed, elsewhere):
    (elsewhere / "a.yaml").write_text("model: {name: lstm, memory_width: 4}\n")
    (elsewhere / "b.yaml").write_text("model: {name: gru, memory_width: 8}\n")
    lines = left_behind_by(words, parse(words))
    assert [line.partition("count for it: ")[2] for line in lines] == ([changed] if changed else [])


def test_flags_take_any_spelling_and_order():
    expected = parse(["--n_seeds", "2", "--runner", "dr", "--runner.n_parallel", "8", "--env.see_agent", "true"])
    assert parse(["--env.see-agent", "--runner.n-parallel=8", "--runner=dr", "--n-seeds=2"]) == expected
    assert parse(["--env.see_agent", "true", "--runner.n_parallel=8", "--n_seeds=2"]) == expected
    assert not parse(["--no-resume"]).resume


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rnner", "dr"], "unknown flag --rnner: choose from --env, --model, --runner, * (did you mean --runner?)"),
        (["--lr", "1"], "unknown flag --lr: choose from * (did you mean --ppo.lr?)"),
        (["--env.hieght", "9"], "unknown flag --env.hieght: choose from --env.height, * (did you mean --env.height?)"),
        (["--env", "amaze"], "unknown environment 'amaze': choose from AMaze* (did you mean 'AMaze'?)"),
        (["--runner", "drr"], "unknown runner 'drr': choose from dr* (did you mean 'dr'?)"),
        (["--model", "lsmt"], "unknown model 'lsmt': choose from lstm, gru, s5, ff* (did you mean 'lstm'?)"),
        (["--model"], "--model is without a value: it must be text"),
        (["--seed", "one"], "--seed is 'one': it must be an integer"),
        (["--seed", "1", "2"], "--seed is '1 2': it must be an integer"),
        (["--ppo.lr", "fast"], "--ppo.lr is 'fast': it must be a number"),
        (["--ppo.lr", "-1"], "--ppo.lr is -1.0: it must be positive and finite"),
        (["--env.see_agent", "maybe"], "--env.see-agent is 'maybe': it must be true or false"),
        (["--ppo", "3"], "--ppo is '3': it is a group of settings, as in ppo.SETTING"),
        (["dr"], "unknown config file 'dr': choose from * (did you mean 'maze/dr'?)"),
        (["--method", "plr"], "unknown flag --method: choose from * (did you mean --runner?)"),
        (["--seed", "1", "--seed=2"], "--seed is given twice, '1' and '2': give it once"),
        (["--env.n-walls", "3", "--env.n_walls", "3"], "--env.n-walls is given twice, '3' and '3': give it once"),
        (["--runner", "dr", "--runner", "plr"], "--runner is given twice, 'dr' and 'plr': give it once"),
        (["--resume", "--no-resume"], "--resume is given twice, without a value and 'false': give it once"),
        (["--n_updates", "0"], "--n-updates is 0: it must be at least 1"),
        (["--env.n_walls", "168"], "*168*169*167"),
        (["--ppo.n_minibatches", "5"], "--ppo.n-minibatches is 5: it must divide the 32 rows (try 4)"),
        (
            ["--model", "ff", "--ppo.n_minibatches", "5"],
            "--ppo.n-minibatches is 5: it must divide the 8192 steps (try 4)",
        ),
        (["--runner.n_steps", "0"], "--runner.n-steps is 0: it must be at least 1"),
        (
            ["--eval.tasks", "TrainingDistributon"],
            "unknown * 'TrainingDistributon': * (did you mean 'TrainingDistribution'?)",
        ),
        (
            ["--config", "dr.yml"],
            "unknown config file 'dr.yml': choose from * such as * (did you mean 'maze/dr'?)",
        ),
        (["--config", "."], "config file '.' is a folder: it must be a file"),
        (
            ["--plugins", "no_such_module"],
            "plugin 'no_such_module' cannot be imported: No module named 'no_such_module'",
        ),
        (
            ["--runner", "tasks", "--runner.core", "stratified", "--runner.core.inner.beta", "1"],
            "unknown flag --runner.core.inner.beta: choose from --runner.core.inner.alpha, * (did you mean "
            "--runner.core.inner.theta?)",
        ),
        (
            ["--runner", "tasks", "--runner.core", "stratified", "--runner.core.inner", "lp"],
            "unknown task curriculum 'lp': choose from * (did you mean 'learning_progress'?)",
        ),
        (["--plugins", "./mine.py"], "plugin './mine.py' is not the name of a module: give it as package.module"),
    ],
)
def test_bad_flags_are_one_line_and_status_2(words, message, capsys, elsewhere):
    assert_refused(main(words), message, capsys.readouterr())
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeed: 1", "unknown setting 'seeed': choose from * (did you mean 'seed'?)"),
        ("ppo: {lr: [1]}", "ppo.lr is [1]: it must be a number"),
        ("n_seeds: 1.5", "n_seeds is 1.5: it must be an integer"),
        ("n_seeds: '2'", "n_seeds is '2': it must be an integer"),
        ("env: {name: Maze}", "unknown environment 'Maze': choose from AMaze* (did you mean 'AMaze'?)"),
        ("env:", "env is without a value: it is a group of settings, as in env.SETTING"),
        ("- seed", "config file 'bad.yaml' holds ['seed']: it must hold settings, as in 'seed: 1'"),
        ("seed: 1\nenv: {", "config file 'bad.yaml' is not YAML: line 2, column 7: *"),
        ("seed: 1\nseed: 2", "config file 'bad.yaml' is not YAML: line 1, column 1: 'seed' occurs twice"),
        ("seed: !!python/object:os.system x", "config file 'bad.yaml' is not YAML: line 1, column 7: *"),
    ],
)
def test_bad_files_are_one_line_and_status_2(text, message, capsys, elsewhere):
    (elsewhere / "bad.yaml").write_text(text)
    assert_refused(main(["--config", "bad.yaml"]), message, capsys.readouterr())


def assert_refused(status: int, message: str, printed) -> None:
    """`message` with * for anything."""
    assert status == 2
    assert printed.out == ""
    assert printed.err.endswith("\n")
    assert printed.err.count("\n") == 1
    position = len("error: ")
    assert printed.err.startswith("error: ")
    for part in message.split("*"):
        position = printed.err.index(part, position) + len(part)
    assert message.endswith("*") or position == len(printed.err) - 1


def test_a_file_that_is_not_there_is_compared_with_its_neighbours(capsys, elsewhere):
    (elsewhere / "robust_plr.yaml").write_text("seed: 1")
    (elsewhere / "latin.yaml").write_bytes(b"name: \xe9")
    assert main(["--config", "robust-plr.yaml"]) == 2
    assert "(did you mean 'robust_plr.yaml'?)" in capsys.readouterr().err
    assert main(["--config", "latin.yaml"]) == 2
    assert capsys.readouterr().err == "error: config file 'latin.yaml' cannot be read: it is not UTF-8 text\n"


@pytest.mark.parametrize(
    "words",
    [
        ("--eval.tasks", "Labyrnth"),  # checked last
        pytest.param(("--runner", "drr"), marks=pytest.mark.deep),
        pytest.param(("--env.n_walls", "500"), marks=pytest.mark.deep),
        pytest.param(("--ppo.n-minibatches=5",), marks=pytest.mark.deep),
    ],
)
def test_the_program_refuses_before_anything_is_compiled_or_written(words, elsewhere, monkeypatch):
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")  # lines on stderr for all that is traced, and all that is compiled
    finished = run(*words)
    assert finished.returncode == 2
    assert finished.stdout == ""
    # Shapes may be traced: that takes milliseconds.
    (line,) = [line for line in finished.stderr.splitlines() if not line.startswith("Finished tracing")]
    assert line.startswith("error: ")
    assert not list(elsewhere.iterdir())


def test_help_shows_every_group_with_what_is_chosen_and_its_values(elsewhere, command: Command):
    (elsewhere / "a.yaml").write_text("ppo: {lr: 0.25}")
    status, printed, errors = command("--help", "--model", "ff", "--config", "a.yaml", "--seed", "3")
    assert status == 0, errors
    text = " ".join(printed.split())
    for expected in (
        "--env NAME",
        "--runner NAME",
        "--model {lstm,gru,s5,ff",
        "--config FILE",
        "--list [configs|",
        "The students' network.",
        "--plugins",
        "--env.height INT",
        "--model.dense-width INT",
        "--runner.n-parallel INT",
        "--ppo.lr FLOAT",
        "(default: 0.25)",
        "--eval.tasks",
        "--seed INT",
        "(default: 3)",
        "Discount factor.",
    ):
        assert expected in text
    assert "memory-width" not in text


def help_of(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([*words, "--help"])
    assert stopped.value.code == 0
    return capsys.readouterr().out


CHOICES = [
    [],
    *(["--runner", name] for name in RUNNERS.names()),
    *(["--runner", "plr", "--runner.generator", name] for name in GENERATORS.names()),
    ["--runner", "tasks", "--runner.core", "stratified", "--runner.core.inner", "sfl"],
    *(["--model", name] for name in MODELS.names()),
    *(["--env", name] for name in ENVS.names()),
]


@pytest.mark.parametrize("words", CHOICES, ids=" ".join)
def test_the_help_lists_the_flags_that_are_accepted(words, capsys):
    listed = re.findall(r"^  (--[^ \n]+)", help_of(words, capsys), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    config = parse(words)
    # The flag of a choice is that of its group: --runner for runner.name.
    settings = {name: value for name, value in flat(to_dict(config)).items() if name != "name"}
    values = {name.removesuffix(".name"): value for name, value in settings.items()} | {"name": config.name}
    flags = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
    assert set(listed) == {*flags, "--help", "--list", "--config"}
    # Typed, an empty one is refused: it would be a variable that is not set.
    assert flags.pop("--init-from") == ""
    # Nor is one that has no effect beside the others.
    for name, *_ in idle_in(config):
        flags.pop(f"--{name.replace('_', '-')}", None)
    assert parse([word for flag, value in flags.items() for word in typed(flag, value)]) == config


def typed(flag: str, value) -> list[str]:
    """How a person types a flag with a value."""
    if isinstance(value, list):
        return [flag, *map(str, value)]
    return [f"{flag}={str(value).lower() if value is None or isinstance(value, bool) else value}"]


def test_every_flag_in_the_help_is_explained(capsys):
    text = help_of([], capsys)
    explained = re.findall(r"^  (--\S+).*\n((?: {8}.*\n?)+)", text, re.MULTILINE)
    assert len(explained) == len(re.findall(r"^  --", text, re.MULTILINE))
    for flag, lines in explained:
        meaning = " ".join(lines.split()).partition("(default:")[0]
        assert len(meaning.split()) > 1, flag


def test_the_help_lists_scores_and_held_out_tasks(monkeypatch, capsys):
    monkeypatch.setattr(SCORES, "_table", dict(SCORES._table))
    register_score("score_of_a_stranger", lambda experience: experience.episodes.mean[0])
    text = help_of(["--env", "Pendulum", "--runner", "plr", "--runner.generator", "teacher"], capsys)
    parts = {
        flag: " ".join(meaning.split()) for flag, meaning in re.findall(r"(?m)^  (--\S+).*\n((?: {8}.*\n?)+)", text)
    }
    for flag in ("--runner.score", "--runner.generator.score"):
        assert "max_mc" in parts[flag]
        assert "score_of_a_stranger" in parts[flag]
    assert "validation" in parts["--eval.tasks"]
    assert "WeakMotor" in parts["--eval.tasks"]
    assert "Labyrinth" not in parts["--eval.tasks"]


def listed(words: list[str], capsys) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 0
    return capsys.readouterr().out


def test_the_list_shows_every_name_with_a_line_about_it(capsys):
    text = listed(["--list"], capsys)
    rows = dict(re.findall(r"(?m)^  (\S+) {2,}(\S.*)$", text))
    for registry in (ENVS, RUNNERS, GENERATORS, MODELS, SCORES):
        for name in registry.names():
            assert rows[name], name
    for name in ("maze/dr", "gymnax/cartpole", "pendulum/plr"):
        assert name in rows
    assert "SixteenRoomsFewerDoors" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_list_of_one_kind(capsys):
    assert listed(["--list", "models"], capsys).startswith("models: --model NAME\n  lstm ")
    assert "Moon" in listed(["--list=tasks"], capsys)
    assert "maze/dr" not in listed(["--list", "tasks", "scores"], capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--list", "modles"], "unknown list 'modles': choose from configs, * (did you mean 'models'?)"),
        (["--list", "--seed", "1"], "--list stands alone or with --plugins: leave out --seed"),
        (["--list", "--list"], "--list is given twice, without a value and without a value: give it once"),
    ],
)
def test_a_list_that_cannot_be_shown(words, message, capsys):
    assert_refused(main(words), message, capsys.readouterr())


@pytest.mark.parametrize("name", ["maze/dr", "maze/dr.yaml", "pendulum/plr"])
def test_a_shipped_configuration_is_found_by_name_from_anywhere(name):
    path = ROOT / "minimax_lib" / "configs" / name
    assert parse(["--config", name]) == parse(["--config", str(path.with_suffix(".yaml"))])


def test_a_file_of_the_user_comes_before_a_shipped_one_of_its_name(elsewhere):
    (elsewhere / "maze" / "dr").mkdir(parents=True)
    assert parse(["--config", "maze/dr"]).seed == 0  # a folder is not a file
    (elsewhere / "maze" / "dr.yaml").write_text("seed: 7")
    assert parse(["--config", "maze/dr.yaml"]).seed == 7
    assert parse(["--config", "maze/dr"]).seed == 0
    (elsewhere / "maze" / "plr").write_text("seed: 8")
    assert parse(["--config", "maze/plr"]).seed == 8


def test_a_shipped_configuration_is_no_run_of_a_stranger(monkeypatch, elsewhere):
    monkeypatch.setattr("minimax_lib.config.shipped.FOLDER", elsewhere)
    (elsewhere / "mine").mkdir()
    (elsewhere / "mine" / "own.yaml").write_text("compilation_cache: none\nname: x\n")
    (elsewhere / "mine" / "checkpoints").mkdir()
    config = parse(["--config", "mine/own", "--resume"])
    assert config.compilation_cache == "none"
    assert config.run_folder == Path("runs/x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runner.replay-prob", "0.3"], "*is not a setting of dr; it belongs to plr, accel, traced, *: *"),
        (["--runner.teacher.score", "return"], "--runner.teacher is not a setting of dr; it belongs to paired: *"),
        (
            ["--model", "ff", "--model.memory-width", "8"],
            "*is not a setting of ff; it belongs to lstm, gru, s5: *--model",
        ),
        (["--env.id", "x"], "--env.id is not a setting of AMaze; it belongs to Gymnax: choose one with --env"),
        (
            ["--runner", "plr", "--runner.generator.n-levels", "8"],
            "*is not a setting of random; it belongs to finite: choose one with --runner.generator",
        ),
        (["--model.hidden", "8"], "unknown flag --model.hidden: * (did you mean --model.memory-width?)"),
        (["--hidden_size", "8"], "unknown flag --hidden-size: * (did you mean --model.memory-width?)"),
        (["--runner.gamma", "0.9"], "unknown flag --runner.gamma: * (did you mean --ppo.gamma?)"),
        (["--num-envs", "8"], "unknown flag --num-envs: * (did you mean --runner.n-parallel?)"),
        (["--runner", "paired", "--runner.teacher.learning-rate", "1"], "* (did you mean --runner.teacher.ppo.lr?)"),
        (["--n-walls", "3"], "unknown flag --n-walls: * (did you mean --env.n-walls?)"),
        (["--no-hidden"], "unknown flag --hidden: * (did you mean --model.memory-width?)"),
        (["--config", "mazee/dr"], "unknown config file 'mazee/dr': * (did you mean 'maze/dr'?)"),
        (["--config", "quickstart"], "unknown config file 'quickstart': * (did you mean 'maze/quickstart'?)"),
    ],
)
def test_a_name_from_elsewhere_is_answered_with_the_one_to_use(words, message, capsys):
    assert_refused(main(words), message, capsys.readouterr())


def test_a_setting_of_a_file_is_named_as_in_the_file(elsewhere, capsys):
    (elsewhere / "a.yaml").write_text("n_seeds: 1.5\nrunner: {replay_prob: 0.3}\n")
    assert_refused(main(["--config", "a.yaml", "--seed", "1"]), "n_seeds is 1.5: it must *", capsys.readouterr())
    message = (
        "runner.replay_prob is not a setting of dr; it belongs to plr, accel, traced, cenie, episode_plr: "
        "choose one with --runner"
    )
    assert_refused(main(["--config", "a.yaml", "--n-seeds", "1"]), message, capsys.readouterr())


def test_plugins_add_environments_models_and_runners(elsewhere, command: Command):
    (elsewhere / "mine.py").write_text(PLUGIN)
    (elsewhere / "mine.yaml").write_text("plugins: [mine]\nenv: {name: Ice, slipperiness: 0.5}\nmodel: tiny\n")
    status, printed, errors = command("--config", "mine.yaml", "--runner", "annealed", "--help")
    assert status == 0, errors
    text = " ".join(printed.split())
    for expected in (
        "--env NAME",
        "One of: AMaze, GridWorld, Pendulum, BipedalWalker, LaserTag, NMMO, Gymnax, Craftax, CraftaxTasks, Ice.",
        "--env.slipperiness FLOAT",
        "How often a step slips. (default: 0.5)",
        "(default: 8)",
        "--runner.n-stages INT",
        "(default: annealed)",
        "(default: tiny)",
    ):
        assert expected in text
    status, names, errors = command("--plugins", "mine", "--list")
    assert status == 0, errors
    assert re.search("(?m)^  Ice  +Frozen ground.$", names)
    assert re.search("(?m)^  tiny$", names)
    _, _, wrong = command("--plugins", "mine", "--env", "Icee")
    known = ", ".join((*SHIPPED_ENVS, "Ice"))
    assert wrong == f"error: unknown environment 'Icee': choose from {known} (did you mean 'Ice'?)\n"


@pytest.fixture
def experiments(monkeypatch):
    """The configurations that reach the experiment, which is not run."""
    reached = []

    class ExperimentRunner:
        def __init__(self, config, program, eval_runner):
            reached.append(config)

        def run(self):
            return 7

    module = types.SimpleNamespace(ExperimentRunner=ExperimentRunner)
    monkeypatch.setitem(sys.modules, "minimax_lib.experiment.run", module)
    return reached


def test_the_status_is_the_experiments(experiments):
    words = ["--n_updates", "3", "--eval.tasks", "TrainingDistribution"]
    assert main(words) == 7
    assert experiments == [parse(words)]


@pytest.mark.parametrize(
    ("place", "variable", "folder"),
    [
        ("auto", None, "home/minimax_lib/jax"),
        ("auto", "theirs", "theirs"),
        ("mine", "theirs", "mine"),
        ("none", "theirs", None),
    ],
)
def test_compiled_programs_are_kept_where_one_says(monkeypatch, place, variable, folder):
    updates = {}
    monkeypatch.setattr("jax.config.update", updates.__setitem__)
    monkeypatch.setenv("XDG_CACHE_HOME", "home")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", variable or "")
    keep_compiled_programs(place)
    assert updates.get("jax_compilation_cache_dir") == folder
    assert updates.get("jax_enable_compilation_cache", True) == (folder is not None)


def test_an_error_of_several_lines_is_a_bug_and_keeps_its_traceback(monkeypatch):
    def broken(config):
        raise ValueError("first\nsecond")

    monkeypatch.setattr("minimax_lib.commands.train.check", broken)
    with pytest.raises(ValueError, match="second"):
        main([])


def test_an_interruption_before_the_run_is_one_line(monkeypatch, capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr("minimax_lib.commands.train.parse", interrupted)
    assert main([]) == 130
    assert capsys.readouterr().err == "interrupted before the run began\n"


@pytest.mark.parametrize(
    ("words", "n_rows"),
    [([], 32), (["--n-devices", "auto", "--runner.n-parallel", "6", "--ppo.n-minibatches", "1"], 2)],
)
def test_a_run_is_built_once(words, n_rows, monkeypatch):
    """The checks hand on what they have built, also where they look for a number of devices: 4 and 3 of them here."""
    trained_with, built = build.trained_with, []

    def counted(*args):
        built.append(args)
        return trained_with(*args)

    monkeypatch.setattr(build, "trained_with", counted)
    monkeypatch.setattr("minimax_lib.commands.train.keep_compiled_programs", lambda place: None)
    monkeypatch.setattr(ExperimentRunner, "run", lambda self: self.program.runner.n_rows)
    assert main(words) == n_rows
    assert len(built) == 1

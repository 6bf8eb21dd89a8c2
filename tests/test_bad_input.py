"""Bad input of every kind: one line that says what is allowed, status 2, nothing written, and no long wait.

What else is refused stands beside what refuses it; here is what once passed, hung or ended in a traceback.
"""

import dataclasses
import errno
import os
import re
import signal
import sys
import time
import types
from pathlib import Path

import jax
import pytest
from toy_program import EVALUATION, toy_config, toy_program

import minimax_lib
from minimax_lib.commands import evaluate, plot, report, sweep, train
from minimax_lib.config import Config, from_dict, parse, save_yaml
from minimax_lib.config.files import MOST_BYTES, read_yaml
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.envs.base import HeldOut
from minimax_lib.envs.held_out import TrainingDistribution
from minimax_lib.envs.pendulum.pendulum import Pendulum
from minimax_lib.envs.registry import FAMILIES, make_held_out, register_env
from minimax_lib.evaluation.held_out import tasks_of_run
from minimax_lib.experiment.run import ExperimentRunner
from minimax_lib.messages import REASON, SCREEN, one_line, printable, shown
from minimax_lib.models.settings import LSTM, S5
from minimax_lib.registry import unknown_name
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.memory import check_memory

SECONDS = 2  # of processor time, from a command line that has been read to its refusal
LONG = "x" * 300
BOMB = "&a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"y{name}: &{name} [{', '.join(['*' + below] * 9)}]\n" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.fixture(autouse=True)
def bounded(tmp_path, monkeypatch):
    """An empty current folder, no training, and an end to whatever would wait for ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def never(config):
        raise AssertionError("the experiment was reached")

    monkeypatch.setitem(sys.modules, "minimax_lib.experiment.run", types.SimpleNamespace(ExperimentRunner=never))

    def too_long(*_):
        raise TimeoutError("no answer within 20 seconds")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def assert_refused(main, words, pattern: str, capsys) -> None:
    """`pattern` with * for anything."""
    before, began = set(os.listdir()), time.process_time()
    status = main(words)
    seconds = time.process_time() - began
    printed = capsys.readouterr()
    assert status == 2, printed.err
    assert printed.out == ""
    assert re.fullmatch("error: " + ".*".join(map(re.escape, pattern.split("*"))) + "\n", printed.err), printed.err
    assert len(printed.err) <= SCREEN + len("error: \n")
    assert seconds < SECONDS
    assert set(os.listdir()) - before <= {"__pycache__"}


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["--config"], "--config is without a value: it must name YAML files, as in --config maze/dr"),
        (["--config", "--seed", "1"], "--config is without a value: it must name YAML files*"),
        (["--config="], "--config is '': it must name YAML files*"),
        (["--log-dir", ""], "--log-dir is '': it must be a folder, such as runs (the current one is .)"),
        (["--log-dir=~/runs"], "--log-dir is '~/runs', where ~ does not stand for your home folder: *"),
        (["--compilation-cache=~/x"], "--compilation-cache is '~/x', where ~ does not stand for your home folder*"),
        (["--log-dir", "a\nb"], "--log-dir is 'a\\nb': it must be text without control characters"),
        (["--log-dir", LONG], "--log-dir is 'xxx*': the name of a folder must be at most 255 bytes long"),
        (["--log-dir", "x/" * 3000], "--log-dir is 'x/x*': it must be at most 4000 bytes long"),
        (["--compilation-cache="], "--compilation-cache is '': it must be auto, none, or a folder"),
        (["--compilation-cache", LONG], "--compilation-cache is 'xxx*': the name of a folder must be at most 255 *"),
        (["--name", "a\nb"], "--name is 'a\\nb': it must be text without control characters"),
        (["--name", "\x1b[31m"], "--name is '\\x1b[31m': it must be text without control characters"),
        (["--name", "a\0b"], "--name is 'a\\x00b': it must be text without control characters"),
        (["--name", "\udcff"], "--name is '\\udcff': it must be text without control characters"),
        (["--name", LONG], "--name is 'xxx*': the name of a folder must be at most 255 bytes long"),
        (["--seed", "9" * 100_000], "--seed is '999*': it must be an integer"),
        (["--" + "x" * 100_000, "1"], "unknown setting 'xxx*': choose from env, model, runner, *"),
        (["--seed" + ".x" * 3000, "1"], "--seed is {'x'*: it must be an integer"),
        (["--config", "x/" * 3000], "config file 'x/x*' cannot be read: File name too long"),
        (["--n-devices", "99"], "--n-devices is 99: there are 4 (cpu)"),
        (["--n-devices", "2147483647"], "--n-devices is 2147483647: there are 4 (cpu)"),
        (["--eval.tasks", "a\nb"], "--eval.tasks is 'a\\nb': it must be text without control characters"),
        (["--eval.every", "0", "--eval.tasks", "Labyrnth"], "unknown held-out task *(did you mean 'Labyrinth'?)"),
        (
            ["--env", "Pendulum", "--eval.protocol", "dcd"],
            "unknown option of held-out tasks 'protocol': there is *",
        ),
        (["--model.image-scale", "inf"], "--model.image-scale is inf: it must be positive and finite"),
        (["--model", "s5", "--model.dt-max", "inf"], "--model.dt-max is inf: it must be positive and finite"),
        (["--env", "Gymnax", "--env.solved", "inf"], "--env.solved is inf: it must be finite, or none"),
        (
            ["--model", "s5", "--model.state-size", "2147483644"],
            "--model.state-size is 2147483644: it must be at most *",
        ),
        (["--model", "s5", "--model.n-layers", "2147483647"], "--model.n-layers is 2147483647: it must be at most *"),
        (
            ["--env", "Pendulum", "--env.n-substeps", "2147483647"],
            "--env.n-substeps=2147483647: it must be at most 100",
        ),
        (
            ["--env", "NMMO", "--env.task-set", "stage"],
            "unknown --env.task-set 'stage': choose from *",
        ),
        (["--env", "NMMO", "--env.task-set", "a.yaml"], "--env.task-set is 'a.yaml', which does not exist"),
        (
            ["--runner", "tasks", "--runner.core", "omni", "--runner.core.interesting", "a.json"],
            "--runner.core.interesting is 'a.json', which does not exist",
        ),
        (
            ["--runner", "accel", "--runner.selection", "easy", "--runner.n-parallel", "2"],
            "runner.n_parents is 4: it must be between 1 and 2",
        ),
        (["--ppo.optimizer", "sgd"], "unknown --ppo.optimizer 'sgd': choose from adam, tiada"),
        (["--runner", "plr", "--runner.score", "pvl"], "unknown --runner.score 'pvl': choose from *"),
        (["--runner", "pll"], "unknown runner 'pll': choose from *"),
        (["--env.height", "-5"], "--env.height=-5: it must be a whole number of at least 1"),
        (["--runner", "plr", "--runner.capacity", "0"], "--runner.capacity is 0: it must be at least 1"),
        (
            ["--runner", "plr", "--runner.generator", "accel", "--runner.generator.capacity", "0"],
            "--runner.generator.capacity is 0: it must be at least 1",
        ),
        (["--runner", "plr", "--runner.replay-prob", "2"], "--runner.replay-prob is 2.0: it must be between 0 and 1"),
        (["--env.height", "1000000"], "--env.height=1000000: it must be at most 4096"),
        (["--env", "Pendulum", "--env.mass", "1"], "--env.mass is '1': it must be a list of 2 numbers"),
        (
            ["--hosts.n-processes", "2"],
            "--hosts.n-processes is 2, which is for --distributed only: add that, or leave it out",
        ),
        (
            ["--runner", "tasks", "--runner.evaluate-every", "9"],
            "--runner.evaluate-every is '9': leave it out, since runner.core asks for no evaluations",
        ),
        (
            ["--env", "LaserTag", "--env.view-front", "2147483647"],
            "--env.view-front=2147483647: it must be at most 4096",
        ),
        (["--env", "LaserTag", "--env.view-back", "2147483647"], "--env.view-back=2147483647: it must be at most 4096"),
        (
            ["--runner", "plr", "--runner.levels-per-row", "2147483647"],
            "--runner.levels-per-row is 2147483647: it must be at most 33554432",
        ),
        (
            ["--runner", "ncc", "--runner.n-new", "2147483647"],
            "--runner.n-new is 2147483647: it must be at most 1073741824",
        ),
        (
            ["--runner", "ncc", "--runner.n-episodes", "2147483647"],
            "--runner.n-episodes is 2147483647: it must be at most 10000",
        ),
        (
            ["--runner", "sfl", "--runner.n-episodes", "2147483647"],
            "--runner.n-episodes is 2147483647: it must be at most 10000",
        ),
        (
            ["--runner", "episode_plr", "--runner.n-fresh", "2147483647"],
            "--runner.n-fresh is 2147483647: it must be at most 33554432",
        ),
        (
            ["--runner", "tasks", "--runner.core", "sfl", "--runner.evaluate-episodes", "2147483647"],
            "--runner.evaluate-episodes is 2147483647: it must be at most 10000",
        ),
        (
            ["--env", "LaserTag", "--runner", "selfplay", "--runner.n-parallel", "2147483647"],
            "runner.n_opponents is 4: it must divide the 2147483647 rows (try 1)",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value)[:40],
)
def test_a_command_line_that_once_passed_or_broke(words, pattern, capsys):
    assert_refused(train.main, words, pattern, capsys)


@pytest.mark.parametrize(
    ("main", "words", "setting"),
    [
        (plot.main, ["runs/a", "--out=~/p"], "--out is '~/p'"),
        (report.main, ["runs/a", "--out=~/r.html"], "--out is '~/r.html'"),
        (evaluate.main, ["--compare", "runs/a", "runs/b", "--out=~/c.csv"], "--out is '~/c.csv'"),
        (sweep.main, ["dr", "--log-dir=~/s"], "sweep 'dr': log_dir is '~/s'"),
        (sweep.main, ["dr", "--slurm=~/s.sh"], "--slurm is '~/s.sh'"),
    ],
)
def test_nothing_is_written_into_a_folder_called_after_a_home(main, words, setting, capsys):
    """No shell puts the home folder in the place of ~ behind an equals sign."""
    assert_refused(main, words, f"{setting}, where ~ does not stand for your home folder: *", capsys)


def test_a_folder_that_is_called_so_may_be_used():
    os.mkdir("~")
    assert parse(["--log-dir=~/runs"]).log_dir == "~/runs"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("seed: 2001-99-99", "seed is '2001-99-99': it must be an integer"),
        ("seed: !!int ''", "config file 'bad.yaml' is not YAML: line 1, column 7: '' is no int"),
        ("seed: !!timestamp x", "config file 'bad.yaml' is not YAML: line 1, column 7: 'x' is no timestamp"),
        ("seed: " + "9" * 5000, "config file 'bad.yaml' is not YAML: line 1, column 7: '999*' is no int"),
        (
            "seed: 0x" + "f" * 5000,
            "seed is '0xff*ff': it must be an integer",
        ),
        ("seed: " + "x" * 40_000, "seed is 'xxx*': it must be an integer"),
        ("seed: [" + "1, " * 4000 + "]", "seed is [1, 1, *...]: it must be an integer"),
        (f"? {'x' * 40_000}\n: 1", "unknown setting 'xxx*': choose from env, *"),
        (f"x: {BOMB}seed: *i", "config file 'bad.yaml' has too many values for settings: they must be 5,000 at most"),
        ("x: &a {x: *a}", "config file 'bad.yaml' has a value that contains itself, x.x (*a): it must be written out"),
        ("".join(f"k{i}: 1\n" for i in range(30_000)), "config file 'bad.yaml' is too large: it must have 50,000*"),
        ("".join(f"k{i}: 1\n" for i in range(4000)), "config file 'bad.yaml' has too many values for settings: *"),
        ("seed: " + "[" * 3000 + "]" * 3000, "config file 'bad.yaml' is nested too deep for settings: it must be 30*"),
        ("[" * 3000, "config file 'bad.yaml' is nested too deep for settings: it must be 30 levels at most"),
        ("a: {" * 3000, "config file 'bad.yaml' is nested too deep for settings: it must be 30 levels at most"),
        ('name: "a\\nb"', "name is 'a\\nb': it must be text without control characters"),
        ('"a\\nb": 1', "unknown setting 'a\\nb': choose from env, *"),
    ],
    ids=lambda value: value[:30],
)
def test_a_file_that_once_hung_or_broke(text, pattern, capsys):
    Path("bad.yaml").write_text(text)
    assert_refused(train.main, ["--config", "bad.yaml"], pattern, capsys)


def test_a_pipe_and_a_device_are_not_read(capsys):
    os.mkfifo("pipe.yaml")
    what = "is a pipe or a device: it must be a regular file"
    assert_refused(train.main, ["--config", "pipe.yaml"], f"config file 'pipe.yaml' {what}", capsys)
    assert_refused(train.main, ["--config", "/dev/zero"], f"config file '/dev/zero' {what}", capsys)


def test_the_bounds_leave_room_for_settings():
    # Values that stand for each other are not faults, and a file may have long comments.
    Path("good.yaml").write_text(
        f"# {'x' * (MOST_BYTES - 200)}\nppo: &ppo {{lr: 1e-3}}\nrunner: {{teacher: {{ppo: *ppo}}}}\n"
    )
    assert read_yaml("good.yaml") == {"ppo": {"lr": "1e-3"}, "runner": {"teacher": {"ppo": {"lr": "1e-3"}}}}


@pytest.mark.parametrize(
    ("code", "pattern"),
    [
        ("def f(:", "SyntaxError: invalid syntax (*.py, line 1)"),
        ("\nraise RuntimeError('boom\\nand more')", "RuntimeError in line 2 of *.py: boom and more"),
        ("raise ValueError('a\\nb')", "ValueError in line 1 of *.py: a b"),
        ("import sys\nsys.exit(3)", "SystemExit in line 2 of *.py: 3"),
        ("assert False", "AssertionError in line 1 of *.py: it says no more"),
        ("raise ImportError('x' * 100_000)", "xxx*xxx"),
        ("import no_such_module_at_all", "No module named 'no_such_module_at_all'"),
    ],
)
def test_a_plugin_that_does_not_work(code, pattern, capsys, request):
    name = f"plugin_{abs(hash(request.node.name))}"
    Path(f"{name}.py").write_text(code)
    assert_refused(train.main, ["--plugins", name], f"plugin '{name}' cannot be imported: {pattern}", capsys)


def test_ctrl_c_while_a_plugin_is_imported_is_no_fault_of_the_plugin(capsys):
    Path("interrupted_plugin.py").write_text("raise KeyboardInterrupt")
    assert train.main(["--plugins", "interrupted_plugin"]) == 130
    assert capsys.readouterr().err == "interrupted before the run began\n"


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--runner", "plr", "--runner.capacity", "2147483647"], "--runner.capacity"),
        (["--model.memory-width", "2147483647"], "--model"),
        (["--runner.n-parallel", "2147483647"], "--runner.n-parallel"),
        (["--runner.n-steps", "2147483647"], "--runner.n-steps"),
        (["--n-seeds", "2147483646"], "--n-seeds"),
        (["--runner", "accel", "--runner.n-edits", "2147483647"], "--runner.n-edits"),
        (["--runner", "sfl", "--runner.n-scored", "2147483616"], "--runner.n-scored"),
        (["--runner", "plr", "--runner.generator", "sfl", "--runner.generator.n-scored", "2147483616"], "n-scored"),
        (["--eval.n-episodes", "2147483647"], "--eval.n-episodes"),
        (["--runner", "plr", "--runner.levels-per-row", "33554432"], "--runner.levels-per-row"),
        (["--runner", "ncc", "--runner.n-new", "1073741824"], "--runner.n-new"),
        (["--runner", "episode_plr", "--runner.n-fresh", "33554432"], "--runner.n-fresh"),
    ],
)
def test_what_no_machine_holds_is_refused_before_anything_is_allocated(words, setting, capsys):
    pattern = f"the run needs at least * GiB of memory, * of it for *{setting}*: it must be at most *"
    assert_refused(train.main, words, pattern, capsys)


def test_what_the_memory_just_holds_is_not_refused(monkeypatch):
    config, program, _ = train.check(parse(["--runner", "plr"]))
    monkeypatch.setattr("minimax_lib.runners.memory.least_bytes", lambda config, program: {"a": 70, "b": 30})
    for there in (100, None):
        monkeypatch.setattr("minimax_lib.runners.memory.available", lambda n, there=there: there)
        check_memory(config, program)
    monkeypatch.setattr("minimax_lib.runners.memory.available", lambda n: 99)
    with pytest.raises(ValueError, match="of it for a: "):
        check_memory(config, program)


@pytest.fixture
def run_folder():
    """The folder of a run, as far as its evaluation looks before it reads the checkpoint."""
    folder = Path("runs/x")
    (folder / "checkpoints" / "10").mkdir(parents=True)
    save_yaml(Config(), folder / "config.yaml")
    return folder


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["--n-levels", "5"], "--n-levels is '5', which is for --robust and --scores only: add one, or leave*"),
        (["--robust", "--tasks", "all"], "--tasks is 'all', which means nothing with --robust: leave one of them out"),
        (
            ["--robust", "--protocol", "dcd"],
            "--protocol is 'dcd', which means nothing with --robust: leave one of them*",
        ),
        (["--compilation-cache", ""], "--compilation-cache is '': it must be auto, none, or a folder"),
        (["--tasks", "Labyrnth"], "unknown held-out task 'Labyrnth': choose from *(did you mean 'Labyrinth'?)"),
        (["--tasks"], "--tasks is empty: it must be held-out tasks or groups of them, such as all"),
        (["--levels"], "--levels is empty: it must be files of levels, or folders of them"),
        (["--levels", "Labyrinth"], "--levels is 'Labyrinth': there is no such file (--tasks names held-out tasks)"),
    ],
)
def test_flags_of_an_evaluation_that_were_ignored(run_folder, words, pattern, capsys):
    assert_refused(evaluate.main, ["--run", str(run_folder), *words], pattern, capsys)


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["--n-episodes", "2147483647"], "--n-episodes"),
        (["--robust", "--n-levels", "2147483647"], "--n-levels"),
        (["--robust", "--n-episodes", "2147483647", "--n-levels", "1"], "--n-episodes"),
    ],
)
def test_an_evaluation_that_no_machine_holds_is_refused(run_folder, words, setting, capsys, monkeypatch):
    monkeypatch.setattr("minimax_lib.runners.memory.available", lambda n: 8 * 2**30)
    pattern = f"the evaluation needs at least * GiB of memory, * of it for *{setting}*: it must be at most 8.0, which *"
    assert_refused(evaluate.main, ["--run", str(run_folder), *words], pattern, capsys)


@pytest.mark.parametrize("run", ["", LONG, "a\nb", "x/" * 3000])
def test_what_cannot_be_the_folder_of_a_run(run, capsys):
    assert_refused(evaluate.main, ["--run", run], f"--run is {shown(run)}: *", capsys)


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("seed: 0", "seed: one", "config file 'runs/x/config.yaml': seed is 'one': it must be an integer"),
        ("n_seeds: 1", "n_seeds: [1]", "config file 'runs/x/config.yaml': n_seeds is [1]: it must be an integer"),
        (
            "seed: 0",
            "seed: 2001-99-99",
            "config file 'runs/x/config.yaml': seed is '2001-99-99': it must be an integer",
        ),
        ("name: AMaze", "name: Nope", "config file 'runs/x/config.yaml': unknown environment 'Nope': choose from *"),
    ],
)
def test_a_run_with_a_broken_configuration_is_not_evaluated(run_folder, old, new, pattern, capsys):
    text = (run_folder / "config.yaml").read_text()
    assert old in text
    (run_folder / "config.yaml").write_text(text.replace(old, new, 1))
    assert_refused(evaluate.main, ["--run", str(run_folder)], pattern, capsys)


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("n_devices: 1", "n_devices: two", "n_devices was 'two': it must be an integer, at least 1"),
        ("n_seed_devices: 1", "n_seed_devices: 0", "n_seed_devices was 0: it must be an integer, at least 1"),
        ("seed: 0", 'seed: "a\\nb"', "with another configuration: seed was a\\nb and is now 0 *"),
        ("seed: 0", f"seed: {'x' * 5000}", "with another configuration: seed was xxx*"),
        # Settings that a resumed run may change are about to be written over: not in silence.
        ("keep_checkpoints: ", "keep_checkpoints: x", "config.yaml is damaged: keep_checkpoints is 'x*"),
        ("plugins: []", "plugins: 3", "config.yaml is damaged: plugins is 3*"),
    ],
)
def test_a_run_with_a_broken_configuration_is_not_resumed(old, new, pattern, capsys, monkeypatch):
    folder = Path("runs/run")
    config = toy_config("runs", resume=True)
    folder.mkdir(parents=True)
    # Measurements and no checkpoint that keeps its configuration: as a run of an earlier version.
    (folder / "metrics.csv").write_text("update\n")
    save_yaml(dataclasses.replace(config, resume=False), folder / "config.yaml")
    text = (folder / "config.yaml").read_text()
    assert old in text
    (folder / "config.yaml").write_text(text.replace(old, new, 1))

    def main(words):
        return ExperimentRunner(config, toy_program(config), EVALUATION).run()

    assert_refused(main, [], f"cannot resume runs/run*{pattern}", capsys)


@dataclasses.dataclass(frozen=True)
class Tasks:
    """Held-out tasks of a stranger, who looks a name up only when its levels are drawn."""

    env: Pendulum
    names: tuple[str, ...]

    def sample(self, key: jax.Array, n_episodes: int):
        known = {"Easy": 0, "Hard": 1}
        keys = jax.random.split(key, (sum(known[name] >= 0 for name in self.names), n_episodes))
        return jax.vmap(jax.vmap(self.env.sample_level))(keys)


def forgetful(env, names) -> HeldOut:
    """Held-out tasks that leave out what they do not know."""
    return TrainingDistribution(env)


@pytest.mark.parametrize("held_out", [Tasks, forgetful])
def test_any_environments_unknown_task_is_refused_before_compilation(held_out, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Plugged(Pendulum):
        """An environment of a stranger."""

    monkeypatch.setattr("minimax_lib.envs.registry.FAMILIES", dict(FAMILIES))
    register_env("Plugged", Plugged, held_out=held_out, groups={"validation": ("Easy",)})
    with pytest.raises(ValueError, match=r"^unknown held-out task 'Esy': .*Easy.* \(did you mean 'Easy'\?\)$"):
        make_held_out(Plugged(), ["TrainingDistribution", "Esy"])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: make_held_out("AMaze", ["MiniMaze"]), "env is 'AMaze': it must be an environment, such as make_env"),
        (lambda: make_held_out(Pendulum, ["Nominal"]), "env is <class .*Pendulum'>: it must be an environment"),
        (lambda: make_runner("plr"), "config is 'plr': it must be a Config, such as"),
        (
            lambda: make_runner(Config(init_from="maze/dr")),
            "init_from is 'maze/dr', and make_runner reads no files: leave it out",
        ),
        (lambda: from_dict([1]), r"the configuration is \[1\]: it must be a dict of settings"),
    ],
)
def test_a_value_of_another_kind_in_python_is_one_line(call, said):
    with pytest.raises(ValueError, match=f"^{said}") as error:
        call()
    assert "\n" not in str(error.value)


def test_a_text_is_one_name_of_a_held_out_task():
    assert make_held_out(Pendulum(), "Nominal").names == ("Nominal",)
    assert tasks_of_run("Nominal", DR()) == ("Nominal",)
    with pytest.raises(ValueError, match=r"^unknown held-out task 'Nomina': .*did you mean 'Nominal'\?\)$"):
        make_held_out(Pendulum(), "Nomina")
    for names, said in (
        (3, "held-out tasks are 3: they must be a list of"),
        ([None], "a held-out task is None: it must"),
    ):
        with pytest.raises(ValueError, match=f"^{said}"):
            make_held_out(Pendulum(), names)


def test_a_task_in_no_group_is_known_to_its_environment_alone():
    assert make_held_out(Pendulum(), ["Nominal"]).names == ("Nominal",)


@pytest.mark.parametrize("make", [lambda x: LSTM(image_scale=x), lambda x: S5(dt_max=x), lambda x: S5(dt_min=x)])
def test_infinite_settings_are_refused_in_python_too(make):
    with pytest.raises(ValueError, match="positive and finite"):
        make(float("inf"))


def test_what_is_shown_of_a_value_is_bounded():
    bomb: list = []
    for _ in range(100):
        bomb = [bomb] * 9
    assert len(shown(bomb)) < 600
    assert shown("short") == "'short'"
    assert shown([1, "a"]) == "[1, 'a']"
    assert len(shown("x" * 10**6)) <= 100


def test_a_long_list_of_names_is_cut_to_the_nearest():
    names = [f"experiment_{i}" for i in range(1000)]
    message = str(unknown_name("config file", "experimnt_77", names))
    assert "choose from 1000, such as experiment_77, " in message
    assert message.endswith("(did you mean 'experiment_77'?)")
    assert len(message) < SCREEN


def test_the_message_of_an_error_is_one_line_whose_ends_are_kept():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(MemoryError()) == "MemoryError"
    text = one_line(ValueError("first " + "x " * 5000 + "last"))
    assert len(text) <= REASON
    assert text.startswith("first ")
    assert text.endswith(" last")


def test_a_printed_message_is_one_screen_without_orders_to_the_terminal():
    assert printable("seed was \x1b[2J\nand") == "seed was \\x1b[2J\\nand"
    text = printable("first " + "x" * 5000 + " last")
    assert len(text) <= SCREEN
    assert text.startswith("first ")
    assert text.endswith(" last")


@pytest.fixture
def private(monkeypatch):
    """A folder that may not be searched, as the home of another user. Simulated: root may search everything."""
    stat = Path.stat

    def refused(path, **options):
        if "private" in path.parts[:-1]:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    os.mkdir("private")


@pytest.mark.parametrize(
    ("main", "words", "path"),
    [
        (train.main, ["--resume", "--log-dir", "private", "--name", "a", "--n-devices", "auto"], "private/a/config*"),
        (train.main, ["--compilation-cache", "private/a"], "private/a"),
        (evaluate.main, ["--run", "private/a"], "private/a/config.yaml"),
        (evaluate.main, ["--run", "maze/sfl", "--levels", "private/a.npz"], "private/a.npz"),
        (plot.main, ["private/a"], "private/a"),
        (report.main, ["private/a"], "private/a"),
        (report.main, ["maze/sfl", "--out", "private/a.html"], "private/a.html"),
        (sweep.main, ["private/a.yaml"], "private/a.yaml"),
    ],
)
def test_a_folder_that_may_not_be_searched(main, words, path, private, capsys):
    assert_refused(main, words, f"*{path}: Permission denied", capsys)


def test_a_run_in_a_folder_that_may_not_be_searched(private):
    with pytest.raises(ValueError, match=r"^private/a/config\.yaml: Permission denied$"):
        minimax_lib.load_run("private/a")


def test_plugins_in_a_folder_that_has_been_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ValueError, match="the current folder, which has been deleted"):
        parse(["--plugins", "anything"])

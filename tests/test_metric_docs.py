"""Every metric and column has one line in `docs/metrics.md`, and no line is left over."""

import csv
import importlib.util
import io
from pathlib import Path

import jax
import numpy as np
import pytest
from toy_program import N_EPISODES, N_TASKS, ToyEvaluation, toy_config

from docs.make.metric_tables import EVALUATIONS, POSITION, RESULTS, TRAINING
from docs.make.metrics import COMMAND, page
from minimax_lib.config import from_dict
from minimax_lib.config.evaluate import EvaluateSettings
from minimax_lib.curricula.registry import RUNNERS
from minimax_lib.envs.registry import ENVS
from minimax_lib.evaluation.held_out import EvalResult
from minimax_lib.evaluation.robustness import RobustResult
from minimax_lib.evaluation.tables import level_scores, task_scores
from minimax_lib.experiment.loop import HeldOutEvaluation
from minimax_lib.runners.build import make_runner, mesh_of
from minimax_lib.store.evaluations import csv_text
from minimax_lib.tasks.registry import TASK_CURRICULA

DOCS = Path(__file__).parents[1] / "docs"
NETWORK = {"name": "ff", "dense_width": 8}
SMALL = {"model": NETWORK, "n_updates": 40, "runner": {"n_parallel": 4, "n_steps": 300}}
# Metrics follow from the method and, separately, from the environment: all methods on one, one method on all others.
CARTPOLE = {"name": "Gymnax", "vary": ["length=0.25:1"]}
WORLD = {"name": "Craftax", "max_steps": 8}
ENVIRONMENTS = {name: {"name": name} for name in ("AMaze", "GridWorld", "Pendulum", "BipedalWalker", "LaserTag")}
ENVIRONMENTS["NMMO"] = {"name": "NMMO", "preset": "mini_npc"}
ENVIRONMENTS |= {"Gymnax": CARTPOLE, "Craftax": WORLD, "CraftaxTasks": {"name": "CraftaxTasks", "n_worlds": 1}}
LIBRARIES = {"Gymnax": "gymnax", "Craftax": "craftax", "CraftaxTasks": "craftax"}


def shipped(registry) -> set[str]:
    """The names that this package registers; other tests register more."""
    return {name for name in registry.names() if registry[name].__module__.startswith("minimax_lib.")}


def reported(**tree) -> set[str]:
    """The metrics of a configuration, by tracing it: nothing is compiled."""
    tree = {name: SMALL.get(name, {}) | tree.get(name, {}) for name in ("model", "env", "runner")}
    runner = make_runner(from_dict(tree | {"n_updates": 40}))
    state = jax.eval_shape(runner.init, jax.random.key(0))
    return set(jax.eval_shape(runner.step, state)[1])


def lines_of(metric: str, env: str) -> list[str]:
    """The lines of the page that stand for a metric of an environment."""
    return [name for section in TRAINING if section.env in ("", env) for name in section.matches(metric)]


def assert_documented(metrics: set[str], env: str) -> set[str]:
    """The lines that stand for `metrics`: exactly one for each."""
    found = {metric: lines_of(metric, env) for metric in metrics}
    assert {metric: lines for metric, lines in found.items() if len(lines) != 1} == {}
    return {line for lines in found.values() for line in lines}


def lines(env: str) -> set[str]:
    return {name for section in TRAINING if section.env == env for name in section.metrics}


OTHERS = ("box", "selfplay", "maestro")  # these need other environments: see `boxes` and `games`


def test_every_metric_of_a_method_has_one_line():
    """The method with the most kinds of batches, as a representative of all."""
    used = assert_documented(reported(runner={"name": "accel"}), "AMaze")
    assert used & lines("") != set() != used & lines("AMaze")


@pytest.mark.deep
def test_every_metric_of_every_method_has_one_line_and_none_is_left_over():
    teacher = {"model": NETWORK}
    methods = {name: {"name": name} for name in shipped(RUNNERS)}
    methods["paired"] |= {"teacher": teacher}
    methods["tasks"] |= {"n_levels": 8, "share": "n_walls"}
    methods["tasks, evaluated"] = methods["tasks"] | {"core": {"name": "sfl"}}
    metrics = set().union(*(reported(runner=method) for name, method in methods.items() if name not in OTHERS))
    settings = {"sequential": {"stages": ("0-3", "4-7"), "conditions": ("progress >= 0.5 & episodes >= 10",)}}
    for name in shipped(TASK_CURRICULA) - {"stratified"}:  # this needs a file, and reports what is in it
        core = TASK_CURRICULA[name](**settings.get(name, {})).build(8)
        metrics |= set(jax.eval_shape(core.report, jax.eval_shape(core.init, jax.random.key(0))))
    assert assert_documented(metrics, "AMaze") | boxes() | games() | maps() == lines("") | lines("AMaze")


def games() -> set[str]:
    """The lines that need a game for two, or several agents."""
    metrics = reported(env={"name": "LaserTag"}, runner={"name": "dr"})
    for runner in ({"name": "selfplay", "scripted": 0.5}, {"name": "maestro"}):
        metrics |= reported(env={"name": "LaserTag"}, runner=runner)
    return assert_documented(metrics, "LaserTag") & lines("")


def boxes() -> set[str]:
    """The lines that only the runner box has. It needs an environment whose levels are points of a box."""
    cores = {"uniform": {}, "expanding_box": {"dimension": "mass"}}
    cores["annealing"] = {"start": ["mass=0.5"], "end": ["mass=1.5"]}
    metrics: set[str] = set()
    for name, core in cores.items():
        metrics |= reported(env={"name": "Pendulum"}, runner={"name": "box", "core": {"name": name} | core})
    lines_of_all = assert_documented(metrics, "Pendulum")
    return lines_of_all & {"tasks/point/<parameter>", "tasks/annealed", "tasks/range"}


def maps() -> set[str]:
    """The lines that need agents with tasks, for which levels are chosen too."""
    runner = {"name": "tasks", "n_steps": 8, "n_levels": 4, "levels": {"name": "sfl"}}
    metrics = reported(env=ENVIRONMENTS["NMMO"] | {"task_set": "stage_1"}, runner=runner)
    return {line for line in assert_documented(metrics, "NMMO") if line.startswith("levels/")}


@pytest.mark.deep
@pytest.mark.parametrize("env", sorted(shipped(ENVS) - {"AMaze"}))
def test_every_metric_of_every_environment_has_one_line_and_none_is_left_over(env):
    if env in LIBRARIES and not importlib.util.find_spec(LIBRARIES[env]):
        pytest.skip(f"{LIBRARIES[env]} is not installed")
    metrics = reported(env=ENVIRONMENTS[env])
    if env == "BipedalWalker":  # its resets are costly, so that DR does not describe its levels
        metrics |= reported(env=ENVIRONMENTS[env], runner={"name": "plr", "n_steps": 500})
    used = assert_documented(metrics, env)
    assert used - lines("") == lines(env) != set()


def test_a_metric_without_a_line_is_found():
    assert lines_of("level/new/n_doors", "AMaze") == lines_of("facts/upright", "AMaze") == []
    assert lines_of("student_12/return", "AMaze") == ["student_<i>/return"]


def result(shape: tuple[int, ...]) -> EvalResult:
    ones = np.ones(shape, np.float32)
    return EvalResult(returns=ones, solved=ones > 0, lengths=ones, facts={"upright": ones})


def documented(section) -> list[str]:
    return [name.replace("<fact>", "upright") for name in section.metrics]


def test_the_columns_of_eval_csv_are_those_of_the_page(tmp_path):
    config = toy_config(tmp_path)
    held_out = HeldOutEvaluation(ToyEvaluation(), config, mesh_of(config))
    rows = held_out.rows(0, result((config.n_seeds, N_TASKS, N_EPISODES)))
    assert list(rows[0]) == documented(EVALUATIONS)


def test_the_columns_of_an_evaluation_are_those_of_the_page():
    sums = dict.fromkeys(("solved_rate", "return", "length", "progress", "facts/upright", "lives"), np.ones((1, 2, 4)))
    tasks = task_scores(("Up", "Down"), (0,), result((1, 2, 3)).replace(of_agents=sums))
    levels = level_scores((1.0, 0.1), (0,), RobustResult(np.zeros((1, 50)), np.zeros((1, 50))))
    columns: dict[str, None] = {}
    for scores, robust in ((tasks, False), (levels, True)):
        text = csv_text(EvaluateSettings(run=("runs/x",), robust=robust), 10, scores)
        columns |= dict.fromkeys(next(csv.reader(io.StringIO(text))))
    assert set(columns) == set(documented(RESULTS))


def test_the_first_columns_of_metrics_csv_are_those_of_the_page():
    assert list(POSITION.metrics) == ["update", "clock", "seed", "env_steps", "seconds", "steps_per_second"]


def test_the_page_is_what_the_command_gives():
    text = (DOCS / "metrics.md").read_text()
    assert text == page(), f"run: {COMMAND}"
    assert max(map(len, text.splitlines())) <= 120

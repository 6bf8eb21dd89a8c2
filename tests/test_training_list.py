"""Evaluation on the fixed list of levels that a run is trained on."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from tiny_run import TINY, save_tiny_run

from minimax_lib.commands import draw, evaluate, report
from minimax_lib.config import Config, from_dict
from minimax_lib.config.sweep import ScoreSettings, Sweep, SweepKeys
from minimax_lib.curricula.levels.accel import ACCEL, ACCELSettings
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.plr import PLR, PLRSettings
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.grid import GridWorld
from minimax_lib.envs.grid.generators.crossings import LavaGap
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import make_held_out
from minimax_lib.envs.spaces import Box, Discrete
from minimax_lib.evaluation.held_out import Evaluation
from minimax_lib.pictures.report_episodes import newest_of, tasks_of
from minimax_lib.pictures.scores import is_of_training
from minimax_lib.sweeps.runs import SweepRun, check_of
from minimax_lib.sweeps.table import scores_of

KEY = jax.random.key(0)
FINITE = FiniteList(12)


@struct.dataclass
class Numbered:
    number: jax.Array


@dataclasses.dataclass(frozen=True)
class Line(Environment):
    """Level i has the number i in a list, and a difficulty of 0, `step` or 2 `step`."""

    step_by: float = 1.0
    max_steps: int = 3
    observation_space = Box(0, 1, (1,))
    action_space = Discrete(2)

    def sample_level(self, key):
        return Numbered(number=jnp.full((), -1, jnp.int32))

    def sample_listed(self, key, number):
        return Numbered(number=number)

    def reset(self, key, level):
        return level, opening(jnp.zeros(1))

    def step(self, key, state, action):
        return state, transition(jnp.zeros(1), 1.0, jnp.ones((), bool), jnp.zeros((), bool))

    def get_level(self, state):
        return state

    def level_metrics(self, level):
        return {"difficulty": self.step_by * (level.number % 3).astype(jnp.float32)}


def test_a_list_is_a_task_for_each_difficulty():
    suite = make_held_out(Line(2.0), ["TrainingList8"])
    assert suite.names == ("TrainingList8-0", "TrainingList8-2", "TrainingList8-4")
    numbers = suite.sample(KEY, 60).number
    assert [sorted(set(row)) for row in numbers.tolist()] == [[0, 3, 6], [1, 4, 7], [2, 5]]
    alone = make_held_out(Line(2.0), ["TrainingDistribution", "TrainingList8-2"])
    assert alone.names == ("TrainingDistribution", "TrainingList8-2")
    np.testing.assert_array_equal(alone.sample(KEY, 60).number[1], numbers[1])  # whatever is evaluated beside it
    assert make_held_out(Line(0.5), ["TrainingList8"]).names == ("TrainingList8",)  # these are not labels
    assert make_held_out(Line(), ["TrainingList1"]).names == ("TrainingList1",)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("env", "other"),
    [
        pytest.param(GridWorld(LavaGap(5)), "LavaGap6", marks=pytest.mark.deep),
        (AMaze(height=3, width=3, n_walls=2), "MiniMaze"),
    ],
)
def test_levels_of_a_list_are_padded_to_those_of_other_tasks(env, other):
    suite = make_held_out(env, [other, "TrainingList3"])
    assert suite.names == (other, "TrainingList3")

    def drawn(key):
        levels, listed = suite.sample(key, 40), jax.vmap(lambda i: level_of_list(env, i))(jnp.arange(3))
        return jax.tree.map(lambda x: x[1], levels), listed

    levels, listed = jax.tree.map(np.asarray, jax.jit(drawn)(KEY))
    cells, expected = (levels.grid, listed.grid) if other == "LavaGap6" else (levels.maze.wall_map, listed.wall_map)
    h, w = expected.shape[1:]
    assert cells.shape[1] > h
    known = {one.tobytes() for one in expected}
    assert {np.ascontiguousarray(one[:h, :w]).tobytes() for one in cells} == known


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("TrainingList0", "a list must have at least 1"),
        (
            "TrainingList8-5",
            "'TrainingList8-5': the levels of this list are called TrainingList8-0, TrainingList8-1",
        ),
        ("TrainingLists8", "unknown held-out task 'TrainingLists8'"),
        ("training_list", "the list of levels of a run: here, name its length, such as TrainingList4000"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        make_held_out(Line(), [name])


def test_a_run_knows_the_length_of_its_list():
    asked = Evaluation(tasks=("TrainingDistribution", "training_list"))
    env = AMaze(height=3, width=3, n_walls=2)
    listed = (TasksMethod(n_levels=12), PLR(generator=FINITE), PLR(generator=PLRSettings(generator=FINITE)))
    for runner in listed:
        assert Config(env=env, runner=runner, eval=asked).eval.tasks[1] == "TrainingList12"
    for runner in (
        PLR(),
        ACCEL(generator=PLRSettings(generator=FINITE)),
        PLR(generator=ACCELSettings(generator=PLRSettings(generator=FINITE))),
    ):
        with pytest.raises(
            ValueError, match=r"'training_list' is the list of levels of --runner tasks or --runner.gen"
        ):
            Config(env=env, runner=runner, eval=asked)


def test_a_run_without_a_list_is_not_evaluated_on_it(tmp_path, capsys):
    save_tiny_run(tmp_path / "dr")
    (tmp_path / "dr" / "metrics.csv").write_text("update,seed,loss\n4,0,0.5\n")
    path = str(tmp_path / "dr")
    for command in (evaluate.main, draw.main):
        assert command(["--run", path, "--tasks", "training_list"]) == 2
        assert "'training_list' is the list of levels of --runner tasks" in capsys.readouterr().err
    assert report.main([path, "--tasks", "training_list"]) == 2
    assert "'training_list' is the list of levels of --runner tasks" in capsys.readouterr().err


@pytest.fixture(scope="module")
def listed_run(tmp_path_factory):
    """The folder of a run that replays levels of a list of 6."""
    folder = tmp_path_factory.mktemp("runs") / "listed"
    save_tiny_run(folder, {"name": "plr", "generator": {"name": "finite", "n_levels": 6}})
    (folder / "metrics.csv").write_text("update,seed,loss\n4,0,0.5\n")
    return folder


@pytest.mark.deep
def test_episodes_on_the_list_are_drawn_by_its_short_name(listed_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert draw.main([str(listed_run), "--what", "episodes", "--tasks", "training_list"]) == 0
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 1


@pytest.mark.deep
def test_a_report_knows_the_list_by_its_short_name(listed_run):
    settings, groups = report.prepared([str(listed_run), "--tasks", "training_list"])
    assert tasks_of(newest_of(groups[0], settings.plugins), settings.tasks) == ("TrainingList6",)


def test_trials_of_a_sweep_are_sorted_by_their_own_list(tmp_path):
    trial = TINY | {"runner": {"name": "tasks", "n_levels": 6}, "eval": {"tasks": ["training_list"]}}
    keys = SweepKeys(score=ScoreSettings(tasks=("training_list",)))
    check = check_of(Sweep(keys, {}, {}, {}, {}))
    config = from_dict(trial)
    check(config)
    run = SweepRun(1, "", {}, config, {}, tmp_path)
    run.folder.path.mkdir()
    run.folder.evaluations.write_text(
        "update,seed,task,solved_rate\n4,0,TrainingList6,0.25\n4,0,TrainingDistribution,1\n"
    )
    assert scores_of(run, keys.score) == {4: (0.25,)}
    with pytest.raises(
        ValueError, match=r"eval.tasks is TrainingDistribution, without TrainingList6, which score.tasks"
    ):
        check(from_dict(trial | {"eval": {"tasks": ["TrainingDistribution"]}}))


def test_it_is_no_held_out_task_for_figures():
    assert [is_of_training(name) for name in ("TrainingList30-1", "TrainingDistribution", "Labyrinth")] == [1, 1, 0]

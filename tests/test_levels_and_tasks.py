"""A curriculum over levels beside one over the tasks of agents: a plain account of who is told what, and refusals."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_agent_tasks import FOUR, KEY, trained

from minimax_lib.curricula.tasks.levels_and_tasks import LevelsAndTasks
from minimax_lib.curricula.tasks.listed import listed_levels
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.playing.episodes import Played
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.tasks.registry import LearningProgressSettings, ListedPLRSettings, TSCLSettings
from minimax_lib.tasks.uniform import Uniform
from minimax_lib.testing.curricula import check_curriculum
from tests.islands import Islands, Walk
from tests.still_agent import still_agent

N_ROWS, N_STEPS, N_LEVELS, N_AGENTS = 3, 10, 5, 4


@dataclasses.dataclass(frozen=True)
class Counting(Uniform):
    """Counts for each task: how often it was begun, attempts that have ended, steps in them, and successes."""

    def init(self, key):
        return jnp.zeros((4, self.n_tasks), jnp.int32)

    def started(self, state, tasks, valid):
        return state.at[0, tasks].add(valid.astype(jnp.int32))

    def update(self, state, results):
        valid = results.valid.astype(jnp.int32)
        solved = valid * (results.progress >= 1)
        return (
            state.at[1, results.task]
            .add(valid)
            .at[2, results.task]
            .add(valid * results.length)
            .at[3, results.task]
            .add(solved)
        )


class Hears(LevelsAndTasks):
    """Keeps what has been played in the step that is compiled now."""

    told: ClassVar[list] = []

    def observe(self, key, clock, state, batch, outcome):
        self.told.append((batch.queue, outcome.runs.steps))
        return super().observe(key, clock, state, batch, outcome)


def test_a_level_is_told_of_the_lives_of_all_agents_of_its_worlds():
    """Both cores count. A plain loop over the rows counts too, by levels and by tasks."""
    runner = trained(FOUR, n_levels=N_LEVELS, levels=TSCLSettings())
    both = runner.curriculum
    levels, tasks = (dataclasses.replace(x, core=Counting(x.core.n_tasks)) for x in (both.levels, both.tasks))
    runner = dataclasses.replace(runner, curriculum=Hears(levels, tasks))
    table, _ = listed_levels(FOUR, N_LEVELS)

    def played(state):
        state, metrics = runner.step(state)
        return *Hears.told.pop(), state, metrics

    state, step = jax.jit(runner.init)(KEY), jax.jit(played)
    counted = np.zeros((4, N_LEVELS), int), np.zeros((4, FOUR.n_tasks), int)
    alive, length = np.ones((N_ROWS, N_AGENTS), bool), np.zeros((N_ROWS, N_AGENTS), int)
    start = jax.device_get(state.curriculum)
    np.add.at(counted[0][0], start.levels.current, 1)
    np.add.at(counted[1][0], start.tasks.current, 1)
    for _ in range(4):
        queue, steps, state, metrics = jax.device_get(step(state))
        place = np.zeros(N_ROWS, int)
        for t in range(N_STEPS):
            for b in range(N_ROWS):
                level, goals = queue.numbers[b, place[b]], queue.tasks[b, place[b]]
                for g in range(N_AGENTS):
                    row = N_AGENTS * b + g
                    if not alive[b, g]:
                        continue
                    where, goal, _ = steps.obs[t, 0, row]
                    assert goal == goals[g]
                    if not length[b, g]:
                        assert where == table[level][g, 0]  # where agent g begins on this level
                    length[b, g] += 1
                    if steps.done[t, 0, row]:
                        alive[b, g] = False
                        solved = steps.progress[t, 0, row] >= 1
                        for count, number in zip(counted, (level, goals[g]), strict=True):
                            count[1:, number] += (1, length[b, g], solved)
                if not alive[b].any():
                    alive[b], length[b], place[b] = True, 0, place[b] + 1
                    counted[0][0, queue.numbers[b, place[b]]] += 1
                    np.add.at(counted[1][0], queue.tasks[b, place[b]], 1)
        np.testing.assert_array_equal(state.curriculum.levels.core, counted[0])
        np.testing.assert_array_equal(state.curriculum.tasks.core, counted[1])
        np.testing.assert_array_equal(state.curriculum.levels.current, queue.numbers[range(N_ROWS), place])
        np.testing.assert_array_equal(state.curriculum.tasks.current, queue.tasks[range(N_ROWS), place].ravel())
    assert counted[0][1].sum() == counted[1][1].sum() > 20
    assert {"levels/tasks/effective", "tasks/effective"} <= set(metrics)
    assert not any(name.startswith("levels/level/") for name in metrics)


@pytest.mark.deep
@pytest.mark.parametrize("task_of", ["agent", "world"])
def test_it_conforms_with_scores_and_evaluations_of_both(task_of):
    """With a core that reads scores beside one that is evaluated, in either place."""
    for core, levels in (
        (ListedPLRSettings(), LearningProgressSettings()),
        (LearningProgressSettings(), ListedPLRSettings()),
    ):
        runner = trained(FOUR, n_levels=N_LEVELS, core=core, levels=levels, task_of=task_of, evaluate_every=2)
        check_curriculum(runner.curriculum, FOUR, key=KEY)
        state, step = jax.jit(runner.init)(KEY), jax.jit(runner.step)
        for _ in range(3):
            state, metrics = step(state)
        evaluated = "levels/evaluation/rate" if core == ListedPLRSettings() else "evaluation/rate"
        assert 0 <= float(metrics[evaluated]) <= 1
        steps = int(runner.curriculum.extra_env_steps(state.curriculum).number())
        assert steps > 0


@pytest.mark.parametrize("rate", ["solved", "best"])
def test_a_level_is_rated_by_all_of_its_agents_or_by_the_best_one(rate):
    """Two worlds on each of three levels, four agents: by plain loops."""
    rng = np.random.default_rng(2)
    progress = rng.choice([0.0, 0.3, 1.0], (1, 3, 2 * N_AGENTS), p=[0.6, 0.3, 0.1]).astype(np.float32)
    none = np.zeros_like(progress)
    core, settings = LearningProgressSettings(), {"task_of": "level", "level_rate": rate, "evaluate_episodes": 2}
    evaluation = trained(FOUR, n_levels=3, core=core, **settings).curriculum.evaluation
    found = evaluation._rates(Played(returns=none, lengths=none, progress=progress, facts={}))
    for level in range(3):
        worlds = [progress[0, level, i * N_AGENTS : (i + 1) * N_AGENTS].tolist() for i in range(2)]
        each = [max(world) if rate == "best" else sum(p == 1 for p in world) / N_AGENTS for world in worlds]
        assert float(found[level]) == pytest.approx(sum(each) / 2, abs=1e-6)


@pytest.mark.parametrize(("env", "sentence"), [(FOUR, "no level is chosen here"), (Walk(), "Walk has one agent")])
def test_a_best_agent_that_means_nothing_is_refused(env, sentence):
    with pytest.raises(ValueError, match=f"runner.level_rate is best: it must be solved, since {sentence}"):
        trained(env, n_levels=N_LEVELS, level_rate="best")


@pytest.mark.parametrize("settings", [{"task_of": "level"}, {"levels": TSCLSettings()}])
def test_a_best_agent_is_refused_where_no_rate_is_read(settings):
    with pytest.raises(ValueError, match=r"runner.level_rate is best: .* since (plr|tscl) reads no rates of success"):
        trained(FOUR, n_levels=N_LEVELS, level_rate="best", **settings)


@pytest.mark.deep
def test_on_four_devices_all_know_the_results_of_all_levels():
    settings = TasksMethod(n_parallel=8, n_steps=10, n_levels=8, levels=TSCLSettings()).per_device(4)
    program = DeviceRunner(trained_with(FOUR, still_agent(FOUR), settings), 1, DeviceMesh(n_rows=4))
    state, _ = program.run(program.init(0), 4)
    both = state.curriculum
    for leaf in jax.tree.leaves((both.levels.core, both.tasks.core)):
        each = np.asarray(leaf)[0]
        np.testing.assert_array_equal(each, np.broadcast_to(each[0], each.shape))
    levels, tasks = (np.asarray(x.current)[0] for x in (both.levels, both.tasks))
    assert len({tuple(own) for own in levels}) > 1  # each device has drawn its own levels and tasks
    assert len({tuple(own) for own in tasks}) == 4


def test_by_default_levels_have_the_same_chance_and_nothing_is_kept_of_them():
    assert not isinstance(trained(FOUR, n_levels=N_LEVELS).curriculum, LevelsAndTasks)


@pytest.mark.parametrize(("env", "task_of"), [(FOUR, "level"), (Islands(), "agent")])
def test_where_levels_are_what_is_drawn_there_is_no_second_curriculum(env, task_of):
    with pytest.raises(ValueError, match=r"runner.levels is tscl: it must be uniform, since levels are what"):
        trained(env, n_levels=N_LEVELS, levels=TSCLSettings(), task_of=task_of)


def test_all_devices_have_the_whole_list_of_levels():
    assert TasksMethod(n_parallel=8, n_levels=8).per_device(4).n_levels == 2
    assert TasksMethod(n_parallel=8, n_levels=8, levels=TSCLSettings()).per_device(4).n_levels == 8

"""A task for each agent: a plain account of who is on what, one agent is the list of tasks, devices, refusals."""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.curricula.base import Attempts
from minimax_lib.curricula.tasks.agents import AgentTasks
from minimax_lib.curricula.tasks.evaluation import LifeEvaluation, TaskEvaluation
from minimax_lib.curricula.tasks.listed import listed_levels
from minimax_lib.curricula.tasks.settings import TasksMethod
from minimax_lib.evaluation.held_out import of_lives
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.episodes import Played
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.devices import DeviceMesh, DeviceRunner
from minimax_lib.tasks.registry import LearningProgressSettings
from minimax_lib.testing.envs import check_multi_agent
from tests.islands import Islands, IslandsWithGoals, Walk
from tests.still_agent import still_agent

KEY = jax.random.key(3)
FOUR = IslandsWithGoals()


@dataclasses.dataclass(frozen=True)
class FromTheMiddle(Walk):
    """Level number i of the list has goal i. All levels begin in the middle."""

    def sample_level(self, key):
        return super().sample_level(key).at[0].set(3)

    def sample_listed(self, key, number):
        return jnp.stack([jnp.int32(3), number.astype(jnp.int32)])


def test_evaluations_cost_a_fifth_of_the_training_at_most():
    """A life of the whole horizon is the longest. A step that is learnt from costs as much as 5.5 that are played."""
    core = LearningProgressSettings()
    for n_steps, episodes, given in ((10, 4, None), (1, 100, None), (1, 100, 3), (10, 4, 1)):
        settings = TasksMethod(n_steps=n_steps, core=core, evaluate_episodes=episodes, evaluate_every=given)
        every = settings._evaluation(FOUR, FOUR.n_tasks, 3, 2).every
        evaluated = FOUR.n_tasks * episodes * FOUR.max_steps
        learnt = 3 * FOUR.n_agents * n_steps
        if given:
            assert every == given
        else:
            assert evaluated <= 1.1 * learnt * every
            assert every == 25 or evaluated > 1.1 * learnt * (every - 1)
    of_levels = TasksMethod(n_steps=1, core=core, task_of="level")._evaluation(FOUR, 100, 3, 2)
    assert (type(of_levels), of_levels.measured) == (TaskEvaluation, tuple(range(100)))
    evaluated, learnt = 100 * 4 * FOUR.n_agents * FOUR.max_steps, 3 * FOUR.n_agents
    assert 1.1 * learnt * (of_levels.every - 1) < evaluated <= 1.1 * learnt * of_levels.every
    alone = TasksMethod(core=core)._evaluation(Islands(), 7, 3, 2)
    assert (type(alone), alone.every) == (TaskEvaluation, 25)


def trained(env, **settings):
    return trained_with(env, still_agent(env), TasksMethod(n_parallel=3, n_steps=10, **settings))


@pytest.mark.deep
def test_environments_conform():
    assert FOUR.with_tasks is not None
    assert Islands().with_tasks is None
    check_multi_agent(FOUR, KEY, 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda level, tasks: level.astype(jnp.float32), "the level with other tasks"),
        pytest.param(
            lambda level, tasks: level.at[:, 1].max(tasks),
            "keeps something of the tasks that were there before",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            lambda level, tasks: level.at[:, 1].set(0),
            "the same level of task 0 and of the last one",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_each_fault_of_an_environment_is_found(change, sentence):
    broken = type("Broken", (IslandsWithGoals,), {"with_tasks": lambda self, *of: change(*of)})
    with pytest.raises(AssertionError, match=sentence):
        check_multi_agent(broken(), KEY, 2)


@pytest.mark.parametrize(
    "task_of", ["agent", *(pytest.param(name, marks=pytest.mark.deep) for name in ("world", "level"))]
)
def test_each_agent_has_its_task_until_nobody_lives(task_of):
    """The goal that an agent sees is its task, and its result is that of its life. All of a world may share a task.

    Where levels are drawn, the task that is told is the level, and the goals are those that the list gives it.
    """
    n_rows, n_steps = 3, 10
    runner = trained(FOUR, n_levels=5, task_of=task_of)
    state, step = jax.jit(runner.init)(KEY), jax.jit(lambda state: told_and_played(runner, state))
    table, _ = listed_levels(FOUR, 5)
    alive, length = np.ones((n_rows, 4), bool), np.zeros((n_rows, 4), int)
    seen = set()
    for _ in range(4):
        queue, steps, results, (state, _) = jax.device_get(step(state))
        place = np.zeros(n_rows, int)
        for t in range(n_steps):
            for b in range(n_rows):
                level = queue.numbers[b, place[b]]
                goals = table[level][:, 1] if task_of == "level" else queue.tasks[b, place[b]]
                tasks = np.full(4, level) if task_of == "level" else goals
                seen.add(tuple(tasks))
                for g in range(4):
                    row = 4 * b + g
                    assert results.task[t, row] == tasks[g]
                    assert steps.valid[t, 0, row] == alive[b, g]
                    if alive[b, g]:
                        assert steps.obs[t, 0, row, 1] == goals[g]
                        length[b, g] += 1
                    assert results.valid[t, row] == steps.done[t, 0, row]
                    if steps.done[t, 0, row]:
                        assert results.length[t, row] == length[b, g]
                        alive[b, g] = False
                if not alive[b].any():
                    alive[b], length[b] = True, 0
                    place[b] += 1
        now = (queue.numbers[..., None] if task_of == "level" else queue.tasks)[range(n_rows), place]
        np.testing.assert_array_equal(state.curriculum.current, now.ravel() if task_of == "agent" else now[:, 0])
    # Agents that live together have different tasks, or all the same.
    assert any(len(set(tasks)) > 1 for tasks in seen) == (task_of == "agent")
    assert len(seen) > 3


class Hears:
    """Keeps what it is told in the step that is compiled now."""

    told: ClassVar[list[Any]] = []

    def observe(self, key, clock, state, batch, outcome):
        results, _ = self.scoring.results(outcome.steps(self.score), state.unfinished)
        self.told.append((batch.queue, outcome.runs.steps, results))
        return super().observe(key, clock, state, batch, outcome)


def told_and_played(runner, state):
    """(the queue, the steps, the results that the curriculum is told, what `step` gives) of a step of the runner."""
    tasks = runner.curriculum
    heard_class = type("Heard", (Hears, type(tasks)), {})
    heard = heard_class(**{field.name: getattr(tasks, field.name) for field in dataclasses.fields(tasks)})
    after = dataclasses.replace(runner, curriculum=heard).step(state)
    return *Hears.told.pop(), after


@pytest.mark.deep
def test_one_agent_draws_tasks_as_from_a_list():
    island = FromTheMiddle()
    several = trained(IslandsWithGoals(island=island, n_agents=1), n_levels=3)
    listed = trained(island, n_levels=7)
    assert type(several.curriculum) is AgentTasks
    one, other = jax.jit(several.init)(KEY), jax.jit(listed.init)(KEY)
    step, other_step = jax.jit(several.step), jax.jit(listed.step)
    for _ in range(3):
        (one, _), (other, told) = step(one), other_step(other)
        np.testing.assert_array_equal(one.curriculum.current, other.curriculum.current)
        for x, y in zip(jax.tree.leaves(one.curriculum.core), jax.tree.leaves(other.curriculum.core), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    assert np.isfinite(told["loss"])
    weights = jax.jit(several.curriculum.core.weights)(one.curriculum.core)
    assert weights.shape == (7,)
    assert float(weights.max()) > 1.2 / 7  # it has learnt something about tasks


@pytest.mark.deep
def test_an_evaluation_fills_worlds_with_different_tasks_and_finds_the_rates_of_single_agents():
    """Agents that do not meet solve a task as often as a single one does: of n lives, within four standard errors."""
    island, n = FromTheMiddle(max_steps=5), 200
    settings = {"core": LearningProgressSettings(), "evaluate_episodes": n}
    rates = []
    for env, n_levels in ((IslandsWithGoals(island=island), 2), (island, 7)):
        runner = trained(env, n_levels=n_levels, **settings)
        rate, steps = first_rates(runner, KEY)
        assert n * 7 <= int(steps) <= n * 7 * 5 * 1.1  # n lives of at most 5 steps on each task, and few to fill up
        rates.append(np.asarray(rate))
    several, alone = rates
    error = np.sqrt(alone * (1 - alone) / n * 2)
    assert (np.abs(several - alone) <= 4 * error + 1e-6).all()
    assert alone.max() - alone.min() > 0.3


@functools.partial(jax.jit, static_argnums=0)
def first_rates(runner, key):
    """How often the students solve each task before they have learnt anything."""
    tasks, students = runner.curriculum, runner.students(runner.init(key))
    rates, steps = tasks.evaluation.rates(key, tasks._measured(), students)
    return rates, steps


def test_lives_on_different_tasks_share_a_world():
    evaluation = LifeEvaluation(1, 5, tuple(range(7)), 2, FOUR)
    tasks = evaluation._tasks_of_worlds()
    assert tasks.shape == (1, 5, 2, 4)  # 35 lives in chunks of two worlds of four agents
    assert np.bincount(tasks.ravel()).min() >= 5
    for world in tasks.reshape(-1, 4):
        assert len(set(world)) == 4
    seats = [
        {int(np.where(world == task)[0][0]) for world in tasks.reshape(-1, 4) if task in world} for task in range(7)
    ]
    assert min(map(len, seats)) >= 2  # a task is tried from several seats


class SolveEven:
    """Students that solve the tasks with an even number. A call of theirs takes one step."""

    def attempts(self, key, levels, n_episodes):
        solved = levels[..., 1] % 2 == 0
        return Attempts(Played((), (), solved[None].astype(jnp.float32), {}), jnp.uint32(1))


def test_rates_are_shares_of_all_lives_also_of_those_that_fill_up_the_last_world():
    evaluation = LifeEvaluation(1, 5, tuple(range(7)), 2, FOUR)
    table = jax.vmap(FOUR.sample_level)(jax.random.split(KEY, 3))
    rates, n_steps = jax.jit(lambda: evaluation.rates(KEY, table, SolveEven()))()
    assert (rates.tolist(), n_steps) == ([1, 0, 1, 0, 1, 0, 1], 5)  # chunks


def test_rates_are_means_over_the_students_and_their_episodes():
    """Two students on two tasks; then as worlds of two agents, of whom the better one counts."""
    progress = np.array([[[1, 1], [1, 0]], [[0, 0.5], [0, 0.5]]], np.float32)
    for best_of, expected in ((1, [2 / 4, 1 / 4]), (2, [(1 + 0.5) / 2, (1 + 0.5) / 2])):
        evaluation = TaskEvaluation(1, 2, (0, 1), 2, best_of=best_of)
        np.testing.assert_allclose(evaluation._rates(Played((), (), jnp.asarray(progress), {})), expected)


@pytest.mark.parametrize(("counted", "returns", "solved"), [("all", [2, 4], [0.5, 0]), ("best", [3, 8], [1, 0])])
def test_a_world_is_as_long_as_its_longest_life(counted, returns, solved):
    """Two worlds of two agents; one of the four has solved its task."""
    numbers = np.array([[[1, 3], [8, 0]]], np.float32)
    lives = Played(jnp.asarray(numbers), jnp.asarray(numbers, jnp.int32), jnp.asarray(numbers == 3, jnp.float32), {})
    found = of_lives(SimpleNamespace(counted=counted), lives.replace(facts={"fed": lives.returns}))
    assert (found.returns.tolist(), found.solved.tolist()) == (returns, solved)
    assert (found.lengths.tolist(), found.facts["fed"].tolist()) == ([3, 8], [2, 4])


def test_where_all_agents_of_a_world_are_drawn_one_task_they_are_measured_on_one():
    for n_episodes, n_worlds in ((2, 7), (5, 14)):  # a world of four agents has four lives on its task
        tasks = LifeEvaluation(1, n_episodes, tuple(range(7)), 2, FOUR, in_common=True)._tasks_of_worlds()
        assert tasks.shape == (1, n_worlds // 2 + n_worlds % 2, 2, 4)  # the last of 7 worlds is filled up with one more
        assert (tasks == tasks[..., :1]).all()
        assert np.bincount(tasks.ravel()).min() >= n_episodes
    tasks = trained(FOUR, core=LearningProgressSettings(), task_of="world", n_levels=3).curriculum
    assert tasks.evaluation.in_common
    assert not trained(FOUR, core=LearningProgressSettings(), n_levels=3).curriculum.evaluation.in_common


@pytest.mark.deep
def test_on_four_devices_all_know_the_results_of_all():
    settings = TasksMethod(n_parallel=8, n_steps=10, n_levels=8).per_device(4)
    assert settings.n_levels == 2
    network = FeedForward(dense_width=8, head_width=8).build(FOUR.observation_space, FOUR.action_space)
    agent = AgentPop(PPOAgent(network, PPO(n_epochs=1), 10), 1)
    program = DeviceRunner(trained_with(FOUR, agent, settings), 1, DeviceMesh(n_rows=4))
    state, _ = program.run(program.init(0), 4)
    scores, current = (np.asarray(x)[0] for x in (state.curriculum.core.scores, state.curriculum.current))
    assert np.isfinite(scores).all()
    assert (scores == scores[0]).all()
    assert scores[0].any()
    assert len({tuple(tasks) for tasks in current}) == 4  # each device has drawn its own tasks


def test_what_means_nothing_is_refused():
    with pytest.raises(ValueError, match=r"unknown runner.share 'walls': there is none to choose from"):
        trained(FOUR, share="walls")
    named = type("Named", (IslandsWithGoals,), {"level_metrics": lambda self, level: {"walls": jnp.float32(0)}})
    with pytest.raises(ValueError, match=r"runner.share is 'walls': it must be empty, as the tasks of Named belong"):
        trained(named(), share="walls")
    with pytest.raises(ValueError, match=r"runner.task_of is world: the agents of Islands have no own tasks"):
        trained(Islands(), n_levels=3, task_of="world")

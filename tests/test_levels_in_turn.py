"""Rows that play several levels in turn: what belongs to which level, in every curriculum that restarts levels."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula.base import Plan, level_batch
from minimax_lib.curricula.levels.accel import ACCEL, ACCELCurriculum
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.sfl import SFLMethod
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import SCORES, over_agents
from minimax_lib.envs.base import sample_levels
from minimax_lib.envs.lasertag.lasertag import LaserTag
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.returns import Layout, in_time
from minimax_lib.playing.rollout import Rollout, Transition
from minimax_lib.playing.students import CurrentStudents, batch_for
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.runners.training import mean_regret
from minimax_lib.testing.curricula import small_agent
from tests.probes import MAX_LENGTH, N_ACTIONS, Probe

GAME = LaserTag(height=4, width=4, min_side=3, max_steps=8)
MAZE = AMaze(height=4, width=4, n_walls=3, max_steps=8)
ROWS = {"n_parallel": 4, "n_steps": 16, "levels_per_row": 3}
BUFFER = {"capacity": 32, "min_fill": 0.25}
DESIGN, TINY = MazeDesign(n_walls=3), FeedForward(conv_filters=2, dense_width=8, head_width=4)
RUNNERS = {
    "plr": PLR(**ROWS, **BUFFER, robust=False),
    "robust plr": PLR(**ROWS, **BUFFER),
    "parallel plr": PLR(**ROWS, **BUFFER, parallel=True),
    "accel": ACCEL(**ROWS, **BUFFER, generator=PLR().generator, n_parents=12, selection="easy"),
    "parallel accel": ACCEL(**ROWS, **BUFFER, generator=PLR().generator, parallel=True),
    "sfl": SFLMethod(**ROWS, n_scored=12, n_kept=6, n_episodes=2, every=2),
    "adversary": PAIRED(**ROWS, n_students=1, teacher=Teacher("neg_return", DESIGN, TINY)),
    "paired": PAIRED(**ROWS, teacher=Teacher(design=DESIGN, model=TINY)),
    "population paired": PAIRED(**ROWS, n_students=3, teacher=Teacher("population_regret", DESIGN, TINY)),
}
N_STEPS, IN_TURN, N_ROWS = 50, 3, 4


def played(levels, levels_per_row, n_students=2, n_steps=N_STEPS, env=MAZE):
    """The outcome of students on levels, some episodes on each."""
    agent = small_agent(env, n_students)
    n = jax.tree.leaves(levels)[0].shape[0]
    rows = batch_for(env, agent, Plan(n), levels_per_row=levels_per_row)
    obs = rows.one_obs(jax.random.key(0), jax.tree.map(lambda x: x[0], levels))
    params = agent.init(jax.random.key(1), obs).params
    return CurrentStudents(rows, agent, params, n_steps, levels_per_row=levels_per_row).play(
        jax.random.key(2), level_batch(levels)
    )


def episodes_of(steps, max_steps):
    """({(student, level): [(first step, last step, row)]} of the episodes that count, how many ended on each level).

    By a walk along each row. The first on a level counts, if it began so early that it was sure to end.
    """
    found = {(a, level): [] for a in range(2) for level in range(N_ROWS * IN_TURN)}
    visits = dict.fromkeys(found, 0)
    for a in range(2):
        for row in range(N_ROWS):
            place, began = 0, 0
            for t in range(len(steps.done)):
                if steps.done[t, a, row]:
                    key = a, row * IN_TURN + place
                    if visits[key] == 0 and began + max_steps <= len(steps.done):
                        found[key].append((began, t, row))
                    visits[key] += 1
                    place, began = (place + 1) % IN_TURN, t + 1
    return found, visits


@pytest.mark.parametrize(
    ("max_steps", "counts"), [(3, [1, 1, 1, 1, 0, 0]), (4, [1, 1, 1, 0, 0, 0]), (9, [1, 1, 0, 0, 0, 0])]
)
def test_an_episode_counts_if_it_would_end_in_time_however_long_it_took(max_steps, counts):
    """Episodes begin with steps 0, 2, 3 and 4 of six. Where none is sure to end, the first one counts."""
    first = np.array([1, 0, 1, 1, 1, 0], bool)
    np.testing.assert_array_equal(in_time(first, max_steps), np.array(counts, bool))


@dataclasses.dataclass(frozen=True)
class Paid(Probe):
    """Episodes of 1 to 4 steps, whose rewards depend on the clock, the cue and the action. It compiles fast."""

    def sample_level(self, key):
        return dataclasses.replace(super().sample_level(key), reward=jax.random.normal(key, (MAX_LENGTH, 2, N_ACTIONS)))


@pytest.mark.parametrize(
    "env", [Paid(), pytest.param(MAZE, marks=pytest.mark.deep)], ids=lambda env: type(env).__name__
)
def test_scores_and_returns_are_those_of_the_episodes_on_each_level(env):
    """Against a walk along each row that counts the levels by itself."""
    best = np.linspace(0.1, 0.9, N_ROWS * IN_TURN, dtype=np.float32)

    @jax.jit
    def seen():
        outcome = played(sample_levels(env, jax.random.key(3), N_ROWS * IN_TURN), IN_TURN, env=env)
        advantage = outcome.runs.advantages(outcome.agent.gamma, outcome.agent.gae_lambda)[0]
        logits, _ = outcome.agent.look(outcome.params, outcome.runs)
        scored = {name: outcome.score(SCORES[name], best) for name in quantities}
        return outcome.runs.steps.replace(obs=()), outcome.episodes, advantage, jax.nn.log_softmax(logits), scored

    quantities = {
        "positive_value_loss": lambda t, a, row, b: max(advantage[t, a, row], 0),
        "max_mc": lambda t, a, row, b: float(best[b]) - steps.value[t, a, row],
        "policy_entropy": lambda t, a, row, b: (
            -(np.exp(log_p[t, a, row]) * log_p[t, a, row]).sum() / np.log(env.action_space.n)
        ),
    }
    steps, found, advantage, log_p, scored = jax.device_get(seen())
    episodes, visits = episodes_of(steps, env.max_steps)
    counts = np.asarray([[len(episodes[a, b]) for b in range(N_ROWS * IN_TURN)] for a in range(2)])
    assert counts.min() >= 1
    assert max(visits.values()) >= 3  # some rows come to a level again, and that does not count

    np.testing.assert_array_equal(found.count, counts)
    for b in range(N_ROWS * IN_TURN):
        for a in range(2):
            ends = [(t, row) for _, t, row in episodes[a, b]]
            returns = [steps.episode_return[t, a, row] for t, row in ends]
            assert found.mean[a, b] == pytest.approx(np.mean(returns), abs=1e-6)
            assert found.best[a, b] == max(returns)
            assert found.solved[a, b] == sum(steps.progress[t, a, row] >= 1 for t, row in ends)
            assert found.first.finished[a, b, 0]
            assert found.first.returns[a, b, 0] == returns[0]
        for name, quantity in quantities.items():
            of_students = [
                np.mean([np.mean([quantity(t, a, row, b) for t in range(s, e + 1)]) for s, e, row in episodes[a, b]])
                for a in range(2)
            ]
            assert scored[name][b] == pytest.approx(np.mean(of_students), abs=1e-5), name


@pytest.mark.deep
def test_students_are_compared_on_levels_that_all_of_them_have_finished():
    """Against a walk along each row. A student that has not come to a level has not failed on it."""
    levels = sample_levels(MAZE, jax.random.key(3), N_ROWS * IN_TURN)
    outcome = played(levels, IN_TURN, n_steps=23)
    steps = jax.tree.map(np.asarray, outcome.runs.steps.replace(obs=()))
    episodes, _ = episodes_of(steps, MAZE.max_steps)
    regrets, n_half_played = np.full(N_ROWS * IN_TURN, -np.inf), 0
    for b in range(N_ROWS * IN_TURN):
        protagonist, antagonist = ([steps.episode_return[t, a, row] for _, t, row in episodes[a, b]] for a in range(2))
        if protagonist and antagonist:
            regrets[b] = max(max(antagonist) - np.mean(protagonist), 0)
        n_half_played += bool(protagonist) != bool(antagonist)
    assert n_half_played > 0
    assert np.isfinite(regrets).sum() > N_ROWS
    assert regrets.max() > 0
    found = outcome.score(SCORES["relative_regret"], jnp.zeros(N_ROWS * IN_TURN))
    np.testing.assert_allclose(found, regrets, atol=1e-6)
    both = np.isfinite(regrets)
    assert float(mean_regret(outcome.episodes)) == pytest.approx(regrets[both].mean(), abs=1e-6)


def test_agents_alone_are_compared_on_levels_that_all_students_have_finished():
    """An environment of two agents plays two levels. Student 0 comes to the second one too late.

    Its return so far was taken for its return there.
    """
    ends = np.array([[False, False, True, False], [True, False, True, False]])  # of both students, [A, T]
    done = np.repeat(ends.T[..., None], 2, axis=2)  # of both agents
    first = np.concatenate([np.ones_like(done[:1]), done[:-1]])
    number = (np.cumsum(first, axis=0) - 1).astype(np.int32)
    zeros, ones = np.zeros(done.shape, np.float32), np.ones(done.shape, np.float32)
    steps = Transition(
        obs=(), action=(), reward=zeros, done=done, episode_return=ones * np.float32([[[1], [2]]]),
        discount=1 - done.astype(np.float32), first=first, log_prob=zeros, value=zeros, truncation_value=None,
        progress=zeros, facts={}, number=number, valid=done | True,
    )  # fmt: skip
    runs = Rollout(steps=steps, carry=(), last_value=zeros[0], final=None)
    agent = SimpleNamespace(gamma=0.9, gae_lambda=0.9)
    layout = Layout(n_evals=2, n_agents=2, levels_per_row=2, max_steps=3)

    @jax.jit
    def scores(runs):
        outcome, score = RolloutOutcome(agent, None, runs, layout=layout), SCORES["relative_regret"]
        return [outcome.score(score, jnp.zeros(2)) for score in (score, over_agents(score, "max"))]

    np.testing.assert_array_equal(scores(runs), [[1, -np.inf]] * 2)


@pytest.mark.parametrize(("selection", "parents"), [("hard", [2, 1, 2, 1]), ("easy", [3, 1, 3, 1])])
def test_levels_that_not_all_students_have_finished_are_no_parents(selection, parents):
    """The second student has not come to level 0, so that it is neither the easiest nor the hardest."""
    mean, count = np.array([[0.9, 0.5, 0.1, 0.7]] * 2, np.float32), np.array([[1] * 4, [0, 1, 1, 1]], np.int32)
    outcome = SimpleNamespace(episodes=SimpleNamespace(mean=mean, count=count, known=count > 0))
    curriculum = ACCELCurriculum(SimpleNamespace(plan=Plan(4)), None, selection, n_parents=2)
    assert curriculum.parents(outcome).tolist() == parents


@pytest.mark.deep
def test_a_level_that_no_row_came_to_has_no_score():
    """The goal is out of reach, so that the first episode of each row lasts."""
    maze = sample_levels(MAZE, jax.random.key(3), N_ROWS * IN_TURN)
    shut_in = jnp.zeros((4, 4), bool).at[0, 1].set(True).at[1, 0].set(True)
    levels = dataclasses.replace(
        maze,
        wall_map=jnp.broadcast_to(shut_in, maze.wall_map.shape),
        agent_pos=jnp.zeros_like(maze.agent_pos),
        goal_pos=jnp.full_like(maze.goal_pos, 3),
    )
    agent = small_agent(MAZE, 1)
    rows = batch_for(MAZE, agent, Plan(N_ROWS * IN_TURN), levels_per_row=IN_TURN)
    obs = rows.one_obs(jax.random.key(0), jax.tree.map(lambda x: x[0], levels))
    students = CurrentStudents(rows, agent, agent.init(jax.random.key(1), obs).params, 16, levels_per_row=IN_TURN)
    outcome = students.play(jax.random.key(2), level_batch(levels))
    scores = np.asarray(outcome.score(SCORES["max_mc"], jnp.zeros(N_ROWS * IN_TURN)))
    assert np.isfinite(scores).reshape(N_ROWS, IN_TURN).tolist() == [[True, True, False]] * N_ROWS
    assert outcome.episodes.count[0].reshape(N_ROWS, IN_TURN).tolist() == [[1, 1, 0]] * N_ROWS


@pytest.mark.deep
def test_the_same_level_in_turn_is_the_level_again():
    """Rows whose levels are all the same play what rows play that restart one level."""
    levels = sample_levels(MAZE, jax.random.key(4), N_ROWS)
    again = played(levels, 1)
    in_turn = played(jax.tree.map(lambda x: jnp.repeat(x, IN_TURN, axis=0), levels), IN_TURN)
    for name in ("done", "reward", "action", "value", "episode_return"):
        same, other = getattr(again.runs.steps, name), getattr(in_turn.runs.steps, name)
        np.testing.assert_array_equal(np.asarray(same), np.asarray(other), err_msg=name)
    assert (np.asarray(again.episodes.count) >= IN_TURN).all()
    np.testing.assert_array_equal(in_turn.episodes.count, 1)  # the first on each


@pytest.mark.deep
def test_agents_that_share_an_environment_go_on_together():
    """The lives of both agents are those of the level, also of the one that does not see the end."""
    n_rows, n_steps = 3, 40
    levels = sample_levels(GAME, jax.random.key(5), n_rows * IN_TURN)
    agent = small_agent(GAME)
    rows = batch_for(GAME, agent, Plan(n_rows * IN_TURN), levels_per_row=IN_TURN)
    obs = rows.one_obs(jax.random.key(0), jax.tree.map(lambda x: x[0], levels))
    students = CurrentStudents(rows, agent, agent.init(jax.random.key(1), obs).params, n_steps, levels_per_row=IN_TURN)
    outcome = students.play(jax.random.key(2), level_batch(levels))
    steps = jax.tree.map(np.asarray, outcome.runs.steps.replace(obs=()))
    counts, returns = np.zeros(n_rows * IN_TURN, int), np.zeros(n_rows * IN_TURN)
    for row in range(n_rows):
        turn, began = 0, 0
        for t in range(n_steps):
            for agent_row in (2 * row, 2 * row + 1):
                if steps.done[t, 0, agent_row] and turn < IN_TURN and began + GAME.max_steps <= n_steps:
                    counts[row * IN_TURN + turn] += 1
                    returns[row * IN_TURN + turn] += steps.episode_return[t, 0, agent_row]
            if t + 1 < n_steps and steps.first[t + 1, 0, 2 * row]:
                turn, began = turn + 1, t + 1
    assert counts.tolist() == [2] * (n_rows * IN_TURN)  # once each
    np.testing.assert_array_equal(outcome.episodes.count[0], counts)
    np.testing.assert_allclose(outcome.episodes.mean[0], returns / counts, atol=1e-6)


@pytest.mark.deep
@pytest.mark.parametrize("name", RUNNERS)
def test_every_curriculum_that_restarts_levels(name):
    settings = RUNNERS[name]
    runner = trained_with(MAZE, small_agent(MAZE, settings.n_students), settings)
    program = SeedRunner(runner, n_seeds=2)
    state, report = program.run(program.init(0), 8)
    if isinstance(settings, PAIRED):
        assert (np.asarray(report.metrics["teacher/unpaid"]) < 1).all()
    n_rows = {"parallel plr": 8, "parallel accel": 12}.get(name, 4)
    assert runner.curriculum.plan.n_rows == 3 * n_rows
    assert runner.n_rollouts == (1 if name == "sfl" else 4)  # without scores, nothing need be sure to end
    assert runner.env_steps_per_step == n_rows * 16 * settings.n_students * runner.n_rollouts
    assert int(state.students.n_updates[0, 0]) >= 1
    # Episodes have at most 8 steps, so that two end in each row, on two of its levels.
    assert (np.asarray(report.metrics["episodes"]) >= 2 * n_rows).all()
    if hasattr(state.curriculum, "buffer"):
        buffer = state.curriculum.buffer
        assert np.isfinite(np.asarray(buffer.scores)[np.asarray(buffer.filled)]).all()
        # The first batch alone has 12 levels a kind, in 4 rows. Those that no row came to are not kept.
        assert (np.asarray(buffer.filled).sum(axis=1) > 8).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PLR(n_parallel=4, levels_per_row=2, n_evals=2), "it must be 1, since runner.n_evals is 2"),
        (PLR(n_parallel=4, levels_per_row=2, score="parameter_change"), "since the score looks at updates"),
        (SFLMethod(n_parallel=4, levels_per_row=2, n_scored=8, n_kept=2), None),
    ],
)
def test_what_cannot_work_is_refused(settings, message):
    agent = small_agent(MAZE, settings.n_students)
    if message is None:
        trained_with(MAZE, agent, settings)
        return
    with pytest.raises(ValueError, match=message):
        trained_with(MAZE, agent, settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels_per_row": 0}, "runner.levels_per_row is 0: it must be at least 1"),
        (
            {"n_parallel": 4, "levels_per_row": 2, "n_scored": 12, "n_kept": 2},
            r"multiple of 8 \(runner.n_parallel \* .*\), such as 16",
        ),
    ],
)
def test_impossible_numbers_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SFLMethod(**settings)

"""Several rows a level, in every runner: what is pooled, what is counted, and what it is good for."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib.curricula.base import level_batch
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.sfl import SFL
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.students import CurrentStudents
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.testing.curricula import small_agent
from tests.test_solved import LONG, Coin

MAZE = AMaze(height=4, width=4, n_walls=3, max_steps=8)
ROWS = {"n_parallel": 4, "n_steps": 8, "n_evals": 3}
BUFFER = {"capacity": 8, "min_fill": 0.25}
TINY = FeedForward(conv_filters=2, dense_width=8, head_width=4)
RUNNERS = {
    "dr": DR(**ROWS),
    "plr": PLR(**ROWS, **BUFFER, score="learnability"),
    "parallel plr": PLR(**ROWS, **BUFFER, parallel=True),
    "accel": ACCEL(**ROWS, **BUFFER, n_parents=2, selection="easy"),
    "sfl": SFL(**ROWS, n_scored=4, n_kept=2, n_episodes=2, every=2),
    "paired": PAIRED(**ROWS, teacher=Teacher(design=MazeDesign(n_walls=3), model=TINY)),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", RUNNERS)
def test_every_runner_plays_a_level_in_several_rows(name):
    settings = RUNNERS[name]
    agent = small_agent(MAZE, settings.n_students)
    runner = trained_with(MAZE, agent, settings)
    program = SeedRunner(runner, n_seeds=1)
    state, report = program.run(program.init(0), 2)
    n_levels = runner.curriculum.plan.n_rows
    assert runner.env_steps_per_step == agent.n * n_levels * 3 * 8
    assert int(state.students.n_updates[0, 0]) == 2
    assert np.isfinite(report.metrics["loss"]).all()
    # Episodes of 8 steps fit exactly once into each row: the first student's, in all rows.
    assert float(report.metrics["episodes"][0]) >= n_levels * 3


def test_episodes_of_a_level_are_pooled():
    """Against plain sums over the rows of each level."""
    env = Coin("cost")
    agent = small_agent(env, n_students=2)

    @jax.jit
    def played():
        params = agent.init(jax.random.key(0), jnp.zeros((), jnp.int32)).params
        chances = jnp.asarray([0.1, 0.5, 0.9], jnp.float32)
        students = CurrentStudents(BatchEnv(env, n_students=2, n_evals=4), agent, params, 2 * LONG + 1)
        outcome = students.play(jax.random.key(1), level_batch(chances))
        return outcome.runs.steps, outcome.episodes

    steps, episodes = jax.device_get(played())
    for a in range(2):
        for b in range(3):
            rows = range(4 * b, 4 * b + 4)
            ended = [(t, r) for r in rows for t in range(2 * LONG + 1) if steps.done[t, a, r]]
            returns = [steps.episode_return[t, a, r] for t, r in ended]
            solved = [steps.progress[t, a, r] >= 1 for t, r in ended]
            assert episodes.count[a, b] == len(ended)
            assert episodes.solved[a, b] == sum(solved)
            assert episodes.mean[a, b] == pytest.approx(np.mean(returns), rel=1e-5)
            assert episodes.best[a, b] == max(returns)
            assert episodes.progress[a, b] == pytest.approx(np.mean(solved), rel=1e-5)
            for e, r in enumerate(rows):
                t = np.flatnonzero(steps.done[:, a, r])[0]
                assert episodes.first.returns[a, b, e] == steps.episode_return[t, a, r]
                assert episodes.first.solved[a, b, e] == (steps.progress[t, a, r] >= 1)


@pytest.mark.deep
def test_replay_by_learnability_prefers_levels_that_are_solved_half_of_the_time():
    """With the levels' chances known: by eight rows a level the score follows p (1 - p), and so does the buffer."""
    env = Coin("maze")
    settings = PLR(
        n_parallel=16, n_steps=LONG, n_evals=8, score="learnability", capacity=64, min_fill=0.25, staleness=0.0
    )
    program = SeedRunner(trained_with(env, small_agent(env), settings), 1)
    state, _ = program.run(program.init(0), 20)
    buffer = jax.tree.map(lambda x: np.asarray(x[0]), state.curriculum.buffer)
    kept = buffer.levels[buffer.filled]
    assert len(kept) >= 32
    # Of random levels it is 1/6 on average, with a deviation of .075.
    assert (kept * (1 - kept)).mean() > 1 / 6 + 3 * 0.075 / np.sqrt(len(kept))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PLR(n_parallel=4, score="learnability"), "it must be at least 2, since the score 'learnability'"),
        (PLR(n_parallel=4, score="learnability", parallel=True), "it must be at least 2"),
        (ACCEL(n_parallel=4, score="learnability"), "it must be at least 2"),
        (
            PAIRED(n_parallel=4, teacher=Teacher("learnability", MazeDesign(n_walls=3), TINY)),
            "runner.n_evals is 1: .* the score 'learnability'",
        ),
        (
            PLR(n_parallel=4, score="max_mc", generator=Teacher("learnability", MazeDesign(n_walls=3), TINY)),
            "runner.n_evals is 1: .* the score 'learnability'",
        ),
        (DR(n_parallel=4, n_steps=4, n_evals=2), "n_evals is 2 with runner.continue_episodes: it must be 1, since"),
    ],
)
def test_what_cannot_work_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        trained_with(MAZE, small_agent(MAZE, settings.n_students), settings)


def test_no_row_is_no_setting():
    with pytest.raises(ValueError, match=r"runner.n_evals is 0: it must be at least 1"):
        dataclasses.replace(DR(), n_evals=0)

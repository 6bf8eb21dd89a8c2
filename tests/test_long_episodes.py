"""Episodes that outlast a rollout: they go on in the next one, or a batch has several rollouts."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import axes
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.commands.train import doubts, main
from minimax_lib.config import from_dict
from minimax_lib.curricula.base import Plan, level_batch
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.curricula.levels.dr import DR, DomainRandomisation
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.sfl import SFLMethod
from minimax_lib.curricula.outcome import RolloutOutcome
from minimax_lib.curricula.scores import SCORES
from minimax_lib.curricula.settings import RolloutSettings
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign
from minimax_lib.envs.restarts import FreshLevels, QueuedLevels, SameLevel
from minimax_lib.models.settings import LSTM, FeedForward
from minimax_lib.playing.rollout import begin, go_on, joined_in_time
from minimax_lib.runners.build import make_program, schedule_of, trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.store.checkpoint import Checkpoints, placed
from minimax_lib.testing.curricula import small_agent
from tests.test_solved import LONG, SHORT, Coin

MAZE = AMaze(height=4, width=4, n_walls=3, max_steps=32)
N_STEPS = 8  # a quarter of the longest episode


def students(env, n: int = 1, lr: float = 3e-3, n_updates: int = 400) -> AgentPop:
    network = LSTM(conv_filters=8, memory_width=32, head_width=16, n_values=2)
    network = network.build(env.observation_space, env.action_space)
    return AgentPop(PPOAgent(network, PPO(lr=lr, n_epochs=2, entropy_coef=0.01), n_updates), n)


def numbers(tree) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for x in leaves]


# ----------------------------------------------------------------------------------------------- going on


@pytest.fixture(scope="module")
def two_rollouts():
    """(parameters, a rollout from a reset, one that goes on where it ended) of DR, with the same parameters."""
    agent, env = students(MAZE), BatchEnv(MAZE, restart=DomainRandomisation(MAZE, 6).plan.restart)
    levels = jax.vmap(MAZE.sample_level)(jax.random.split(jax.random.key(0), 6))
    _, ts = MAZE.reset(jax.random.key(1), jax.tree.map(lambda x: x[0], levels))
    params = jax.jit(agent.init)(jax.random.key(1), ts.obs).params
    play = jax.jit(lambda key, start: go_on(key, env, agent, params, start, 12))
    first = play(jax.random.key(3), begin(jax.random.key(2), env, agent, levels))
    return agent, params, first, play(jax.random.key(4), first.final)


@pytest.mark.deep
def test_a_rollout_goes_on_as_if_it_had_never_stopped(two_rollouts):
    """Memory, observations and returns: recomputed over both in one sequence."""
    agent, params, first, second = two_rollouts
    parts = [run.replace(final=None) for run in (first, second)]
    both = joined_in_time(jax.tree.map(lambda *xs: jnp.stack(xs), *parts))
    _, values = jax.jit(agent.look)(params, both)
    np.testing.assert_allclose(values.mean(axis=-1), both.steps.value, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(both.steps.first[1:], both.steps.done[:-1])
    reward, done = np.asarray(both.steps.reward[:, 0]), np.asarray(both.steps.done[:, 0])
    so_far = np.zeros(6)
    for t in range(24):
        so_far += reward[t]
        np.testing.assert_allclose(both.steps.episode_return[t, 0], so_far, rtol=1e-5)
        so_far[done[t]] = 0
    assert not np.asarray(second.steps.first[0]).all()  # some episodes are under way
    np.testing.assert_allclose(first.last_value, second.steps.value[0], rtol=1e-4, atol=1e-5)


@pytest.mark.deep
@pytest.mark.parametrize("n_steps", [4, 7])
def test_every_episode_counts_once_where_none_is_cut(n_steps):
    """Good ones end after 3 steps and bad ones after 9, half of each; first episodes alone would say less than half."""
    env = Coin("maze", fixed=0.5)
    program = SeedRunner(trained_with(env, small_agent(env), DR(n_parallel=256, n_steps=n_steps)), n_seeds=2)
    assert program.runner.continues
    state, _ = program.run(program.init(0), 10)
    state, report = program.run(state, 60)
    n_episodes = 256 * 50 * n_steps / ((SHORT + LONG) / 2)
    np.testing.assert_allclose(report.metrics["episodes"] * 50, n_episodes, rtol=0.05)
    error = 4 * 0.5 / np.sqrt(n_episodes)
    np.testing.assert_allclose(report.metrics["solved_rate"], 0.5, atol=error)
    np.testing.assert_allclose(report.metrics["return"], 0.5, atol=error)
    np.testing.assert_allclose(report.metrics["facts/time"], (SHORT + LONG) / 2, atol=error * LONG)
    assert (report.metrics["unfinished"] == 0).all()
    np.testing.assert_allclose(report.metrics["level/new/chance"], 0.5, rtol=1e-5)
    assert program._run._cache_size() == 1


@pytest.mark.deep
def test_an_interval_without_the_end_of_an_episode_reports_nothing():
    env = dataclasses.replace(MAZE, n_walls=0)
    runner = trained_with(env, small_agent(env), DR(n_parallel=2, n_steps=1))
    state = jax.jit(runner.init)(jax.random.key(0))
    _, metrics = jax.jit(runner.step)(state)
    assert float(metrics["episodes"]) == 0
    assert np.isnan(metrics["return"])
    assert np.isnan(metrics["solved_rate"])


@pytest.mark.deep
def test_the_first_state_is_reset_with_each_devices_own_key_and_survives_a_checkpoint(tmp_path):
    small = {"name": "ff", "dense_width": 8, "conv_filters": 2, "head_width": 4}
    env = {"height": 4, "width": 4, "n_walls": 3, "max_steps": 32}
    tree = {"env": env, "model": small, "runner": {"n_parallel": 4, "n_steps": N_STEPS}, "n_devices": 2, "n_seeds": 2}
    program = make_program(from_dict(tree))
    state, _ = program.run(program.init(0), 2)
    walls = np.asarray(state.start.state.env.level.wall_map)
    assert walls.shape[:3] == (2, 2, 2)  # seeds, devices, rows of each
    assert len({w.tobytes() for w in walls.reshape(8, -1)}) > 4
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, state)
    whole, _ = program.run(state, 5)
    with Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(placed(program.shape))
    assert restored is not None
    again, _ = program.run(restored.state, 5)
    for a, b in zip(numbers(whole), numbers(again), strict=True):
        np.testing.assert_array_equal(a, b)


# ----------------------------------------------------------------------------------------- several rollouts a batch


@pytest.mark.deep
def test_a_batch_of_several_rollouts_sees_whole_episodes_and_learns_after_each():
    settings = PLR(n_parallel=4, n_steps=N_STEPS, capacity=16, min_fill=0.0, robust=False)
    runner = trained_with(MAZE, students(MAZE), settings)
    assert (runner.n_rollouts, runner.continues) == (4, False)
    assert runner.env_steps_per_step == 4 * MAZE.max_steps
    program = SeedRunner(runner, n_seeds=2)
    state, report = program.run(program.init(0), 1)
    assert state.students.n_updates.tolist() == [[4], [4]]
    assert state.clock.tolist() == [1, 1]
    assert (report.metrics["unfinished"] == 0).all()
    assert np.isfinite(state.curriculum.buffer.scores[:, :4]).all()  # the longest episodes too are scored
    state, _ = program.run(state, 8)
    assert state.students.n_updates.tolist() == [[8], [8]]
    assert program._run._cache_size() == 1


@pytest.mark.deep
@pytest.mark.parametrize("name", ["value_disagreement", "policy_entropy", "max_mc", "positive_value_loss"])
def test_scores_look_at_the_parameters_that_played_each_part(name):
    """Against the parts put together by hand."""
    agent = students(MAZE, lr=0.05)
    runner = trained_with(MAZE, agent, PLR(n_parallel=4, n_steps=N_STEPS, capacity=16, robust=False))
    state = jax.jit(runner.init)(jax.random.key(0))
    levels = jax.vmap(MAZE.sample_level)(jax.random.split(jax.random.key(1), 4))
    played = jax.jit(lambda s: (lambda o: (o.params, o.runs, o.parts))(
        runner.play(jax.random.key(2), jax.random.key(3), s, level_batch(levels)).outcome))(state)  # fmt: skip
    params, runs, parts = played
    kernels = jax.tree.leaves(params)[-1]
    assert (np.asarray(kernels[0]) != np.asarray(kernels[1])).any()  # they learn in between
    best = jnp.ones(4)
    found = jax.jit(lambda: RolloutOutcome(agent, params, runs, parts).score(SCORES[name], best))()
    looks = [agent.look(*jax.tree.map(lambda x, k=k: x[k], (params, parts))) for k in range(4)]
    logits, values = (jnp.concatenate(xs) for xs in zip(*looks, strict=True))

    class Known:
        gamma, gae_lambda = agent.gamma, agent.gae_lambda

        def look(self, params, run):
            return logits, values

    expected = RolloutOutcome(Known(), None, runs).score(SCORES[name], best)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values.mean(axis=-1), runs.steps.value, rtol=1e-4, atol=1e-5)


def test_one_rollout_is_enough_where_no_episode_is_longer():
    runner = trained_with(MAZE, students(MAZE), PLR(n_parallel=4, n_steps=32, capacity=16))
    assert (runner.n_rollouts, runner.continues) == (1, False)
    assert jax.eval_shape(runner.init, jax.random.key(0)).start == ()
    assert not trained_with(MAZE, students(MAZE), DR(n_parallel=4, n_steps=32)).continues


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (PLR(n_parallel=4, n_steps=1, rollouts_per_batch=1), "runner.n_steps is 1 .* no episode of 32 steps"),
        (PLR(n_parallel=4, n_steps=10), r"n_updates is 399: .* multiple of 4, .* \(try 400\)"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(settings, message):
    with pytest.raises(ValueError, match=rf"^{message}"):
        trained_with(MAZE, students(MAZE, n_updates=399), settings)


ROWS = {"n_parallel": 4, "n_steps": 8}
EVERY = 4  # of `FreshLevels`


@pytest.mark.parametrize(
    ("restart", "settings", "message"),
    [
        (FreshLevels(MAZE.sample_level, EVERY), {"rollouts_per_batch": 2}, "rollouts_per_batch is 2: it must be 1,"),
        (FreshLevels(MAZE.sample_level, EVERY), {"levels_per_row": 2}, "levels_per_row is 2: it must be 1, since each"),
        (FreshLevels(MAZE.sample_level, EVERY), {"n_evals": 2}, "n_evals is 2 with runner.continue_episodes: it must"),
        (SameLevel(), {"continue_episodes": True}, "continue_episodes is True: it must be False"),
        (QueuedLevels(), {"continue_episodes": False}, "continue_episodes is False: it must be True"),
        (QueuedLevels(), {"n_evals": 2}, "n_evals is 2: it must be 1"),
        (QueuedLevels(), {"rollouts_per_batch": 2}, "rollouts_per_batch is 2"),
        (QueuedLevels(), {"levels_per_row": 2}, "levels_per_row is 2: it must be 1, since each episode has its own"),
    ],
)
def test_settings_of_another_schedule_are_refused_for_methods_of_a_plugin(restart, settings, message):
    with pytest.raises(ValueError, match=rf"^runner.{message}"):
        schedule_of(MAZE, students(MAZE), Plan(4, restart=restart), RolloutSettings(**ROWS, **settings))


def test_fewer_rollouts_than_an_episode_needs_are_warned_of(capsys):
    flags = "--env.max-steps 32 --runner plr --runner.n-steps 8 --runner.rollouts-per-batch"
    assert main([*flags.split(), "2", "--ppo.n-chunks", "5"]) == 2  # refused for another reason
    assert "warning" not in capsys.readouterr().err
    config = {"env": {"max_steps": 32}, "runner": {"name": "plr", "n_steps": 8}}
    assert doubts(from_dict(config)) == []
    config["runner"]["rollouts_per_batch"] = 2
    (line,) = doubts(from_dict(config))
    assert line.startswith("runner.rollouts_per_batch is 2: episodes of more than 16 steps never end")
    assert "\n" not in line
    config["runner"] = {"name": "dr", "n_steps": 8, "rollouts_per_batch": 1}  # episodes go on in the next rollout
    assert doubts(from_dict(config)) == []


def test_a_teachers_schedule_ends_with_the_run():
    teacher = Teacher(design=MazeDesign(noise_dim=2), model=FeedForward(), ppo=PPO(lr=1.0, lr_final=0.0, n_epochs=1))
    runner = trained_with(MAZE, students(MAZE, 2), PAIRED(n_parallel=4, n_steps=N_STEPS, teacher=teacher))
    rate = runner.curriculum.agent.agent.learning_rate
    assert float(rate(100)) == 0.0  # 400 updates of the students are 100 batches
    assert float(rate(50)) == pytest.approx(0.5)


# --------------------------------------------------------------------------------------- they all learn

BUFFER = {"capacity": 64, "min_fill": 0.25}
SMALL_TEACHER = Teacher(
    design=MazeDesign(noise_dim=2), model=FeedForward(conv_filters=4, dense_width=16), ppo=PPO(lr=1e-3, n_epochs=2)
)
METHODS = {
    "dr": DR(n_parallel=16, n_steps=N_STEPS),
    "robust plr": PLR(n_parallel=16, n_steps=N_STEPS, **BUFFER),
    "accel": ACCEL(n_parallel=16, n_steps=N_STEPS, **BUFFER, n_edits=3),
    "sfl": SFLMethod(n_parallel=16, n_steps=N_STEPS, every=20, n_scored=64, n_kept=16),
    "paired": PAIRED(n_parallel=16, n_steps=N_STEPS, teacher=SMALL_TEACHER),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", METHODS)
def test_mazes_whose_episodes_last_four_rollouts_are_learnt(name):
    """On fresh levels, whole episodes: far more are solved than by the untrained student.

    Of twelve seeds, up to two become sure of a useless action early (entropy .01) and stay there: the learning rate is
    high, so that 240 updates are enough. So a second and a third seed may try.
    """
    settings = METHODS[name]
    runner = trained_with(MAZE, students(MAZE, settings.n_students), settings)
    program = SeedRunner(runner)
    levels = jax.vmap(MAZE.sample_level)(jax.random.split(jax.random.key(5), 256))

    @jax.jit
    def solved(state) -> jax.Array:
        one = jax.tree.map(lambda x: x[0], state.replace(start=()))
        return runner.students(one).attempts(jax.random.key(6), levels, 1).episodes.solved[0].mean()

    gains = []
    for seed in range(3):
        state = program.init(seed)
        before = float(solved(state))
        state, report = program.run(state, 240)
        assert np.isfinite(report.metrics["loss"]).all()
        gains.append(float(solved(state)) - before)
        if gains[-1] > 0.25:
            return
    pytest.fail(f"three seeds gained {gains}")


@pytest.mark.deep
def test_the_branch_of_going_on_stays_a_branch_under_vmap_over_seeds():
    runner = trained_with(MAZE, small_agent(MAZE), DR(n_parallel=4, n_steps=N_STEPS))
    state = jax.eval_shape(jax.vmap(runner.init), jax.vmap(jax.random.key)(jnp.arange(2)))
    text = jax.jit(jax.vmap(runner.step, axis_name=axes.SEED)).lower(state).as_text()
    assert text.count("stablehlo.case") >= 2  # going on, and learning

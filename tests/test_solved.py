"""What "solved" means, in training, in evaluation and for curricula, in environments that are unlike mazes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib import axes
from minimax_lib.curricula.base import level_batch
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.sfl import SFLCurriculum, SFLMethod
from minimax_lib.envs.base import Environment, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.held_out import TrainingDistribution
from minimax_lib.envs.spaces import Discrete
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.evaluation.robustness import RobustEvaluator, RobustProtocol
from minimax_lib.playing.episodes import alone
from minimax_lib.playing.students import CurrentStudents
from minimax_lib.runners.build import trained_with
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.testing.curricula import small_agent
from minimax_lib.testing.envs import check_environment

SHORT, LONG = 3, 9  # steps of an episode that comes out well, and of one that does not


@struct.dataclass
class CoinState:
    chance: jax.Array  # f32[], the level
    good: jax.Array  # bool[], how the episode will come out
    time: jax.Array  # i32[]


@dataclasses.dataclass(frozen=True)
class Coin(Environment):
    """The level is the chance that an episode comes out well, whatever is done.

    What that means differs by `kind`. maze: it ends soon, with a reward. cost: it ends soon, and every step costs.
    survival: it lasts to the limit, every step pays. game: a win ends soon; the others are draws or losses, by halves.
    """

    kind: str = "maze"
    fixed: float | None = None
    max_steps: int = LONG
    observation_space = Discrete(1)
    action_space = Discrete(2)

    def sample_level(self, key):
        chance = jax.random.uniform(key, (), jnp.float32)
        return chance if self.fixed is None else jnp.full((), self.fixed, jnp.float32)

    def reset(self, key, level):
        good = jax.random.uniform(key) < level
        state = CoinState(chance=level, good=good, time=jnp.zeros((), jnp.int32))
        return state, opening(jnp.zeros((), jnp.int32), None if self.kind == "maze" else 0, facts={"time": 0})

    def step(self, key, state, action):
        time = state.time + 1
        good, limit, no = state.good, time >= LONG, jnp.zeros((), bool)
        soon, late = good & (time >= SHORT), ~good & limit
        drawn = jax.random.bernoulli(key)
        lost = jnp.where(late & ~drawn, -1.0, 0.0)
        reward, terminated, truncated, progress = {
            "maze": (soon, soon, limit, None),
            "cost": (-1.0, soon, limit, soon),
            "survival": (1.0, ~good & (time >= SHORT), limit, good & limit),
            "game": (jnp.where(soon, 1.0, lost), soon | late, no, jnp.where(late, drawn / 2, soon)),
        }[self.kind]
        ts = transition(jnp.zeros((), jnp.int32), reward, terminated, truncated, progress, {"time": time})
        return state.replace(time=time), ts

    def get_level(self, state):
        return state.chance

    def level_metrics(self, level):
        return {"chance": level}


KINDS = ("maze", "cost", "survival", "game")
N = 1024


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_the_environments_conform(kind):
    check_environment(Coin(kind), jax.random.key(0))


@pytest.mark.parametrize("n_steps", [2 * LONG - 1, LONG - 1], ids=["nearly two episodes", "less than one"])
@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_training_reports_the_rate_of_first_episodes(kind, n_steps):
    """Half of the episodes come out well. The means over all completed ones say otherwise: see the next test."""
    env = Coin(kind, fixed=0.5)
    settings = DR(n_parallel=N, n_steps=n_steps, continue_episodes=False)
    runner = trained_with(env, small_agent(env), settings)
    _, metrics = jax.jit(runner.step)(runner.init(jax.random.key(0)))
    late = 0.5 if n_steps < LONG else 0.0  # those that are still under way at the end of the rollout
    solved = 0.5 - late if kind == "survival" else 0.5
    error = 4 * 0.5 / np.sqrt(N)
    assert float(metrics["solved_rate"]) == pytest.approx(solved, abs=error)
    assert float(metrics["unfinished"]) == pytest.approx(late, abs=error)
    for name in ("solved_rate", "unfinished", "return"):
        np.testing.assert_allclose(metrics[f"level/new/{name}"], metrics[name], rtol=1e-5)
    returns = {"maze": 0.5, "cost": -(SHORT + min(n_steps, LONG)) / 2, "survival": (SHORT + min(n_steps, LONG)) / 2}
    if kind in returns:
        assert float(metrics["return"]) == pytest.approx(returns[kind], abs=error * LONG)
    steps = (SHORT + min(n_steps, LONG)) / 2
    assert float(metrics["facts/time"]) == pytest.approx(steps, abs=error * LONG)


def test_all_completed_episodes_would_say_otherwise():
    """What made the rate of training too high: bad episodes last longer, so that fewer of them fit in a rollout."""
    env = Coin("maze", fixed=0.5)
    agent = small_agent(env)

    @jax.jit
    def played():
        params = agent.init(jax.random.key(0), jnp.zeros((), jnp.int32)).params
        students = CurrentStudents(BatchEnv(env), agent, params, LONG + SHORT)
        return students.play(jax.random.key(1), level_batch(jnp.full(N, 0.5, jnp.float32))).episodes

    episodes = jax.device_get(played())
    assert float(episodes.solved.sum() / episodes.count.sum()) > 0.6
    assert float(episodes.first.solved.mean()) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(N))


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_and_the_worst_levels_count_what_is_solved(kind):
    env, agent = Coin(kind, fixed=0.25), small_agent(Coin(kind)).agent
    params = jax.jit(agent.init)(jax.random.key(0), np.zeros((), np.int32)).params
    result = jax.jit(EvalRunner(TrainingDistribution(env), agent, N).evaluate)(jax.random.key(1), params)
    error = 4 * np.sqrt(0.25 * 0.75 / N)
    assert float(result.solved.mean()) == pytest.approx(0.25, abs=error)
    mean_steps = {"survival": 0.25 * LONG + 0.75 * SHORT}.get(kind, 0.25 * SHORT + 0.75 * LONG)
    assert float(result.facts["time"].mean()) == pytest.approx(mean_steps, abs=error * LONG)

    robust = RobustEvaluator(env, agent, RobustProtocol(n_levels=64, n_episodes=32))
    lone = jax.tree.map(lambda x: x[None], params)
    rates = robust.evaluate(jax.random.key(2), jax.random.split(jax.random.key(3), 1), lone)
    assert rates.solved_rates(1.0)[0] == pytest.approx(0.25, abs=error)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_what_sfl_keeps_is_learnable(kind):
    """The chance p of a level is known here, and uniform: random levels have a mean p (1 - p) of 1/6.

    Of all levels, a ninth each has k = 0 to 8 of eight episodes solved, and p is then Beta(k + 1, 9 - k). The best
    fifth are those with k = 4, where p (1 - p) has the mean 25/110, and two fifths of those with 3 or 5: 24/110.
    """
    env = Coin(kind)
    settings = SFLMethod(n_parallel=32, n_steps=LONG, n_scored=640, n_kept=128)
    runner = trained_with(env, small_agent(env), settings)
    assert isinstance(runner.curriculum, SFLCurriculum)
    state, metrics = jax.jit(runner.step)(runner.init(jax.random.key(0)))
    p = np.asarray(state.curriculum.levels)
    expected = (25 / 110 * (1 / 9) + 24 / 110 * (1 / 5 - 1 / 9)) / (1 / 5)
    assert (p * (1 - p)).mean() == pytest.approx(expected, abs=4 * 0.03 / np.sqrt(128))
    assert float(metrics["sfl/learnability"]) == pytest.approx(0.25, abs=0.02)  # chosen for being high
    per_episode = {"survival": p.mean() * LONG + (1 - p.mean()) * SHORT}.get(kind, (SHORT + LONG) / 2)
    spent = int(runner.extra_env_steps(state).number())
    assert spent == int(metrics["sfl/scoring_steps"]) == pytest.approx(640 * 8 * per_episode, rel=0.1)


@pytest.mark.deep
def test_whole_episodes_of_every_student_are_counted():
    env = Coin("maze")
    agent = small_agent(env, n_students=3)

    @jax.jit
    def played():
        params = agent.init(jax.random.key(0), jnp.zeros((), jnp.int32)).params
        students = CurrentStudents(BatchEnv(env, n_students=3), agent, params, n_steps=2)  # shorter than any episode
        return students.attempts(jax.random.key(1), jnp.array([0.0, 1.0], jnp.float32), 4)

    attempts = jax.device_get(played())
    assert attempts.episodes.solved.shape == (3, 2, 4)
    np.testing.assert_array_equal(attempts.episodes.solved.mean(axis=(0, 2)), [0, 1])
    assert int(attempts.env_steps) == 3 * 4 * (SHORT + LONG)


@pytest.mark.deep
def test_scoring_is_a_branch_and_each_seed_counts_its_own_steps():
    env = Coin("maze")
    runner = trained_with(env, small_agent(env), SFLMethod(n_parallel=4, n_steps=LONG, n_scored=8, n_kept=4, every=3))
    program = SeedRunner(runner, n_seeds=2)
    state, _ = program.run(program.init(0), 2)
    steps = program.env_steps(state) - 2 * 4 * LONG
    assert steps[0] != steps[1]
    assert ((steps >= 8 * 8 * SHORT) & (steps <= 8 * 8 * LONG)).all()
    again, _ = program.run(state, 3)
    np.testing.assert_array_equal(program.env_steps(again) - 3 * 4 * LONG, steps)  # not due
    jaxpr = str(jax.make_jaxpr(jax.vmap(runner.step, axis_name=axes.SEED))(jax.eval_shape(program.init, 0)))
    assert "cond[" in jaxpr


def test_a_played_episode_says_how_it_ended():
    env = Coin("game", fixed=0.0)
    agent = small_agent(env).agent

    @jax.jit
    def play():
        params = agent.init(jax.random.key(0), jnp.zeros((), jnp.int32)).params
        played = alone(env, agent).play(jax.random.key(1), (params,), jnp.zeros(N, jnp.float32))
        return played, played.solved

    played, solved = jax.device_get(play())
    assert set(np.unique(played.progress)) == {0.0, 0.5}  # lost or drawn
    np.testing.assert_array_equal(played.returns, np.where(played.progress == 0.5, 0, -1))
    assert not solved.any()

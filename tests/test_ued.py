"""A teacher's designs: who plays them, what they are paid, and environments that bring their own teacher."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from minimax_lib.agents.base import TrainState
from minimax_lib.agents.population import AgentPop
from minimax_lib.agents.ppo import PPO, PPOAgent
from minimax_lib.config import from_dict
from minimax_lib.curricula.levels.designed import mean_hamming_distance, paid
from minimax_lib.envs.base import Environment, TimeStep
from minimax_lib.envs.maze.amaze import AMaze
from minimax_lib.envs.maze.teacher import MazeDesign, MazeTeacher
from minimax_lib.envs.registry import FAMILIES, make_ued_env, register_env
from minimax_lib.envs.spaces import Discrete
from minimax_lib.envs.ued import BatchUEDEnv, UEDEnvironment
from minimax_lib.models.settings import FeedForward
from minimax_lib.playing.rollout import Rollout, rollout
from minimax_lib.runners.build import make_runner
from minimax_lib.runners.seeds import SeedRunner
from minimax_lib.testing.envs import check_environment

ENV = AMaze(height=3, width=4, n_walls=4, max_steps=12)
SMALL = FeedForward(conv_filters=4, embedding_width=4, head_width=8, dense_width=8)
B = 16
GAMMA, LAMBDA = 0.9, 0.7


@pytest.fixture(scope="module")
def batch_env() -> BatchUEDEnv:
    """Designs of several lengths."""
    teacher = MazeDesign(budget="first_action", noise_dim=3).build(ENV)
    return BatchUEDEnv(UEDEnvironment(ENV, teacher), n_students=2, n_evals=3)


@pytest.fixture(scope="module")
def designed(batch_env) -> tuple[TrainState, Rollout]:
    """(a teacher's first state, B designs by a network whose parameters are nowhere zero)."""
    teacher = batch_env.env.teacher
    agent = agent_of(batch_env)

    @jax.jit
    def run(key: jax.Array) -> tuple[TrainState, Rollout]:
        k_canvases, k_agent, k_shake, k_rollout = jax.random.split(key, 4)
        canvases = batch_env.canvases(k_canvases, B)
        obs = teacher.reset(k_agent, jax.tree.map(lambda x: x[0], canvases))[1].obs
        state = agent.init(k_agent, obs)
        params = jax.tree.map(lambda x: x + 0.1 * jax.random.normal(k_shake, x.shape), state.params)
        return state, rollout(k_rollout, batch_env.teacher, agent, params, canvases, teacher.max_steps)

    return run(jax.random.key(0))


@pytest.fixture(scope="module")
def design(designed) -> Rollout:
    return designed[1]


def agent_of(batch_env: BatchUEDEnv) -> AgentPop:
    teacher = batch_env.env.teacher
    return AgentPop(PPOAgent(SMALL.build(teacher.observation_space, teacher.action_space), PPO(n_epochs=2)))


def lengths_of(design: Rollout) -> np.ndarray:
    """i64[B], from what the teacher's environment counted: one step for the budget, the walls, the goal, the agent."""
    return np.asarray(design.final.state.env.n_walls) + 3


# ---------------------------------------------------------------------------------------------------- the pair


def test_a_batch_of_designs_ends_with_every_episode_over(design):
    lengths = lengths_of(design)
    assert len(set(lengths)) > 2
    steps = np.arange(design.steps.reward.shape[0])[:, None]
    np.testing.assert_array_equal(design.steps.valid[:, 0], steps < lengths)
    np.testing.assert_array_equal(design.steps.done[:, 0], steps >= lengths - 1)
    np.testing.assert_array_equal(design.final.state.env.time, lengths)


def test_all_students_start_on_exactly_the_designs(batch_env, design):
    """Row (a, b, e) of [students, levels, evaluations] is on the level of design b."""
    state, ts = jax.jit(batch_env.reset_student)(jax.random.key(1), design.final.state)
    assert ts.reward.shape == (2, B * 3)
    found, designed = batch_env.student.levels(state), design.final.state.env.design
    for row, level in zip(jax.tree.leaves(found), jax.tree.leaves(designed), strict=True):
        row = np.asarray(row).reshape(2, B, 3, *level.shape[1:])
        for a, b, e in itertools.product(range(2), range(B), range(3)):
            np.testing.assert_array_equal(row[a, b, e], level[b])
    np.testing.assert_array_equal(state.env.agent_pos.reshape(2, B, 3, 2)[1, :, 2], designed.agent_pos)
    assert not state.stats.lengths.any()
    assert len({x.tobytes() for x in np.asarray(designed.wall_map)}) > 5  # not all the same by chance


def test_one_instance_starts_a_student_on_a_design(batch_env, design):
    one = jax.tree.map(lambda x: np.asarray(x)[3], design.final.state.env)
    state, ts = jax.jit(batch_env.env.reset_student)(jax.random.key(1), one)
    np.testing.assert_array_equal(state.level.wall_map, one.design.wall_map)
    np.testing.assert_array_equal(state.agent_pos, one.design.agent_pos)
    assert not ts.done


def test_the_pair_of_an_environment_is_made_by_its_name():
    pair = make_ued_env("AMaze", {"budget": "first_wall", "noise_dim": 0}, height=3, width=4, n_walls=4)
    assert pair.student == AMaze(height=3, width=4, n_walls=4)
    assert pair.teacher == MazeTeacher(height=3, width=4, n_walls=4, budget="first_wall", noise_dim=0)
    assert make_ued_env("AMaze").teacher == MazeTeacher()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_ued_env("AMase"), "unknown environment 'AMase'.*did you mean 'AMaze'"),
        (lambda: make_ued_env("AMaze", hight=3), "unknown setting of AMaze 'hight'.*did you mean 'height'"),
        (lambda: make_ued_env("AMaze", {"buget": "fixed"}), "setting of the teacher of AMaze 'buget'.*mean 'budget'"),
        (lambda: make_ued_env("AMaze", {"budget": "first"}), "unknown design.budget 'first'"),
        (
            lambda: UEDEnvironment(ENV, MazeTeacher(height=4, width=4, n_walls=4)),
            r"MazeTeacher designs levels .*wall_map bool\[4, 4\].*but AMaze plays levels .*wall_map bool\[3, 4\]",
        ),
        (lambda: UEDEnvironment(Lights(), MazeTeacher()), r"designs levels Level\(.*but Lights plays levels"),
        (lambda: UEDEnvironment(ENV, LightsTeacher()), r"LightsTeacher designs levels .*but AMaze plays levels Level"),
    ],
    ids=["unknown", "setting", "design", "value", "size", "student", "teacher"],
)
def test_pairs_that_do_not_fit_are_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=rf"^.*{message}.*$"):
        make()


# ---------------------------------------------------------------------------------------------------- what is paid


@pytest.fixture(scope="module")
def rewarded(design) -> tuple[np.ndarray, Rollout]:
    reward = np.random.default_rng(0).normal(1, 2, B).astype(np.float32)
    return reward, jax.device_get(jax.jit(paid)(design, reward))


def test_only_the_last_step_of_a_design_is_paid(design, rewarded):
    reward, run = rewarded
    expected = np.zeros(design.steps.reward.shape, np.float32)
    for b, length in enumerate(lengths_of(design)):
        expected[length - 1, 0, b] = reward[b]
    np.testing.assert_array_equal(run.steps.reward, expected)


def test_advantages_of_a_design_equal_a_plain_loop(design, rewarded):
    reward, run = rewarded
    advantage, target = (np.asarray(x) for x in run.advantages(GAMMA, LAMBDA))
    value = np.asarray(design.steps.value[:, 0], np.float64)
    assert np.abs(value).max() > 0.01
    for b, length in enumerate(lengths_of(design)):
        expected, following = 0.0, 0.0  # nothing comes after the last step
        for t in reversed(range(length)):
            earned = reward[b] if t == length - 1 else 0.0
            expected = earned + GAMMA * following - value[t, b] + GAMMA * LAMBDA * expected
            following = value[t, b]
            np.testing.assert_allclose(advantage[t, 0, b], expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(target[t, 0, b], expected + value[t, b], rtol=1e-4, atol=1e-5)


def test_nothing_is_bootstrapped_past_the_end_of_a_design(rewarded):
    """Without values the advantage is the reward, discounted; what the values after the end are does not matter."""
    reward, run = rewarded
    values = jnp.where(run.steps.valid, 0.0, 99.0)
    run = run.replace(steps=run.steps.replace(value=values), last_value=run.last_value + 99.0)
    advantage = np.asarray(run.advantages(GAMMA, 1.0)[0])
    for b, length in enumerate(lengths_of(run)):
        expected = GAMMA ** np.arange(length - 1, -1, -1.0) * reward[b]
        np.testing.assert_allclose(advantage[:length, 0, b], expected, rtol=1e-4, atol=1e-6)


def test_designs_without_a_score_teach_nothing(batch_env, designed):
    """An update in which a third of the designs have no score is the update on the others alone."""
    state, design = jax.device_get(designed)
    agent = agent_of(batch_env)
    scores = np.random.default_rng(1).normal(1, 2, B).astype(np.float32)
    known = np.arange(B) % 3 > 0

    learnt = jax.jit(lambda state, runs: agent.update(jax.random.key(2), state, runs)[0].params)
    some = jax.device_get(jax.jit(paid)(design, np.where(known, scores, np.float32(-np.inf))))
    fewer = some.replace(
        steps=jax.tree.map(lambda x: x[:, :, known], some.steps),
        carry=jax.tree.map(lambda x: x[:, known], some.carry),
        last_value=some.last_value[:, known],
    )
    nobody = jax.device_get(jax.jit(paid)(design, np.full(B, -np.inf, np.float32)))
    some, fewer, nobody = (learnt(state, runs) for runs in (some, fewer, nobody))
    for before, one, other, none in zip(*map(jax.tree.leaves, (state.params, some, fewer, nobody)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(none, before)
    assert any((x != y).any() for x, y in zip(*map(jax.tree.leaves, (state.params, some)), strict=True))


# ---------------------------------------------------------------------------------------------------- diversity


def test_diversity_is_the_mean_over_pairs_of_what_differs(design):
    levels = jax.tree.map(np.asarray, design.final.state.env.design)
    rows = [np.concatenate([np.ravel(x[b]).astype(int) for x in jax.tree.leaves(levels)]) for b in range(B)]
    differing = [sum(int(x) != int(y) for x, y in zip(a, b, strict=True)) for a, b in itertools.combinations(rows, 2)]
    np.testing.assert_allclose(jax.jit(mean_hamming_distance)(levels), np.mean(differing), rtol=1e-5)
    assert np.mean(differing) > 1
    same = jax.tree.map(lambda x: np.repeat(x[:1], B, axis=0), levels)
    assert float(jax.jit(mean_hamming_distance)(same)) == 0.0


# ---------------------------------------------------------------------------------------------------- third parties


N_LIGHTS = 4


class LightsState(struct.PyTreeNode):
    """A game, or a design: which is told by the environment that made it."""

    level: jax.Array  # i32[]
    chosen: jax.Array  # i32[], by the teacher; -1 before
    over: jax.Array  # bool[]


@dataclasses.dataclass(frozen=True)
class Lights(Environment):
    """One step. The level, an integer, is shown; naming it pays level / (N_LIGHTS - 1)."""

    max_steps: int = 1
    """Steps of an episode."""
    observation_space = Discrete(N_LIGHTS)
    action_space = Discrete(N_LIGHTS)

    def sample_level(self, key: jax.Array) -> jax.Array:
        return jax.random.randint(key, (), 0, N_LIGHTS, jnp.int32)

    def reset(self, key: jax.Array, level: jax.Array) -> tuple[LightsState, TimeStep]:
        no = jnp.zeros((), bool)
        state = LightsState(level=level, chosen=jnp.full((), -1, jnp.int32), over=no)
        return state, TimeStep(obs=level, reward=jnp.zeros((), jnp.float32), terminated=no, truncated=no)

    def step(self, key: jax.Array, state: LightsState, action: jax.Array) -> tuple[LightsState, TimeStep]:
        yes = jnp.ones((), bool)
        reward = jnp.where(action == state.level, state.level.astype(jnp.float32) / (N_LIGHTS - 1), 0.0)
        return state.replace(over=yes), TimeStep(obs=state.level, reward=reward, terminated=yes, truncated=~yes)

    def get_level(self, state: LightsState) -> jax.Array:
        return state.level

    def level_metrics(self, level: jax.Array) -> dict[str, jax.Array]:
        return {"level": level.astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class LightsTeacher(Lights):
    """One step: the action is the level. What a design starts from decides nothing."""

    def step(self, key: jax.Array, state: LightsState, action: jax.Array) -> tuple[LightsState, TimeStep]:
        after, ts = super().step(key, state, action)
        return after.replace(chosen=jnp.where(state.over, state.chosen, action)), ts.replace(
            reward=jnp.zeros((), jnp.float32)
        )

    def to_level(self, state: LightsState) -> jax.Array:
        return state.chosen

    def level_metrics(self, level: jax.Array) -> dict[str, jax.Array]:
        return {}


@dataclasses.dataclass(frozen=True)
class LightsDesign:
    """How a teacher designs levels of `Lights`."""

    def build(self, env: Lights) -> LightsTeacher:
        return LightsTeacher(env.max_steps)


@pytest.fixture
def lights():
    """The pair, registered for one test."""
    register_env("Lights", Lights, teacher=LightsDesign)
    yield "Lights"
    FAMILIES.pop(Lights)


@pytest.mark.deep
def test_the_toy_pair_conforms():
    check_environment(Lights(), jax.random.key(0))
    check_environment(LightsTeacher(), jax.random.key(0))


def test_a_third_party_environment_has_a_teacher_of_its_own(lights):
    assert make_ued_env(lights) == UEDEnvironment(Lights(), LightsTeacher())
    curriculum = make_runner(from_dict({"env": lights, "runner": "paired", "model": "ff"})).curriculum
    assert curriculum.env.env == UEDEnvironment(Lights(), LightsTeacher())


@pytest.mark.deep
def test_a_third_party_environment_trains_with_a_teacher_of_its_own(lights):
    """The best level there is pays 1, all the others less; a uniform teacher's would pay half on average at most."""
    small = {"name": "ff", "dense_width": 16, "head_width": 16}
    teacher = {"design": lights, "score": "return", "model": small, "ppo": {"lr": 1e-2, "entropy_coef": 0.0}}
    config = from_dict(
        {
            "env": lights,
            "runner": {"name": "paired", "n_parallel": 32, "n_steps": 1, "teacher": teacher},
            "model": small,
            "ppo": {"lr": 1e-2},
        }
    )
    program = SeedRunner(make_runner(config))
    state, start = program.run(program.init(0), 1)
    state, _ = program.run(state, 59)
    _, end = program.run(state, 60)
    assert start.metrics["teacher/reward"][0] < 0.3
    assert end.metrics["teacher/reward"][0] > 0.9
    assert end.metrics["level/new/level"][0] > 0.9 * (N_LIGHTS - 1)
    assert program._run._cache_size() == 1


def test_an_environment_that_has_no_teacher_is_refused_with_a_teacher():
    register_env("Dark", Dark)
    try:
        with pytest.raises(ValueError, match=r"^unknown environment with a teacher 'Dark': choose from auto, AMaze"):
            make_ued_env("Dark")
        with pytest.raises(ValueError, match=r"^no teacher is registered for Dark .*: AMaze, GridWorld, Pendulum"):
            make_runner(from_dict({"env": "Dark", "runner": "paired", "model": "ff"}))
    finally:
        FAMILIES.pop(Dark)


@dataclasses.dataclass(frozen=True)
class Dark(Lights):
    """An environment without a teacher."""

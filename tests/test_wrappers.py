"""Wrappers: against a plain loop round the environment itself, and in training."""

import copy
import dataclasses
import pickle
from collections import deque
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from probes import Probe

from minimax_lib.agents.ppo import PPO
from minimax_lib.config.train import from_dict
from minimax_lib.curricula.levels.accel import ACCEL
from minimax_lib.curricula.levels.designed import PAIRED, Teacher
from minimax_lib.curricula.levels.dr import DR
from minimax_lib.curricula.levels.plr import PLR
from minimax_lib.curricula.levels.sfl import SFLMethod
from minimax_lib.envs.base import BaseEnvironment, Environment, opening, transition
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.levels import level_of_list
from minimax_lib.envs.maze import AMaze, MazeDesign
from minimax_lib.envs.maze.mutate import mutate
from minimax_lib.envs.multi_agent import MultiAgentEnvironment
from minimax_lib.envs.nmmo import NMMO
from minimax_lib.envs.registry import FAMILIES, editing_of, identity_of, make_held_out, register_env
from minimax_lib.envs.spaces import ACTION_MASK, Box, Dict, Discrete, MultiDiscrete
from minimax_lib.envs.task_levels import WithTask
from minimax_lib.envs.walker import BipedalWalker
from minimax_lib.envs.wrappers import (
    FrameStack,
    Potential,
    RewardShaping,
    StepCost,
    TimeLimit,
    Wrapper,
    unwrapped,
    unwrapped_state,
)
from minimax_lib.evaluation.held_out import EvalRunner
from minimax_lib.evaluation.report import record_episodes
from minimax_lib.models.settings import FeedForward
from minimax_lib.opponents.duel import check_seats
from minimax_lib.runners.build import make_runner, trained_with
from minimax_lib.testing.curricula import small_agent
from minimax_lib.testing.envs import check_environment
from tests.exact import EXACT

MAZE = AMaze(height=4, width=4, n_walls=3, view_size=3, max_steps=12)
GAMMA = 0.9


def nearness(state):
    """A potential: minus the distance to the goal."""
    gap = state.agent_pos - state.level.goal_pos
    return -jnp.abs(gap).sum().astype(jnp.float32)


def clock(state):
    """A potential of probes."""
    return 1.0 + state.clock.astype(jnp.float32)


def doubled(ts):
    """A bonus as high as the reward."""
    return ts.reward


WRAPPED = {
    "shaping": RewardShaping(Probe(), doubled),
    "step cost": StepCost(MAZE, 0.01),
    "time limit": TimeLimit(Probe(), 2),
    "frame stack": FrameStack(MAZE, 3),
    "stacked probe": FrameStack(Probe(), 2),
    "all of them": RewardShaping(StepCost(TimeLimit(FrameStack(MAZE, 2), 9), 0.01), Potential(nearness, GAMMA)),
}


@pytest.mark.parametrize(
    "name",
    [name if name in ("shaping", "time limit") else pytest.param(name, marks=pytest.mark.deep) for name in WRAPPED],
)
def test_every_wrapper_conforms(name):
    check_environment(WRAPPED[name], jax.random.key(0), n_rows=4)


ON_MAZE = {
    "plain": MAZE,
    "cost": StepCost(MAZE, 0.25),
    "shaped": RewardShaping(StepCost(MAZE, 0.5), Potential(nearness, GAMMA)),
    "limit 4": TimeLimit(MAZE, 4),
    "limit 40": TimeLimit(MAZE, 40),
    "stacked": FrameStack(MAZE, 3),
}


def episodes(envs, n=48, steps=14):
    """Random actions and time steps [n, steps, ...] of each of `envs`, with a first [n, ...]; no restarts.

    The levels and the actions are the same in all, which are played in one program.
    """

    def one(env, key):
        k_level, k_reset, k_steps = jax.random.split(key, 3)
        state, first = env.reset(k_reset, env.sample_level(k_level))

        def step(state, key):
            k_action, k_step = jax.random.split(key)
            # Steps ahead more often than others, so that some episodes reach the goal.
            action = jax.random.choice(k_action, jnp.array([0, 1, 2, 2, 2], jnp.int32) % env.action_space.n)
            after, ts = env.step(k_step, state, action)
            return after, (ts, unwrapped_state(state), unwrapped_state(after))

        return first, jax.lax.scan(step, state, jax.random.split(k_steps, steps))[1]

    @partial(jax.jit, compiler_options=EXACT)
    def played(key):
        keys = jax.random.split(key, n)
        return {name: jax.vmap(partial(one, env))(keys) for name, env in envs.items()}

    return jax.device_get(played(jax.random.key(7)))


@pytest.fixture(scope="module")
def on_maze():
    return episodes(ON_MAZE)


def test_the_episodes_for_these_tests_hold_all_that_matters(on_maze):
    _, (ts, _, _) = on_maze["plain"]
    assert 5 < ts.terminated.any(axis=1).sum() < 44
    assert ts.truncated[:, 11].all()


def test_a_step_cost_is_the_reward_less_the_cost_and_solves_the_same(on_maze):
    _, (ts, _, _) = on_maze["plain"]
    first, (costly, _, _) = on_maze["cost"]
    np.testing.assert_allclose(costly.reward, ts.reward - 0.25, atol=1e-6)
    assert not first.reward.any()
    np.testing.assert_array_equal(costly.terminated, ts.terminated)
    np.testing.assert_array_equal(costly.progress, ts.terminated)  # in a maze, the goal alone pays
    np.testing.assert_allclose(costly.facts["raw_return"], np.cumsum(ts.reward, axis=1), atol=1e-6)
    # The costs alone would have made most of these returns negative.
    solved_at = costly.terminated.argmax(axis=1)
    late = [i for i in range(48) if costly.terminated[i].any() and costly.reward[i, : solved_at[i] + 1].sum() < 0]
    assert late
    assert all(costly.progress[i, solved_at[i]] == 1 for i in late)


def test_a_bonus_for_failure_solves_nothing():
    """Progress of an environment that ends without success, with a return that only the wrapper makes positive."""

    @dataclasses.dataclass(frozen=True)
    class Lost(Environment):
        max_steps: int = 2
        observation_space = Discrete(2)
        action_space = Discrete(2)

        def sample_level(self, key):
            return jnp.zeros((), jnp.float32)

        def reset(self, key, level):
            return level, opening(jnp.zeros((), jnp.int32))

        def step(self, key, state, action):
            return state, transition(jnp.zeros((), jnp.int32), -0.5, jnp.ones((), bool), jnp.zeros((), bool))

        def get_level(self, state):
            return state

        def level_metrics(self, level):
            return {}

    env = RewardShaping(Lost(), lambda ts: 5 * ts.terminated)
    check_environment(env, jax.random.key(0), n_rows=2)

    @jax.jit
    def first_steps(key):
        return [e.step(key, e.reset(key, jnp.zeros((), jnp.float32))[0], 0)[1] for e in (env, StepCost(env, 0.1))]

    ts, outer = first_steps(jax.random.key(0))
    assert float(ts.reward) == 4.5
    assert float(ts.progress) == 0
    ts = outer
    assert float(ts.progress) == 0
    assert float(ts.facts["raw_return"]) == -0.5  # of what is inside both


def test_shaping_by_a_potential_telescopes(on_maze):
    """Discounted, the extra rewards of an episode come to -phi(s0), plus gamma^T phi(sT) where only time ran out."""
    first, (ts, before, _) = on_maze["plain"]
    _, (shaped, _, after) = on_maze["shaped"]
    phi = np.vectorize(lambda *gap: -float(np.abs(gap).sum()))
    for i in range(len(first.reward)):
        end = int(np.argmax(ts.done[i])) + 1
        extra = shaped.reward[i, :end] - (ts.reward[i, :end] - 0.5)
        total = sum(GAMMA**t * x for t, x in enumerate(extra))
        start = phi(*(before.agent_pos[i, 0] - before.level.goal_pos[i, 0]))
        last = phi(*(after.agent_pos[i, end - 1] - after.level.goal_pos[i, end - 1]))
        rest = 0.0 if ts.terminated[i, end - 1] else GAMMA**end * last
        assert total == pytest.approx(rest - start, abs=1e-4)


def test_the_potential_of_a_true_end_is_nothing():
    envs = {"plain": Probe(), "shaped": RewardShaping(Probe(), Potential(clock, GAMMA))}
    found = episodes(envs, steps=4)
    _, (ts, before, _) = found["plain"]
    _, (shaped, _, _) = found["shaped"]
    before_phi = 1.0 + before.clock
    ahead = np.where(ts.terminated, 0.0, 2.0 + before.clock)
    np.testing.assert_allclose(shaped.reward, ts.reward + GAMMA * ahead - before_phi, atol=1e-5)
    assert ts.terminated.any()


def test_a_time_limit_shortens_and_keeps_what_ends_by_itself(on_maze):
    _, (ts, _, _) = on_maze["plain"]
    assert ts.terminated[:, 3].any()  # here the goal is reached in the step in which a limit of 4 ends the episode
    for limit in (4, 40):
        env = ON_MAZE[f"limit {limit}"]
        _, (cut, _, _) = on_maze[f"limit {limit}"]
        assert env.max_steps == min(limit, 12)
        np.testing.assert_array_equal(cut.terminated, ts.terminated)
        late = np.arange(1, 15) >= limit
        np.testing.assert_array_equal(cut.truncated, ts.truncated | late)
        np.testing.assert_array_equal(cut.reward, ts.reward)


def test_a_frame_stack_is_a_queue_of_observations(on_maze):
    first, (ts, _, _) = on_maze["plain"]
    opened, (stacked, _, _) = on_maze["stacked"]
    for i in range(6):
        queue = deque([{k: v[i] for k, v in first.obs.items()}] * 3, maxlen=3)
        for t in range(-1, 14):
            seen = opened.obs if t < 0 else {k: v[:, t] for k, v in stacked.obs.items()}
            if t >= 0:
                queue.append({k: v[i, t] for k, v in ts.obs.items()})
            np.testing.assert_array_equal(seen["image"][i], np.concatenate([o["image"] for o in queue], axis=-1))
            np.testing.assert_array_equal(seen["direction"][i], [o["direction"] for o in queue])
    np.testing.assert_array_equal(stacked.reward, ts.reward)


def test_restarts_open_with_the_first_observation_again():
    """In a batch, through `observe` and the restarts: no frame of an ended episode is left in the next."""
    env = FrameStack(MAZE, 3)
    batch = BatchEnv(env)

    @jax.jit
    def opened(key):
        return batch.reset(key, jax.vmap(MAZE.sample_level)(jax.random.split(key, 8)))

    state, ts = opened(jax.random.key(1))
    opening_obs = jax.device_get(ts.obs)
    step = jax.jit(batch.step)
    n_done = 0
    for t in range(13):
        state, ts = step(jax.random.key(t), state, np.full((1, 8), 2, np.int32))
        ts = jax.device_get(ts)
        for row in np.flatnonzero(ts.done[0]):
            n_done += 1
            np.testing.assert_array_equal(ts.obs["image"][0, row], opening_obs["image"][0, row])
            np.testing.assert_array_equal(ts.obs["direction"][0, row], opening_obs["direction"][0, row])
    assert n_done >= 8


@struct.dataclass
class MaskedState:
    level: jax.Array
    time: jax.Array


@dataclasses.dataclass(frozen=True)
class Masked(Environment):
    """Observations of every form, which count the steps, and a mask."""

    max_steps: int = 5
    action_space = Discrete(3)

    @property
    def observation_space(self):
        inner = Dict((("pair", MultiDiscrete((8, 9))), (ACTION_MASK, Discrete(8))))
        parts = (("number", Box(0, 9, ())), ("matrix", Box(0, 9, (2, 3), "int32")), ("inner", inner))
        return Dict((*parts, (ACTION_MASK, Box(0, 1, (3,), "bool"))))

    def sample_level(self, key):
        return jnp.zeros((), jnp.float32)

    def reset(self, key, level):
        state = MaskedState(level=level, time=jnp.zeros((), jnp.int32))
        return state, opening(self.show(state))

    def step(self, key, state, action):
        state = MaskedState(level=state.level, time=state.time + 1)
        return state, transition(self.show(state), 0.0, jnp.zeros((), bool), state.time >= self.max_steps)

    def show(self, state):
        return {
            "number": state.time.astype(jnp.float32),
            "matrix": jnp.full((2, 3), state.time, jnp.int32),
            "inner": {"pair": jnp.stack([state.time, state.time + 1]), ACTION_MASK: state.time},
            ACTION_MASK: jnp.arange(3) != state.time,
        }

    def get_level(self, state):
        return state.level

    def level_metrics(self, level):
        return {}


def test_the_action_mask_is_not_stacked():
    env = FrameStack(Masked(), 3)
    assert env.observation_space == Dict(
        (
            ("number", Box(0, 9, (3,))),
            ("matrix", Box(0, 9, (2, 9), "int32")),
            ("inner", Dict((("pair", MultiDiscrete((8, 9) * 3)), (ACTION_MASK, MultiDiscrete((8,) * 3))))),
            (ACTION_MASK, Box(0, 1, (3,), "bool")),
        )
    )
    check_environment(env, jax.random.key(0), n_rows=2)

    @jax.jit
    def two_steps(key):
        state, _ = env.reset(key, env.sample_level(key))
        state, _ = env.step(key, state, 0)
        return env.step(key, state, 0)[1]

    ts = two_steps(jax.random.key(0))
    np.testing.assert_array_equal(ts.obs["number"], [0, 1, 2])
    np.testing.assert_array_equal(ts.obs["inner"]["pair"], [0, 1, 1, 2, 2, 3])
    np.testing.assert_array_equal(ts.obs["inner"][ACTION_MASK], [0, 1, 2])
    np.testing.assert_array_equal(ts.obs[ACTION_MASK], [True, True, False])


def test_optional_members_are_those_of_what_is_wrapped():
    @dataclasses.dataclass(frozen=True)
    class Grouped(Probe):
        resets_at_once: int = 3

    for wrap in (Wrapper, lambda env: StepCost(FrameStack(env, 2), 0.1), lambda env: TimeLimit(env, 3)):
        maze, probe, grouped = wrap(MAZE), wrap(Probe()), wrap(Grouped())
        assert maze.observe is not None
        assert maze.draw_episodes is not None
        assert maze.resets_at_once is None
        assert probe.observe is probe.draw_episodes is probe.resets_at_once is None
        assert grouped.resets_at_once == 3
    env = StepCost(FrameStack(MAZE, 2), 0.1)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env)), dataclasses.replace(env, cost=0.1)):
        assert twin == env
        assert hash(twin) == hash(env)
        assert twin.observe is not None


# Rewards and time limits of a wrapper may be others, and a person plays the environment itself.
NOT_FORWARDED = {"optimal_return", "scene", "zero_sum", "relabelled"}


def test_every_ability_is_that_of_what_is_wrapped():
    bases = (BaseEnvironment, MultiAgentEnvironment)
    members = {name for base in bases for name in vars(base) if not name.startswith("_")}
    assert members - vars(Wrapper).keys() == NOT_FORWARDED - {"zero_sum", "relabelled"}
    for name in {"zero_sum", "relabelled"}:
        assert not getattr(Wrapper, name)
    env = TimeLimit(FrameStack(NMMO(preset="mini", n_players=4, n_teams=2), 1), 2)
    check_seats(env, 2)
    with pytest.raises(ValueError, match="it must be a multiple of 2, the agents of a team"):
        check_seats(env, 1)
    assert TimeLimit(BipedalWalker(), 2).legend == BipedalWalker.legend


def test_pictures_take_what_is_left_of_a_wrapped_state():
    @dataclasses.dataclass(frozen=True)
    class Drawn(Probe):
        def slim(self, state):
            return state.clock

        def draw_state(self, state):
            return np.full((1, 1, 3), getattr(state, "clock", state))

    env = TimeLimit(FrameStack(Drawn(), 2), 2)
    state, _ = jax.jit(lambda key: env.reset(key, env.sample_level(key)))(jax.random.key(0))
    np.testing.assert_array_equal(env.draw_state(env.slim(state)), env.draw_state(state))


def test_bad_settings_are_refused_in_one_line():
    for make, line in (
        (lambda: FrameStack(MAZE, 0), "n=0: it must be a whole number of at least 1"),
        (lambda: TimeLimit(MAZE, 2.5), "limit=2.5: it must be a whole number of at least 1"),
        (lambda: StepCost(MAZE, -1.0), "cost=-1.0: it must be at least 0 and finite"),
        (lambda: Potential(nearness, 1.5), "gamma=1.5: it must be between 0 and 1, as the agent's discount"),
    ):
        with pytest.raises(ValueError) as refused:  # noqa: PT011
            make()
        assert str(refused.value) == line


STACKED = StepCost(FrameStack(MAZE, 2), 0.01)
SMALL = FeedForward(conv_filters=2, dense_width=8, head_width=4)


def test_what_belongs_to_the_maze_belongs_to_a_wrapped_one():
    assert unwrapped(STACKED) is MAZE
    assert editing_of(STACKED).mutate is mutate
    assert identity_of(STACKED) is identity_of(MAZE)
    with pytest.raises(ValueError, match="no mutation is registered for Probe"):
        editing_of(StepCost(Probe(), 0.1))


def test_held_out_tasks_are_seen_through_the_stack():
    names = ("SmallCorridor", "TrainingDistribution")
    tasks, bare = make_held_out(STACKED, names), make_held_out(MAZE, names)
    assert tasks.names == names
    assert tasks.env == FrameStack(bare.env, 2)  # the cost is for training only
    assert make_held_out(TimeLimit(MAZE, 5), names).env.max_steps == 5
    with pytest.raises(ValueError, match="unknown option of held-out tasks 'rules'"):
        make_held_out(STACKED, names, rules="dcd")


@pytest.mark.deep
def test_held_out_tasks_are_played_through_the_stack_and_keep_their_own_returns():
    names = ("SmallCorridor", "TrainingDistribution")
    tasks = make_held_out(STACKED, names)
    agent = small_agent(STACKED).agent
    runner = EvalRunner(make_held_out(STACKED, names[1:]), agent, n_episodes=2)

    @jax.jit
    def opened(key):
        """(state, fresh parameters) on one of the tasks."""
        level = jax.tree.map(lambda x: x[0, 0], tasks.sample(key, 1))
        state, ts = tasks.env.reset(key, level)
        return state, agent.init(key, ts.obs).params

    state, params = opened(jax.random.key(1))
    stats = record_episodes(runner, 2, params).stats
    assert (np.asarray(stats.returns) >= 0).all()
    # Drawn by the maze, from states within states.
    states = jax.tree.map(lambda x: np.asarray(x)[None, None], state)
    assert tasks.env.draw_episodes(states, np.ones((1, 1), bool), ["a maze"], 1).shape[2] == 3


SETTINGS = {
    "dr": DR(n_parallel=4, n_steps=12),
    "plr": PLR(n_parallel=4, n_steps=12, capacity=8),
    "accel": ACCEL(n_parallel=4, n_steps=12, capacity=8, n_edits=2),
    "sfl": SFLMethod(n_parallel=4, n_steps=12, n_scored=8, n_kept=4, n_episodes=2),
    "paired": PAIRED(
        n_parallel=4, n_steps=12, teacher=Teacher(design=MazeDesign(n_walls=3), model=SMALL, ppo=PPO(n_epochs=1))
    ),
}


def runner_for(name):
    settings = SETTINGS[name]
    return trained_with(STACKED, small_agent(STACKED, settings.n_students), settings)


@pytest.mark.parametrize("name", ["accel", "sfl"])
@pytest.mark.deep
def test_methods_train_on_a_wrapped_maze(name):
    runner = runner_for(name)
    step = jax.jit(runner.step)
    first = state = jax.jit(runner.init)(jax.random.key(0))
    for _ in range(6):
        state, metrics = step(state)
        assert 0 <= metrics["solved_rate"] <= 1
        assert -0.12 <= metrics["return"] <= 1 - 0.01
        assert (metrics["facts/raw_return"] > 0) == (metrics["solved_rate"] > 0)
    learnt = jax.tree.map(lambda x, y: float(jnp.abs(x - y).sum()), state.students.params, first.students.params)
    assert 0 < sum(jax.tree.leaves(learnt)) < np.inf


@pytest.mark.parametrize("name", ["plr", *(pytest.param(name, marks=pytest.mark.deep) for name in ("dr", "paired"))])
def test_all_methods_take_a_wrapped_maze(name):
    """Traced alone, which is where what does not fit together shows."""
    runner = runner_for(name)
    state = jax.eval_shape(runner.init, jax.random.key(0))
    after, _ = jax.eval_shape(runner.step, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)


@dataclasses.dataclass(frozen=True)
class StackedMaze(FrameStack):
    """A maze seen in several frames, with its own flags."""

    env: AMaze = AMaze()
    """The maze."""
    n: int = 2
    """Frames."""


def test_a_wrapped_environment_is_a_choice_on_the_command_line():
    try:
        register_env("StackedMaze", StackedMaze)
        tree = {
            "env": {"name": "StackedMaze", "n": 3, "env": {"height": 5, "width": 5, "n_walls": 3}},
            "runner": "accel",
        }
        config = from_dict(tree)
        assert config.env == StackedMaze(AMaze(height=5, width=5, n_walls=3), 3)
        assert make_runner(config).env is config.env
        assert "RoomsS13" in make_held_out(config.env, ["validation"]).names
        with pytest.raises(ValueError, match="'Other' is a wrapper"):
            register_env("Other", StepCost, groups={"all": ("x",)})
    finally:
        FAMILIES.pop(StackedMaze, None)


def test_the_task_is_shown():
    key = jax.random.key(0)
    inner = AMaze(height=3, width=3, n_walls=2, max_steps=5)
    env = WithTask(inner, n_tasks=4)
    check_environment(env, key)
    described = WithTask(inner, n_tasks=2, shown=((0.5, -2.0), (3.0, 1.0)))
    suite = make_held_out(env, ["TrainingDistribution"])

    @jax.jit
    def seen(key, number):
        level = level_of_list(env, number)
        state, first = env.reset(key, level)
        _, of_description = described.reset(key, level_of_list(described, jnp.int32(1)))
        _, of_suite = suite.env.reset(key, jax.tree.map(lambda x: x[0, 0], suite.sample(key, 1)))
        levels = level.level, level_of_list(inner, number)
        return levels, first, env.step(key, state, 0)[1], of_description, of_suite

    levels, first, ts, of_description, of_suite = jax.device_get(seen(key, np.int32(2)))
    jax.tree.map(np.testing.assert_array_equal, *levels)
    np.testing.assert_array_equal(first.obs["task"], [0, 0, 1, 0])
    np.testing.assert_array_equal(ts.obs["task"], [0, 0, 1, 0])
    assert set(ts.obs) == {"task", *dict(inner.observation_space.items)}
    np.testing.assert_array_equal(of_description.obs["task"], [3.0, 1.0])
    assert dict(described.observation_space.items)["task"].low == -2.0
    assert not of_suite.obs["task"].any()
    with pytest.raises(ValueError, match=r"no mutation is registered for WithTask"):
        editing_of(env)
    with pytest.raises(ValueError, match=r"shown has 1 rows of \[2\] numbers: it must have 2 rows"):
        WithTask(inner, n_tasks=2, shown=((0.5, 1.0),))

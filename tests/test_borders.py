"""What comes over the border: levels through every door, actions through Gymnasium, PettingZoo and gymnax."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from minimax_lib import make_env, make_held_out, register_env
from minimax_lib.agents.population import AgentPop
from minimax_lib.curricula.levels.dr import RandomLevels
from minimax_lib.curricula.levels.finite import FiniteList
from minimax_lib.curricula.levels.plr import PLRSettings
from minimax_lib.envs import spaces
from minimax_lib.envs.batch import BatchEnv
from minimax_lib.envs.held_out import NamedTasks
from minimax_lib.envs.levels import checked_at_reset
from minimax_lib.envs.maze import AMaze
from minimax_lib.envs.registry import FAMILIES
from minimax_lib.portable import export
from minimax_lib.portable.host_state import sealed
from minimax_lib.portable.levels import LevelHost
from minimax_lib.trees import zeros
from tests.still_agent import Still

MAZE = AMaze(height=2, width=3, n_walls=1, max_steps=8)
KEY = jax.random.key(0)
GOOD = jax.device_get(jax.jit(MAZE.sample_level)(KEY))
BROKEN = dataclasses.replace(GOOD, goal_pos=np.array([3, 0], np.int32))
SAID = "the goal at [x, y] = [3, 0] is outside of the 3 columns and 2 rows"


@dataclasses.dataclass(frozen=True)
class Outside(AMaze):
    """A stranger's environment, which puts the goal outside of the map."""

    def sample_level(self, key: jax.Array):
        level = super().sample_level(key)
        return level.replace(goal_pos=jnp.array([self.width, 0], jnp.int32))


OUTSIDE = Outside(height=2, width=3, n_walls=1, max_steps=8)


def refused(message: str):
    return pytest.raises(ValueError, match=rf"^[^\n]*{re.escape(message)}[^\n]*$")


# ------------------------------------------------------------------------------------------------------------- levels


OTHERS = [pytest.param(name, marks=pytest.mark.deep) for name in ("GridWorld", "LaserTag")]


@pytest.mark.parametrize("name", ["AMaze", *OTHERS])
def test_a_reset_outside_jit_refuses_what_is_no_level(name):
    env = make_env(name)
    good = jax.device_get(jax.jit(env.sample_level)(KEY))
    broken = jax.tree.map(np.zeros_like, good)
    with refused("the level is none: "):
        env.reset(KEY, broken)
    with refused("the level is "):
        env.reset(KEY, jax.tree.map(lambda x: x[None], good))
    # Inside jit nothing can be looked at, and nothing is.
    assert jax.eval_shape(env.reset, KEY, good)[1].obs


def test_a_level_that_is_a_constant_of_a_program_is_none_of_our_business():
    assert jax.eval_shape(lambda: MAZE.reset(KEY, BROKEN))[1].obs
    rows = jax.eval_shape(jax.vmap(lambda key: MAZE.reset(key, GOOD)), jax.random.split(KEY, 2))
    assert rows[1].reward.shape == (2,)


def test_a_reset_takes_whole_numbers_of_any_type():
    wide = jax.tree.map(lambda x: np.asarray(x, np.int64) if x.dtype == np.int32 else x, GOOD)
    for one, other in zip(jax.tree.leaves(GOOD), jax.tree.leaves(checked_at_reset(MAZE, wide)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_a_batch_outside_jit_says_which_row_is_none():
    levels = jax.tree.map(lambda x, y: np.stack([x, y]), GOOD, BROKEN)
    with refused(f"the level of row 1 is none: {SAID}"):
        BatchEnv(MAZE).reset(KEY, levels)


def test_a_host_of_levels_refuses_what_its_environment_draws():
    host = LevelHost(PLRSettings(capacity=4, generator=RandomLevels()), OUTSIDE, 2)
    for _ in range(2):  # and it is what it was
        with refused(f"the level of row 0 is none: {SAID}"):
            host.propose()


def test_a_host_of_levels_refuses_a_state_with_others():
    host = LevelHost(PLRSettings(capacity=4, generator=RandomLevels()), MAZE, 2)
    host.propose()
    state = host.state_dict()
    arrays = {name: x for name, x in state.items() if name not in ("version", "settings", "checksums")}
    assert not jax.device_get(host._state).buffer.filled.any()  # placeholders are no levels, and are not looked at
    again = LevelHost(PLRSettings(capacity=4, generator=RandomLevels()), MAZE, 2)
    again.load_state_dict(state)
    broken_batch = {"batch.levels.goal_pos": np.full((2, 2), 7, np.int32)}
    name = next(name for name in arrays if name.endswith(".filled"))
    broken_buffer = {name: np.array([True, False, False, False])}
    for change in (broken_batch, broken_buffer):
        assert change.keys() <= arrays.keys()
        with refused("the level of row 0 is none: "):
            again.load_state_dict(sealed(host._settings, arrays | change))


@pytest.fixture
def plugged(monkeypatch):
    monkeypatch.setattr("minimax_lib.envs.registry.FAMILIES", dict(FAMILIES))


@dataclasses.dataclass(frozen=True)
class Suite(NamedTasks):
    """A stranger's tasks, one of which is none."""

    known = ("Fine", "Outside")

    def draw(self, name, key):
        return jax.tree.map(jnp.asarray, GOOD if name == "Fine" else BROKEN)


@dataclasses.dataclass(frozen=True)
class Plugged(AMaze):
    """A stranger's environment."""


def test_a_suite_is_asked_for_its_levels(plugged):
    register_env("Plugged", Plugged, held_out=Suite)
    env = Plugged(height=2, width=3, n_walls=1)
    assert make_held_out(env, ["Fine"]).names == ("Fine",)
    with refused(f"a level of the held-out task 'Outside' is none: {SAID}"):
        make_held_out(env, ["Fine", "Outside"])


def test_a_list_of_levels_is_looked_at():
    with refused(f"level 0 of the list is none: {SAID}"):
        FiniteList(n_levels=3).build(OUTSIDE, AgentPop(Still(MAZE.action_space)), 2)


def many(env, sample_level):
    return export.gymnasium_vector_env(env, 2, sample_level)


@pytest.mark.parametrize("make", [export.gymnasium_env, pytest.param(many, marks=pytest.mark.deep)])
def test_levels_that_a_function_draws_are_looked_at(make):
    pytest.importorskip("gymnasium")
    with refused(SAID):
        make(MAZE, lambda key: jax.tree.map(jnp.asarray, BROKEN)).reset()


# ------------------------------------------------------------------------------------------------------------ actions

SEVEN, PAIR = spaces.Discrete(7), spaces.MultiDiscrete((2, 3))
PUSH, MASK = spaces.Box(-1.0, 1.0, (2,)), spaces.Box(0, 1, (2,), "bool")
BOTH = spaces.Dict((("pick", PAIR), ("push", PUSH)))


@pytest.mark.parametrize(
    ("space", "action", "n", "message"),
    [
        (SEVEN, 99, None, "the action is 99: it must be a whole number from 0 to 6"),
        (SEVEN, -1, None, "the action is -1: "),
        (SEVEN, 7, None, "the action is 7: "),
        (SEVEN, 2**40, None, "the action is 1099511627776: "),
        (SEVEN, 10**30, None, "the action is a number of 100 bits: "),
        (SEVEN, 2.7, None, "the action is 2.7: "),
        (SEVEN, np.float32(2), None, "the action is np.float32(2.0): "),
        (SEVEN, np.nan, None, "the action is nan: "),
        (SEVEN, "up", None, "the action is 'up': "),
        (SEVEN, None, None, "the action is None: "),
        (SEVEN, True, None, "the action is True: "),
        (SEVEN, [1], None, "the action is int64[1]: "),
        (SEVEN, [0, 7], 2, "the action at [1] is 7: it must be a whole number from 0 to 6"),
        (SEVEN, [0, 1, 2], 2, "the action is int64[3]: it must be whole numbers [2] from 0 to 6"),
        (SEVEN, [[1], [2, 3]], 2, "the action is [[1], [2, 3]]: "),
        (SEVEN, 1, 2, "the action is 1: it must be whole numbers [2]"),
        (PAIR, [1, 3], None, "the action at [1] is 3: it must be a whole number from 0 to 2"),
        (PUSH, [np.nan, 0], None, "the action at [0] is nan: it must be a finite number"),
        (PUSH, [0, np.inf], None, "the action at [1] is inf: "),
        (PUSH, [1e39, 0], None, "the action at [0] is 1e+39: "),
        (PUSH, [[0.0, 0.0]], None, "the action is float64[1, 2]: it must be finite numbers [2]"),
        (PUSH, ["a", "b"], None, "the action is <U1[2]: "),
        (BOTH, {"pick": [0, 9], "push": [0, 0]}, None, "the action 'pick' at [1] is 9: "),
        (BOTH, {"pick": [0, 0]}, None, "the action is {'pick': [0, 0]}: it must be a dict with pick, push"),
        (BOTH, [0, 0], None, "the action is [0, 0]: it must be a dict with pick, push"),
    ],
)
def test_an_action_that_is_none_is_refused_in_one_line(space, action, n, message):
    with refused(message):
        spaces.checked_action(space, action, n)


@pytest.mark.parametrize(
    ("space", "action", "n"),
    [
        (SEVEN, 3, None),
        (SEVEN, np.uint8(6), None),
        (SEVEN, np.array(0), None),
        (SEVEN, jnp.int32(2), None),
        (SEVEN, (0, 6), 2),
        (PAIR, [1, 2], None),
        (PUSH, [5.0, -0.5], None),  # clipped later, as in training
        (PUSH, [0, 1], None),
        (MASK, [True, False], None),
        (MASK, np.array([0, 1], np.int8), None),
        (BOTH, {"pick": [[0, 0]], "push": [[0.0, 0.0]]}, 1),
    ],
)
def test_an_action_comes_in_the_types_of_its_space(space, action, n):
    checked = spaces.checked_action(space, action, n)
    one = checked if n is None else jax.tree.map(lambda x: x[0], checked)
    clipped = jax.tree.map(jnp.asarray, spaces.within(space, one))
    assert space.contains(clipped)
    jax.tree.map(np.testing.assert_array_equal, checked, action if space is BOTH else np.asarray(action))


def test_no_action_of_a_stranger_reaches_an_environment():
    pytest.importorskip("gymnasium")
    pytest.importorskip("pettingzoo")
    env, envs = export.gymnasium_env(MAZE), export.gymnasium_vector_env(MAZE, 2)
    game = export.parallel_env(make_env("LaserTag"))
    # As after a reset. Nothing is stepped, so nothing is compiled.
    env._row = envs._row = game._game = ()
    game.agents = game.possible_agents
    for action in (99, -1, 2.7, np.nan, [1], None):
        with refused("the action is "):
            env.step(action)
        with refused("the action"):
            envs.step([0, action])
        with refused("the action of agent_1 is "):
            game.step({"agent_0": 0, "agent_1": action})


def test_the_action_of_a_row_that_only_opens_an_episode_is_not_looked_at():
    ignored = np.array([False, True])
    np.testing.assert_array_equal(spaces.checked_action(SEVEN, [1, 99], 2, ignored=ignored), [1, 99])
    with refused("the action at [0] is 99"):
        spaces.checked_action(SEVEN, [99, 99], 2, ignored=ignored)


def test_gymnax_outside_jit_refuses_actions_and_levels():
    pytest.importorskip("gymnax")
    from minimax_lib.portable.gymnax_env import GymnaxParams

    env, params = export.gymnax_env(MAZE), GymnaxParams(GOOD, MAZE.max_steps)
    with refused(SAID):
        env.reset(KEY, params.replace(level=BROKEN))
    state = zeros(jax.eval_shape(env.reset_env, KEY, params)[1])
    for action in (99, -1, 2.7, np.nan):
        for step in (env.step, env.step_env):
            with refused("the action is "):
                step(KEY, state, action, params)
    # Inside jit and vmap nothing can be looked at.
    rows = jax.vmap(env.step, in_axes=(0, None, 0, None))
    assert jax.eval_shape(rows, jax.random.split(KEY, 2), state, np.zeros(2, np.int32), params)
